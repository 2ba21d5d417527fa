//! `compare plan`: what an operator's relay needs in each cell of a result.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use codecs::quoted_lines;
use measure::Exit;
use program::{UsageError, print};

use super::columns;
use crate::{args::PlanFlags, strfry};
use report::{
    plan::{Demand, Plan, PriceBook},
    result::ResultFile,
};

/// The price book of this repository.
const PRICES: &str = include_str!("../../../data/prices.toml");

/// Most bytes of another one.
const MAX_PRICES_BYTES: u64 = 1 << 20;

/// Prints the plan of every cell.
pub(super) fn plan(flags: &PlanFlags) -> Result<Exit> {
    let result = ResultFile::read(&flags.result).map_err(UsageError)?;
    let prices = prices(flags.prices.as_deref()).map_err(UsageError)?;
    let demand = demand(flags).map_err(UsageError)?;
    let plan = Plan::new(&result, demand, prices).map_err(UsageError)?;
    if flags.json {
        print(&(serde_json::to_string_pretty(&plan).context("a plan serializes")? + "\n"))?;
    } else {
        print(&plan.terminal(columns()))?;
    }
    Ok(Exit::Success)
}

/// The bundled prices, or those of a file.
fn prices(file: Option<&Path>) -> Result<PriceBook> {
    let Some(file) = file else { return read_prices(PRICES).context("data/prices.toml") };
    let shown = || format!("--prices {}", file.display());
    let length = fs::metadata(file).with_context(shown)?.len();
    ensure!(length <= MAX_PRICES_BYTES, "{}: it has more than {MAX_PRICES_BYTES} bytes", shown());
    read_prices(&fs::read_to_string(file).with_context(shown)?).with_context(shown)
}

fn read_prices(text: &str) -> Result<PriceBook> {
    // It quotes the file.
    let book: PriceBook = toml::from_str(text).map_err(|error| anyhow!(quoted_lines(&error.to_string())))?;
    book.check()?;
    Ok(book)
}

/// The rates as given, or as strfry counted them.
fn demand(flags: &PlanFlags) -> Result<Demand> {
    let fan_out = flags.fan_out.unwrap_or_default();
    let (relay_cores, speaks) = (flags.relay_cores_used, flags.speaks.clone());
    if !flags.from_strfry.is_empty() {
        ensure!(flags.from_strfry.len() <= 2, "--from-strfry is given twice at most: before and after");
        let rates = strfry::rates(&flags.from_strfry, Duration::from_secs(flags.over.into()))?;
        let connections = flags.connections.unwrap_or(rates.connections);
        let deliveries_per_s = rates.stored_per_s + rates.written_per_s * fan_out;
        ensure!(
            connections > 0.0 && deliveries_per_s > 0.0,
            "--from-strfry: {connections} connections and {deliveries_per_s} deliveries/s are nothing to plan for; read it \
             when clients are connected, over more seconds"
        );
        return Ok(Demand {
            connections,
            deliveries_per_s,
            publishes_per_s: rates.publishes_per_s,
            relay_cores,
            speaks,
            source: format!(
                "Rates: of strfry's metrics. Deliveries are its {:.3} stored events/s, which it counts, and its {:.3} new \
                 events/s × the fan-out of {fan_out} that you state, which it does not count.",
                rates.stored_per_s, rates.written_per_s
            ),
        });
    }
    let (connections, publishes_per_s) =
        flags.connections.zip(flags.publishes_per_second).context("no rates")?;
    let live = publishes_per_s * fan_out;
    let deliveries_per_s = flags.deliveries_per_second.unwrap_or(live);
    ensure!(
        deliveries_per_s >= live,
        "{publishes_per_s} publishes/s to {fan_out} subscribers each are {live} deliveries/s, more than \
         --deliveries-per-second {deliveries_per_s}: correct one of the three"
    );
    let source = match flags.deliveries_per_second {
        Some(_) => "Rates: as you give them. Deliveries are stored and live ones together.".to_owned(),
        None => format!(
            "Rates: as you give them. Deliveries are publishes × the fan-out of {fan_out}: no stored event is requested."
        ),
    };
    Ok(Demand { connections, deliveries_per_s, publishes_per_s, relay_cores, speaks, source })
}
