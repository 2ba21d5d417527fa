//! Did two machines compute the same plan?

use corpus::Fingerprint;
use sha2::{Digest, Sha256};

use super::{Flood, Publication, Role, Speaks, Task, Workload};
use crate::{scenario::Scenario, schedule::nanos};

/// The inputs that sessions and live subscriptions follow from, beside the events.
pub(super) fn inputs(scenario: &Scenario, seed: u64) -> [u8; 32] {
    let Scenario { subscribe, request, fan_in, reconcile, phase, seconds, load, replay, .. } = scenario;
    let mut text = format!("{seed} {seconds} {phase:?} {subscribe:?} {request:?} {fan_in:?} {reconcile:?}");
    if let Some(replay) = replay {
        text += &format!(" {load} {}", codecs::hex::encode(&replay.recorded.sha256));
    }
    Sha256::digest(text).into()
}

impl Workload {
    /// SHA-256, in hex, of what all agents of a plan must have alike: events, connections,
    /// publications with their instants, and what sessions and live subscriptions follow from: an
    /// agent plans its own of these alone.
    ///
    /// For machines that are to play one plan together. One seed is not enough: instants come from
    /// the logarithm of the C library, whose last bit may differ between versions and processors.
    /// Two builds of the program may hash one plan differently.
    pub fn sha256(&self) -> String {
        let Workload { labels, warm_up, frame_bytes, links, roles, publications, floods, .. } = self;
        let mut hash = Hash::default();
        hash.bytes(Fingerprint::from_events(&self.events).as_bytes());
        hash.numbers([self.stored as u64, u64::from(self.auth)]);
        hash.text(&format!("{labels:?} {warm_up:?} {frame_bytes:?}"));
        hash.bytes(&self.inputs);
        let lengths = [links.len(), roles.len(), publications.len(), floods.len()];
        hash.numbers(lengths.map(|length| length as u64));
        links.iter().for_each(|link| hash.text(&link.spelled_out()));
        roles.iter().for_each(|role| hash.role(role));
        for Publication { at, connection, event, closed } in publications {
            hash.numbers([nanos(*at), *connection as u64, u64::from(*event), u64::from(*closed)]);
        }
        for Flood { at, connection, first, count } in floods {
            hash.numbers([nanos(*at), *connection as u64, u64::from(*first), u64::from(*count)]);
        }
        codecs::hex::encode(&hash.sha256.finalize())
    }
}

/// A hash of fields that have a fixed length, or begin with their length.
#[derive(Default)]
struct Hash {
    sha256: Sha256,
}

impl Hash {
    fn numbers<const N: usize>(&mut self, numbers: [u64; N]) {
        numbers.iter().for_each(|number| self.sha256.update(number.to_le_bytes()));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.numbers([bytes.len() as u64]);
        self.sha256.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn role(&mut self, Role { label, speaks, task, decode_every }: &Role) {
        let Speaks { format, compression, over } = speaks;
        let compression = compression.map(|compression| compression.spelled_out());
        self.text(&format!("{label:?} {format:?} {compression:?} {over:?}"));
        match task {
            // Filters are planned by the agent that has them.
            Task::Subscriber { filters: _, read_bytes_per_s } => self.text(&format!("{read_bytes_per_s:?}")),
            task => self.text(&format!("{task:?}")),
        }
        decode_every.iter().for_each(|every| self.numbers([u64::from(*every)]));
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use codecs::Format;
    use corpus::Corpus;

    use super::*;
    use crate::{
        inputs::plan_over,
        plan::tests::{few, scenario},
    };

    fn plan(name: &str, seed: u64) -> Workload {
        plan_over(&scenario(name), &few(700), seed, &[Format::JSON]).unwrap()
    }

    #[test]
    fn the_same_plan_has_the_same_hash_and_any_change_another() {
        let mut hashes = Vec::new();
        for (scenario, seed) in [("mixed-day", 1), ("mixed-day", 2), ("negentropy-sync", 1)] {
            let hash = plan(scenario, seed).sha256();
            assert_eq!(hash, plan(scenario, seed).sha256(), "{scenario} {seed}");
            assert_eq!(hash.len(), 64);
            hashes.push(hash);
        }
        let nanosecond = Duration::from_nanos(1);
        let changes: [fn(&mut Workload, Duration); 4] = [
            |plan, nanosecond| plan.publications[3].at += nanosecond,
            |plan, _| plan.publications[3].connection ^= 1,
            |plan, _| Arc::make_mut(&mut plan.events)[5].sig[63] ^= 1,
            |plan, _| plan.roles.swap(0, 40),
        ];
        for change in changes {
            let mut plan = plan("mixed-day", 1);
            change(&mut plan, nanosecond);
            hashes.push(plan.sha256());
        }
        // Changes that only sessions and live subscriptions follow from.
        for (name, seed, set) in [
            ("reconnect-storm", 1, "request.connections=1000"),
            ("reconnect-storm", 2, "request.connections=1000"),
            ("reconnect-storm", 1, "request.arrival.over_ms=1999"),
            ("slow-consumer", 1, "subscribe.slow.read_bytes_per_s=50000"),
            ("slow-consumer", 1, "subscribe.slow.read_bytes_per_s=9999"),
        ] {
            let corpus = Corpus::bundled();
            let scenario = Scenario::load_with(name, &[set.to_owned()]).unwrap();
            hashes.push(plan_over(&scenario, &corpus, seed, &[Format::JSON]).unwrap().sha256());
        }
        let count = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), count, "each change shows");
    }
}
