//! The command line of `compare browser`.

use std::path::PathBuf;

use clap::Args;
use link::Link;

use super::EventFlags;
use crate::browser::{LISTS, MIXED, Part};
use report::result::MAX_ROUNDS;

/// Formats that are measured when none are named: those of the comparison and msgpack.
const OTHERS: &str = "msgpack";
/// Compressions that a page can undo.
const COMPRESSIONS: [&str; 3] = ["none", "deflate", "zstd"];

/// One for each group of flags.
const EXAMPLES: &str = "\
Examples:
  Page     compare browser --part decode --events mixed --format json,cbor-packed,dannypack
  Load     compare browser --corpus data/sample.pb.gz --part decode
  Wire     compare browser --part end-to-end --format json,dannypack --batching off,on
  Links    compare browser --link slow-4g --format json,cbor-packed,dannypack
  Browser  compare browser --chromium /opt/chrome/chrome
  Rounds   compare browser --rounds 12 --step-ms 500
  Output   compare browser --out results

Needs Chromium or Chrome: `apt-get install chromium` on Debian.
In a source tree also the page: `npm install --ignore-scripts && npm run build` in web/browser.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BrowserFlags {
    /// Parts to measure, separated by commas [default: all three; with --link end-to-end]
    ///
    /// Decode: from bytes to the object that an app uses, cold and warm. End-to-end: a REQ for stored
    /// events to its EOSE, over a WebSocket, against relay-sim.
    /// In-proportion: decoding JSON next to verifying (noble, WebAssembly) and rendering.
    #[arg(long, help_heading = "Page", value_delimiter = ',', value_parser = Part::ALL.map(Part::name))]
    part: Vec<String>,
    /// Events that are decoded, separated by commas
    ///
    /// Mixed: 1,000 events from all over the corpus. Lists: up to 200 events with 20 tags or more.
    #[arg(
        long, help_heading = "Page", value_delimiter = ',', default_value = "mixed,lists", value_parser = [MIXED, LISTS]
    )]
    events: Vec<String>,
    #[command(flatten)]
    pub(crate) send: EventFlags,
    /// Wire formats, separated by commas
    ///
    /// Or core, or all (that the page can read); JSON is always among them.
    #[arg(
        long = "format", alias = "formats", help_heading = "Wire", value_delimiter = ',',
        default_values_t = ["core".to_owned(), OTHERS.to_owned()]
    )]
    pub(crate) formats: Vec<String>,
    /// Compressions, separated by commas
    ///
    /// Of the part end-to-end. The browser undoes deflate, a script zstd (fzstd).
    #[arg(
        long = "compression", alias = "compressions", help_heading = "Wire", value_delimiter = ',',
        default_value = "none,deflate", value_parser = COMPRESSIONS
    )]
    compressions: Vec<String>,
    /// Several events in one message
    ///
    /// Of the part end-to-end, separated by commas.
    #[arg(
        long, help_heading = "Wire", value_delimiter = ',', default_value = "off,on", value_parser = ["off", "on"]
    )]
    batching: Vec<String>,
    /// Ask the relay over an emulated access link, such as slow-4g
    ///
    /// A profile of `client-sim links`, or parameters such as down=1.6mbit,up=750kbit,rtt=150ms.
    /// Only for part end-to-end; measures wall time and bytes alone.
    #[arg(long, help_heading = "Links")]
    pub(crate) link: Option<Link>,
    /// The browser [default: the Chromium or Chrome on PATH]
    ///
    /// By name chromium, chromium-browser, google-chrome or google-chrome-stable.
    #[arg(long, help_heading = "Browser", value_name = "FILE")]
    pub(crate) chromium: Option<PathBuf>,
    /// The page that npm built [default: next to the program or in its source tree]
    #[arg(long, help_heading = "Browser", value_name = "FOLDER", hide_short_help = true)]
    pub(crate) page: Option<PathBuf>,
    /// Rounds: in each, every row once in a fresh page
    ///
    /// Intervals need 6 or more.
    #[arg(
        long, help_heading = "Rounds", default_value_t = 6,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ROUNDS))
    )]
    pub(crate) rounds: u32,
    /// Least time of a measured step, after a warm-up
    #[arg(
        long, help_heading = "Rounds", value_name = "MS", default_value_t = 300,
        value_parser = clap::value_parser!(u32).range(10..=60_000)
    )]
    pub(crate) step_ms: u32,
    /// Decides the order of the rows
    #[arg(long, help_heading = "Rounds", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Where the result folder is made
    #[arg(long, help_heading = "Output", default_value = "results", value_name = "FOLDER")]
    pub(crate) out: PathBuf,
    /// Show no progress
    #[arg(long, help_heading = "Output")]
    pub(crate) quiet: bool,
}

impl BrowserFlags {
    /// The parts to measure, in the order of reports.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let is_asked = |part: &Part| match (&*self.part, &self.link) {
            ([], Some(_)) => *part == Part::EndToEnd,
            (names, _) => names.is_empty() || names.iter().any(|name| name == part.name()),
        };
        Part::ALL.into_iter().filter(is_asked).collect()
    }

    /// Names of the sets of events.
    pub(crate) fn sets(&self) -> Vec<&'static str> {
        asked([MIXED, LISTS], &self.events)
    }

    /// Names of the compressions.
    pub(crate) fn compressions(&self) -> Vec<&'static str> {
        asked(COMPRESSIONS, &self.compressions)
    }

    /// Whether there are batches.
    pub(crate) fn batchings(&self) -> Vec<bool> {
        asked(["off", "on"], &self.batching).iter().map(|batching| *batching == "on").collect()
    }
}

/// Those that are asked for.
fn asked<const N: usize>(known: [&'static str; N], wanted: &[String]) -> Vec<&'static str> {
    known.into_iter().filter(|name| wanted.iter().any(|wanted| wanted == name)).collect()
}
