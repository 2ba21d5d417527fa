//! The command line of `compare browser`.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    path::PathBuf,
};

use clap::{Args, ValueEnum};
use link::Link;

use crate::browser::{LISTS, MIXED};
use report::result::{BrowserConfig, MAX_ROUNDS, Part};

/// Formats that are measured when none are named: those of the comparison and msgpack.
pub(crate) const OTHERS: &str = "msgpack";

/// A part on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PartFlag {
    /// Bytes or text to the object that an app uses: cold and warm
    Decode,
    /// A REQ for stored events to its EOSE, over a WebSocket, against relay-sim
    EndToEnd,
    /// Events as they are published, on a subscription after its EOSE
    Live,
    /// Decoding JSON beside verifying (noble, WebAssembly) and rendering
    InProportion,
}

/// Which events are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SetFlag {
    /// 1,000 events from all over the corpus
    Mixed,
    /// Up to 200 events with 20 tags or more
    Lists,
}

/// A compression that a browser's WebSocket has, or that a script undoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompressionFlag {
    /// As the format has it
    None,
    /// permessage-deflate, by the browser's network process
    Deflate,
    /// relay-sim's zstd layer, by script (fzstd)
    Zstd,
}

/// Several events in one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BatchingFlag {
    /// One event a message
    Off,
    /// The relay may put several events of a subscription into one
    On,
}

/// One for each group of flags.
const EXAMPLES: &str = "\
Examples:
  Page     compare browser --part decode --events mixed --formats json,cbor-packed,dannypack
  Wire     compare browser --part end-to-end --formats json,dannypack --batching off,on
  Links    compare browser --link slow-4g --formats json,cbor-packed,dannypack
  Browser  compare browser --serve 192.168.1.7 --formats json,dannypack
  Rounds   compare browser --rounds 12 --step-ms 500
  Output   compare browser --out results

Needs Chromium or Chrome: `apt-get install chromium` on Debian; with --serve any browser anywhere.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BrowserFlags {
    /// Parts to measure, separated by commas
    ///
    /// [default: all four; with --link end-to-end]
    #[arg(long, help_heading = "Page", value_enum, value_delimiter = ',')]
    part: Vec<PartFlag>,
    /// Events that are decoded, separated by commas
    #[arg(long, help_heading = "Page", value_enum, value_delimiter = ',', default_value = "mixed,lists")]
    events: Vec<SetFlag>,
    /// Events to decode [default: the bundled sample]
    ///
    /// Formats: .jsonl, .jsonl.gz, .jsonl.zst or .pb.gz.
    #[arg(long, help_heading = "Page", value_name = "FILE")]
    corpus: Option<String>,
    /// Leave out what in --corpus is no valid event, and count it
    ///
    /// Each event is then verified.
    #[arg(long, help_heading = "Page", requires = "corpus", hide_short_help = true)]
    skip_invalid: bool,
    /// Wire formats, separated by commas
    ///
    /// Or core, or all (that the page can read); JSON is always among them.
    #[arg(
        long, help_heading = "Wire", value_delimiter = ',', default_values_t = ["core".to_owned(), OTHERS.to_owned()]
    )]
    pub(crate) formats: Vec<String>,
    /// Compressions, separated by commas
    ///
    /// Of the parts end-to-end and live, separated by commas.
    #[arg(long, help_heading = "Wire", value_enum, value_delimiter = ',', default_value = "none,deflate")]
    compressions: Vec<CompressionFlag>,
    /// Several live events in one message
    ///
    /// Of the parts end-to-end and live, separated by commas.
    #[arg(long, help_heading = "Wire", value_enum, value_delimiter = ',', default_value = "off,on")]
    batching: Vec<BatchingFlag>,
    /// Ask the relay over an emulated access link, such as slow-4g
    ///
    /// A profile of `client-sim links`, or parameters such as down=1.6mbit,up=750kbit,rtt=150ms.
    /// Only for part end-to-end; measures wall time and bytes alone.
    #[arg(long, help_heading = "Links", conflicts_with = "serve")]
    pub(crate) link: Option<Link>,
    /// The browser [default: the Chromium or Chrome on PATH]
    ///
    /// By name chromium, chromium-browser, google-chrome or google-chrome-stable.
    #[arg(long, help_heading = "Browser", value_name = "FILE")]
    pub(crate) chromium: Option<PathBuf>,
    /// Measure a device instead: print an address, and wait until a person opens it there
    ///
    /// Takes wall times alone. ADDRESS is an IPv4 address of this machine, with or without a port,
    /// such as 192.168.1.7 or 192.168.1.7:8080; without one only this machine reaches the page.
    /// While the run lasts, relay-sim listens at the same address.
    #[arg(
        long,
        help_heading = "Browser",
        value_name = "ADDRESS",
        num_args = 0..=1,
        default_missing_value = "127.0.0.1",
        value_parser = served,
        conflicts_with = "chromium"
    )]
    pub(crate) serve: Option<SocketAddrV4>,
    /// Rounds: in each, every row once in a fresh page
    ///
    /// Intervals need 6 or more.
    #[arg(
        long, help_heading = "Rounds", default_value_t = 6,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ROUNDS))
    )]
    rounds: u32,
    /// Least time of a measured step, after a warm-up
    #[arg(
        long, help_heading = "Rounds", value_name = "MS", default_value_t = 300,
        value_parser = clap::value_parser!(u32).range(10..=60_000)
    )]
    step_ms: u32,
    /// Decides the order of the rows
    #[arg(long, help_heading = "Rounds", default_value_t = 1)]
    seed: u64,
    /// For tests of the instrument: this row's decoder changes an event, which must end the run
    #[arg(long, help_heading = "Page", value_name = "ROW", hide_short_help = true)]
    pub(crate) plant: Option<String>,
    /// Where the result folder is made
    #[arg(long, help_heading = "Output", default_value = "results", value_name = "FOLDER")]
    pub(crate) out: PathBuf,
    /// Show no progress
    #[arg(long, help_heading = "Output")]
    pub(crate) quiet: bool,
}

impl BrowserFlags {
    /// The run as asked for, with the formats that the names stand for.
    pub(crate) fn config(&self, formats: Vec<String>) -> BrowserConfig {
        let of = |part: &PartFlag| match part {
            PartFlag::Decode => Part::Decode,
            PartFlag::EndToEnd => Part::EndToEnd,
            PartFlag::Live => Part::Live,
            PartFlag::InProportion => Part::InProportion,
        };
        let all = if self.link.is_some() { &[PartFlag::EndToEnd] } else { PartFlag::value_variants() };
        let asked = if self.part.is_empty() { all } else { &self.part };
        let mut parts: Vec<Part> = asked.iter().map(of).collect();
        parts.sort_unstable();
        parts.dedup();
        BrowserConfig {
            parts,
            formats,
            rounds: self.rounds,
            step_ms: self.step_ms,
            seed: self.seed,
            corpus: self.corpus.clone(),
            skip_invalid: self.skip_invalid,
            link: self.link.as_ref().map(|link| format!("{} ({})", link.label(), link.parameters())),
        }
    }

    /// Names of the sets of events, each once.
    pub(crate) fn sets(&self) -> Vec<String> {
        let name = |set: &SetFlag| match set {
            SetFlag::Mixed => MIXED.to_owned(),
            SetFlag::Lists => LISTS.to_owned(),
        };
        once_each(self.events.iter().map(name))
    }

    /// Names of the compressions, each once.
    pub(crate) fn compressions(&self) -> Vec<String> {
        let name = |compression: &CompressionFlag| match compression {
            CompressionFlag::None => "none".to_owned(),
            CompressionFlag::Deflate => "deflate".to_owned(),
            CompressionFlag::Zstd => "zstd".to_owned(),
        };
        once_each(self.compressions.iter().map(name))
    }

    /// Whether there are batches, each answer once.
    pub(crate) fn batchings(&self) -> Vec<bool> {
        once_each(self.batching.iter().map(|batching| *batching == BatchingFlag::On))
    }
}

/// An address of this machine by name; all of its addresses at once would let in who was not asked.
fn served(text: &str) -> Result<SocketAddrV4, String> {
    let parsed = text.parse().or_else(|_| text.parse().map(|ip: Ipv4Addr| SocketAddrV4::new(ip, 0)));
    let named = parsed.ok().filter(|address| !address.ip().is_unspecified());
    named.ok_or_else(|| "expected one IPv4 address of this machine, such as 192.168.1.7:8080".to_owned())
}

fn once_each<T: PartialEq>(names: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_served_at_one_named_address() {
        assert_eq!(served("127.0.0.1").unwrap().to_string(), "127.0.0.1:0");
        assert_eq!(served("192.168.1.7:8080").unwrap().to_string(), "192.168.1.7:8080");
        for other in ["0.0.0.0", "0.0.0.0:80", "", "::1", "localhost", "192.168.1.7:", "192.168.1.7:99999"] {
            assert!(served(other).unwrap_err().contains("192.168.1.7:8080"), "{other}");
        }
    }
}
