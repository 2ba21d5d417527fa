//! The command line of `compare plan`.

use std::path::PathBuf;

use clap::Args;

/// One for each group of flags.
const EXAMPLES: &str = "\
Examples:
  Rates   compare plan results/A --connections 2000 --publishes-per-second 20 --fan-out 50
          compare plan results/A --from-strfry http://127.0.0.1:7777/metrics --fan-out 50
  Relay   compare plan results/A --from-strfry m.txt --fan-out 50 --relay-cores-used 0.6
  Output  compare plan results/A --from-strfry m.txt --fan-out 50 --json";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanFlags {
    /// The result whose cells are planned: a folder of `compare run`
    pub(crate) result: PathBuf,
    /// Clients connected at one time
    #[arg(long, help_heading = "Rates", value_parser = amount, required_unless_present = "from_strfry")]
    pub(crate) connections: Option<f64>,
    /// Events sent to subscribers, stored and live [default: publishes × fan-out]
    #[arg(
        long, help_heading = "Rates", value_name = "N", value_parser = amount,
        required_unless_present_any = ["from_strfry", "fan_out"]
    )]
    pub(crate) deliveries_per_second: Option<f64>,
    /// Events received
    #[arg(
        long, help_heading = "Rates", value_name = "N", value_parser = amount, required_unless_present = "from_strfry"
    )]
    pub(crate) publishes_per_second: Option<f64>,
    /// Subscribers that a published event goes to live, on average
    ///
    /// strfry does not count them: its counter of EVENT is of answers to requests.
    #[arg(long, help_heading = "Rates", value_name = "N", value_parser = amount)]
    pub(crate) fan_out: Option<f64>,
    /// Take the rates from a strfry: its metrics (Prometheus text), read twice
    ///
    /// One address or file is read twice, --over seconds apart. The flag given twice reads each once.
    #[arg(
        long, help_heading = "Rates", value_name = "FILE|URL", requires = "fan_out",
        conflicts_with_all = ["deliveries_per_second", "publishes_per_second"]
    )]
    pub(crate) from_strfry: Vec<String>,
    /// Seconds between both readings
    #[arg(
        long, help_heading = "Rates", value_name = "SECONDS", requires = "from_strfry", default_value = "60",
        value_parser = program::units::whole_seconds
    )]
    pub(crate) over: u32,
    /// Cores that your relay keeps busy, instead of those that the result's relay would
    ///
    /// The ratios of the result are applied to them.
    #[arg(long, help_heading = "Relay", value_name = "N", value_parser = amount)]
    pub(crate) relay_cores_used: Option<f64>,
    /// The cell that your relay speaks today [default: JSON without compression]
    #[arg(long, help_heading = "Relay", value_name = "CELL", requires = "relay_cores_used")]
    pub(crate) speaks: Option<String>,
    /// Another price book than data/prices.toml, in its form
    #[arg(long, help_heading = "Output", value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
    /// Print the plan as JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// A rate or a number of what there is.
fn amount(text: &str) -> Result<f64, String> {
    let amount = text.parse::<f64>().ok().filter(|amount| (1e-6..=1e12).contains(amount));
    amount.ok_or_else(|| "expected a number above 0, as in 2000 or 0.5".to_owned())
}
