//! Agents of a run over several machines: how common their starts were, and who differs from the
//! others.

use std::collections::{BTreeMap, BTreeSet};

use measure::AgentRecord;

use crate::{
    number,
    tables::table::{NOTHING, Table},
    view::LoadView,
};

/// A fact about each agent in each block: its heading, by how much more than the others' an agent's own
/// must be, and its value in the unit of the heading, where that is known.
type Fact = (&'static str, f64, fn(&AgentRecord) -> Option<f64>);

const FACTS: [Fact; 6] = [
    // Twice the bound within which starts are common, and as much again for threads to wake.
    ("start late ms", 20.0, |agent| Some(agent.started_late_ns as f64 / 1e6)),
    ("CPU % of its cores", 50.0, |agent| Some(agent.utilisation()? * 100.0)),
    // Less is a difference of timers.
    ("send lag p99 ms", 1.0, |agent| Some(agent.send_lag_ns_p99? as f64 / 1e6)),
    ("lost deliveries", 0.0, |agent| Some(agent.deliveries_lost as f64)),
    // A hundred parts in a million of ten seconds, as of any clock.
    ("clock drift ms", 1.0, |agent| {
        let clock = agent.clock?;
        Some(clock.drift_ns.unsigned_abs().saturating_sub(clock.drift_bound_ns) as f64 / 1e6)
    }),
    // Two round trips: less is a difference within one data centre.
    ("shortest handshake ms", 1.0, |agent| Some(agent.handshake_ns_min? as f64 / 1e6)),
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
        let headings = ["agent", "blocks"].into_iter().chain(FACTS.map(|(heading, ..)| heading));
        let row = |(index, one): (&u16, &Apart)| {
            let shown = |furthest: &Option<(f64, f64)>| match furthest {
                Some((own, usual)) => format!("{} ({})", number::short(*own), number::short(*usual)),
                None => NOTHING.to_owned(),
            };
            let names = [index.to_string(), format!("{} of {}", one.blocks, blocks.len())];
            names.into_iter().chain(one.furthest.iter().map(shown)).collect()
        };
        let rows: Vec<Vec<String>> = apart.iter().map(row).collect();
        let margins = FACTS.map(|(heading, more, _)| format!("{heading} {more}")).join(", ");
        let note = format!(
            "An agent stands here when in a block its figure was over twice that of the others, and more than this beyond \
             it: {margins}. In brackets are the others, by their median; figures are of the block with the largest \
             difference. A drift is what a clock certainly has."
        );
        (!rows.is_empty())
            .then(|| (Table { names: 1, headings: headings.map(str::to_owned).collect(), rows }, note))
    }
}

/// Adds what differs in one block.
fn look(agents: &[AgentRecord], apart: &mut BTreeMap<u16, Apart>) {
    let mut differing = BTreeSet::new();
    for (place, (_, more, value)) in FACTS.iter().enumerate() {
        let known = || agents.iter().filter_map(|agent| Some((agent.index, value(agent)?)));
        let Some(usual) = lower_median(known().map(|(_, value)| value)) else { continue };
        for (index, own) in known().filter(|(_, own)| *own > 2.0 * usual && *own > usual + more) {
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
