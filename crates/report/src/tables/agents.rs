//! Agents of a run over several machines: how common their starts were, and who differs from the
//! others.

use std::collections::{BTreeMap, BTreeSet};

use measure::AgentRecord;

use crate::{
    number,
    tables::table::{NOTHING, Table},
    utilisation::SATURATED_ABOVE,
    view::LoadView,
};

/// Twice the bound within which starts are common, and as much again for threads to wake.
const LATE_MS: f64 = 20.0;

/// Differences of send lag below this one are those of timers.
const LAG_MS: f64 = 1.0;

/// Handshakes, of two round trips, that differ by less are those within one data centre.
const HANDSHAKE_MS: f64 = 1.0;

/// A fact about each agent in each block.
struct Fact {
    heading: &'static str,
    /// In the unit of the heading; `None` where it is not known.
    of: fn(&AgentRecord) -> Option<f64>,
    /// Whether an agent's own differs from what is usual.
    differs: fn(f64, f64) -> bool,
}

/// Drifts below this one are a hundred parts in a million of ten seconds, as of any clock.
const DRIFT_MS: f64 = 1.0;

const FACTS: [Fact; 6] = [
    Fact {
        heading: "start late ms",
        of: |agent| Some(agent.started_late_ns as f64 / 1e6),
        differs: |own, usual| own > usual + LATE_MS,
    },
    Fact {
        heading: "CPU % of its cores",
        of: |agent| Some(agent.utilisation()? * 100.0),
        differs: |own, usual| own > SATURATED_ABOVE * 100.0 && usual <= SATURATED_ABOVE * 100.0,
    },
    Fact {
        heading: "send lag p99 ms",
        of: |agent| Some(agent.send_lag_ns_p99? as f64 / 1e6),
        differs: |own, usual| own > 2.0 * usual && own > usual + LAG_MS,
    },
    Fact {
        heading: "lost deliveries",
        of: |agent| Some(agent.deliveries_lost as f64),
        differs: |own, usual| own > 2.0 * usual,
    },
    Fact {
        heading: "clock drift ms",
        of: |agent| {
            let clock = agent.clock?;
            Some(clock.drift_ns.unsigned_abs().saturating_sub(clock.drift_bound_ns) as f64 / 1e6)
        },
        differs: |own, usual| own > usual + DRIFT_MS,
    },
    Fact {
        heading: "shortest handshake ms",
        of: |agent| Some(agent.handshake_ns_min? as f64 / 1e6),
        differs: |own, usual| own > 2.0 * usual && own > usual + HANDSHAKE_MS,
    },
];

/// An agent's blocks in which it differs.
#[derive(Default)]
struct Apart {
    blocks: usize,
    /// Its own value and the usual one in the block where they are furthest apart.
    furthest: [Option<(f64, f64)>; FACTS.len()],
}

impl LoadView<'_> {
    /// The agents of each block that several played. Blocks that are left out count, too: an agent
    /// may be why.
    fn together(&self) -> Vec<&[AgentRecord]> {
        let blocks = self.cells.iter().flat_map(|view| &view.cell.blocks);
        let agents = blocks.filter_map(|block| Some(block.record.as_ref()?.agents.as_slice()));
        agents.filter(|agents| agents.len() > 1).collect()
    }

    /// How common starts were, in a sentence; `None` where no block had several agents.
    pub(crate) fn starts_line(&self) -> Option<String> {
        let blocks = self.together();
        let spread_ns = |agents: &&[AgentRecord]| {
            let late_ns = || agents.iter().map(|agent| agent.started_late_ns);
            Some(late_ns().max()? - late_ns().min()?)
        };
        let ms = |ns: u64| number::short(ns as f64 / 1e6);
        let apart = ms(blocks.iter().filter_map(spread_ns).max()?);
        let clocks = blocks.iter().flat_map(|agents| agents.iter()).filter_map(|agent| agent.clock);
        let known = match clocks.map(|clock| clock.start_bound_ns).max() {
            Some(bound_ns) => format!("by clocks that are known within {} ms", ms(bound_ns)),
            None => "by clocks that nobody compared".to_owned(),
        };
        Some(format!("Starts: agents of one block began at most {apart} ms apart, {known}."))
    }

    /// One row for each agent that differs from the others in a block, and what that means; `None`
    /// where all are alike.
    pub(crate) fn agents_apart(&self) -> Option<(Table, String)> {
        let blocks = self.together();
        let mut apart: BTreeMap<u16, Apart> = BTreeMap::new();
        for agents in &blocks {
            look(agents, &mut apart);
        }
        let headings = ["agent", "blocks"].into_iter().chain(FACTS.iter().map(|fact| fact.heading));
        let row = |(index, one): (&u16, &Apart)| {
            let shown = |furthest: &Option<(f64, f64)>| match furthest {
                Some((own, usual)) => format!("{} ({})", number::short(*own), number::short(*usual)),
                None => NOTHING.to_owned(),
            };
            let names = [index.to_string(), format!("{} of {}", one.blocks, blocks.len())];
            names.into_iter().chain(one.furthest.iter().map(shown)).collect()
        };
        let rows: Vec<Vec<String>> = apart.iter().map(row).collect();
        let note = format!(
            "An agent stands here when in a block it began over {LATE_MS} ms after the others, used over {:.0} % of its cores \
             where the others did not, had a send lag p99 of over twice theirs and {LAG_MS} ms more, lost over twice as many \
             deliveries, had a clock that certainly drifted {DRIFT_MS} ms further from the coordinator's, or needed over twice \
             as long for its shortest handshake with the relay and {HANDSHAKE_MS} ms more. In brackets are the others, by \
             their median; figures are of the block with the largest difference.",
            SATURATED_ABOVE * 100.0
        );
        (!rows.is_empty())
            .then(|| (Table { names: 1, headings: headings.map(str::to_owned).collect(), rows }, note))
    }
}

/// Adds what differs in one block.
fn look(agents: &[AgentRecord], apart: &mut BTreeMap<u16, Apart>) {
    let mut differing = BTreeSet::new();
    for (place, fact) in FACTS.iter().enumerate() {
        let known = || agents.iter().filter_map(|agent| Some((agent.index, (fact.of)(agent)?)));
        let Some(usual) = lower_median(known().map(|(_, value)| value)) else { continue };
        for (index, own) in known().filter(|(_, own)| (fact.differs)(*own, usual)) {
            differing.insert(index);
            let furthest = &mut apart.entry(index).or_default().furthest[place];
            if furthest.is_none_or(|(most, least)| own - usual > most - least) {
                *furthest = Some((own, usual));
            }
        }
    }
    for index in differing {
        apart.entry(index).or_default().blocks += 1;
    }
}

/// The lower of two in the middle, so that of two agents one can differ from the other.
fn lower_median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}
