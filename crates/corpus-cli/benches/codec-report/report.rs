//! Everything that was measured: the JSON document, and what the tables are made from.

use std::{collections::BTreeMap, fs, thread};

use corpus::Corpus;
use serde::Serialize;

use crate::{
    measure::Times,
    sets::Sets,
    sizes::{Batches, Sizes},
    statistics::Estimate,
    what::What,
};

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The arguments behind `cargo bench -p corpus-cli --bench codec-report --`.
    pub(crate) arguments: Vec<String>,
    pub(crate) corpus: About,
    pub(crate) machine: Machine,
    pub(crate) rounds: usize,
    /// Round by round; medians and intervals are the reader's to compute.
    pub(crate) times: Vec<Times>,
    pub(crate) sizes: Vec<Sizes>,
    pub(crate) batches: Vec<Batches>,
}

/// Which events.
#[derive(Debug, Serialize)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) fingerprint: String,
    /// Real or generated.
    pub(crate) origin: String,
    pub(crate) events: usize,
    /// How many are measured: those that every core format holds.
    pub(crate) measured: usize,
    /// The formats that hold fewer, and how many.
    pub(crate) held_by: BTreeMap<&'static str, usize>,
    /// By kind, of those measured.
    pub(crate) kinds: BTreeMap<u16, usize>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    /// Programs that ran or waited in the minute before; this one alone is at most 1.
    pub(crate) load_before: Option<f64>,
}

impl Machine {
    fn of_now() -> Machine {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let name = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Machine {
            processor: name.map_or("unknown processor", |(_, name)| name).to_owned(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            load_before: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()),
        }
    }
}

impl Report {
    pub(crate) fn about(corpus: &Corpus, sets: &Sets<'_>, rounds: usize) -> Report {
        let first = &sets.sets[0];
        let narrow = sets.of_format.iter().filter(|(_, set)| **set != 0);
        let kinds = first.groups.iter().filter_map(|group| Some((group.kind?, group.members.len())));
        Report {
            arguments: std::env::args().skip(1).filter(|argument| argument != "--bench").collect(),
            corpus: About {
                name: corpus.name.clone(),
                fingerprint: corpus.fingerprint.to_string(),
                origin: corpus.origin.to_string(),
                events: corpus.events.len(),
                measured: first.events.len(),
                held_by: narrow.map(|(format, set)| (format.name(), sets.sets[*set].events.len())).collect(),
                kinds: kinds.filter(|(_, events)| *events > 0).collect(),
            },
            machine: Machine::of_now(),
            rounds,
            times: Vec::new(),
            sizes: Vec::new(),
            batches: Vec::new(),
        }
    }

    /// The rounds of a row, in nanoseconds an event.
    pub(crate) fn rounds_of(&self, format: &str, by: &str, what: What, kind: Option<u16>) -> Option<&[f64]> {
        let row =
            |times: &&Times| (times.format, times.by, times.what, times.kind) == (format, by, what, kind);
        Some(&self.times.iter().find(row)?.rounds_ns)
    }

    /// The median of a row.
    pub(crate) fn time(&self, format: &str, by: &str, what: What, kind: Option<u16>) -> Option<Estimate> {
        Estimate::from_values(self.rounds_of(format, by, what, kind)?.to_vec())
    }
}
