//! Whether a result can be checked by others: its sums hold, and it names its origin.

use measure::PopulationRecord;

use crate::{
    merged::Merged,
    result::{Block, ResultFile},
    utilisation::Utilisation,
};

/// CPU time may exceed what its cores could give by this factor: clocks of processes and of the run are
/// read one after the other.
const CPU_BEYOND: f64 = 1.1;

impl ResultFile {
    /// What does not add up, a sentence each; empty where every sum holds.
    pub fn broken_sums(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for (cell, block) in
            self.cells.iter().flat_map(|cell| cell.blocks.iter().map(move |block| (cell, block)))
        {
            let place =
                self.schedule.get(block.round as usize).and_then(|round| round.get(block.position as usize));
            let at = format!("{}, round {}, place {}", cell.id, block.round, block.position);
            if place != Some(&cell.id) {
                broken.push(format!(
                    "{at}: the schedule has {} there",
                    place.map_or("nothing", String::as_str)
                ));
            }
            broken.extend(broken_sums_of(block).into_iter().map(|sum| format!("{at}: {sum}")));
        }
        broken
    }

    /// Why the result is none that others can check and make again, a sentence each.
    pub fn not_contributable(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.cells.iter().flat_map(|cell| &cell.blocks).all(|block| block.counted().is_none()) {
            reasons.push("no block of `compare run` with a valid ledger is in it".to_owned());
        }
        reasons.extend(self.incomplete().map(|why| format!("it is incomplete: {why}")));
        match &self.git {
            None => reasons
                .push("it states no commit: build the programs in a checkout, and run again".to_owned()),
            Some(git) if git.dirty => {
                reasons.push("it is of local changes: commit them, build and run again".to_owned());
            }
            Some(_) => {}
        }
        if !self.host.optimised {
            reasons.push("it is of a build without optimisation: build with --release".to_owned());
        }
        match &self.selftest {
            None => reasons.push(
                "it has no self-test: `compare selftest --out FILE`, then `compare run --selftest FILE`"
                    .to_owned(),
            ),
            Some(test) => {
                if !test.passed() {
                    reasons.push(format!("its self-test failed: {}", test.failed().join(", ")));
                }
                reasons.extend(test.of_another_commit(self.git.as_ref()));
            }
        }
        reasons.extend(self.broken_sums());
        reasons
    }
}

/// The sums of one block that do not hold.
fn broken_sums_of(block: &Block) -> Vec<String> {
    // Of any other block no figure is made.
    let Some(record) = block.counted() else { return Vec::new() };
    let mut broken: Vec<String> = record.counts.balanced().err().into_iter().collect();
    let populations = &record.populations;
    if !populations.is_empty() {
        let sum = |of: fn(&PopulationRecord) -> u64| populations.iter().map(of).fold(0, u64::saturating_add);
        let traffic = &record.traffic;
        for (what, parts, whole) in [
            ("connections", sum(|one| one.connections), record.connections),
            ("published", sum(|one| one.counts.acked), record.counts.acked),
            ("deliveries", sum(|one| one.counts.deliveries), record.counts.deliveries),
            ("requests", sum(|one| one.counts.requests), record.counts.requests),
            ("bytes to the relay", sum(|one| one.to_relay.wire_bytes), traffic.to_relay.wire_bytes),
            ("bytes to clients", sum(|one| one.to_client.wire_bytes), traffic.to_client.wire_bytes),
        ] {
            if parts != whole {
                broken.push(format!("{what} of its populations are {parts}, and of all {whole}"));
            }
        }
    }
    let merged = Merged::of_counts([record]);
    // That of a gateway is in the relay's, and its cores are not.
    let Utilisation { relay, generator } = Utilisation::of_whole_time(&merged);
    let relay = relay.filter(|_| merged.gateway_cpu.is_none());
    for (who, share) in [("relay", relay), ("clients", generator)] {
        if let Some(share) = share.filter(|share| *share > CPU_BEYOND) {
            broken.push(format!("CPU time of the {who} is {share:.2} times what its cores can give"));
        }
    }
    broken
}
