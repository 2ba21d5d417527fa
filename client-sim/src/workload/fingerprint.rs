//! Did two machines compute the same plan?

use codecs::{ClientMessage, Filter, Format};
use corpus::Fingerprint;
use sha2::{Digest, Sha256};

use super::{Flood, Live, PlannedRequest, Publication, Reconciliation, Role, Session, Speaks, Workload};
use crate::schedule::nanos;

impl Workload {
    /// SHA-256, in hex, of what is due and what must come of it: events, connections, instants,
    /// requests, answers.
    ///
    /// For machines that are to play one plan together. One seed is not enough: instants come from
    /// the logarithm of the C library, whose last bit may differ between versions and processors.
    /// Two builds of the program may hash one plan differently.
    pub fn sha256(&self) -> String {
        // Names every field, so that a new one is hashed or left out on purpose.
        let Workload {
            events,
            stored,
            roles,
            labels,
            links,
            publications,
            floods,
            sessions,
            live,
            warm_up,
            readers: _, // in the roles
            frame_bytes,
            auth,
            tolerates_seam: _, // decided when a relay is known
            fresh: _,          // in the events, as the next one is
            set_aside: _,
            index: _,
            publication_of: _,
        } = self;
        let mut hash = Hash::default();
        hash.bytes(Fingerprint::of(events).as_bytes());
        hash.numbers([*stored as u64, u64::from(*auth)]);
        hash.text(&format!("{labels:?} {warm_up:?} {frame_bytes:?}"));
        let lengths =
            [links.len(), roles.len(), publications.len(), floods.len(), sessions.len(), live.len()];
        hash.numbers(lengths.map(|length| length as u64));
        links.iter().for_each(|link| hash.text(&link.spelled_out()));
        roles.iter().for_each(|role| hash.role(role));
        for Publication { at, connection, event, closed } in publications {
            hash.numbers([nanos(*at), *connection as u64, u64::from(*event), u64::from(*closed)]);
        }
        for Flood { at, connection, first, count } in floods {
            hash.numbers([nanos(*at), *connection as u64, u64::from(*first), u64::from(*count)]);
        }
        sessions.iter().for_each(|session| hash.session(session));
        for Live { filter, matches: _ } in live {
            hash.filter(filter);
        }
        codecs::hex::encode(&hash.sha256.finalize())
    }
}

/// What is hashed has a fixed length, or begins with its length.
#[derive(Default)]
struct Hash {
    sha256: Sha256,
    buffer: Vec<u8>,
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

    fn places(&mut self, places: &[u32]) {
        self.numbers([places.len() as u64]);
        places.iter().for_each(|place| self.sha256.update(place.to_le_bytes()));
    }

    fn role(&mut self, Role { label, speaks, task }: &Role) {
        let Speaks { format, compression, over } = speaks;
        let compression = compression.map(|compression| compression.spelled_out());
        self.text(&format!("{label:?} {format:?} {compression:?} {over:?} {task:?}"));
    }

    fn session(&mut self, session: &Session) {
        let Session { at, connection, steps, reconciliation, live, stay, next, think, follows } = session;
        self.numbers([nanos(*at), *connection as u64, nanos(*stay), nanos(*think), u64::from(*follows)]);
        self.text(&format!("{next:?}"));
        self.places(live);
        self.numbers([steps.len() as u64, u64::from(reconciliation.is_some())]);
        for step in steps {
            self.numbers([step.len() as u64]);
            for PlannedRequest { filter, expected } in step {
                self.filter(filter);
                self.places(expected);
            }
        }
        if let Some(Reconciliation { filter, has, lacks, own, frame_bytes, chunk }) = reconciliation {
            self.filter(filter);
            [has, lacks, own].into_iter().for_each(|places| self.places(places));
            self.numbers([*frame_bytes as u64, *chunk as u64]);
        }
    }

    /// A filter as the JSON of its REQ.
    fn filter(&mut self, filter: &Filter) {
        let message = ClientMessage::Req { subscription: "".into(), filters: vec![filter.clone()] };
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let encoded = Format::JSON.spec().library.encode_client(&message, &mut buffer);
        encoded.expect("JSON holds every filter");
        self.bytes(&buffer);
        self.buffer = buffer;
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use corpus::Corpus;

    use super::*;
    use crate::scenario::Scenario;

    fn plan(scenario: &str, seed: u64) -> Workload {
        let mut corpus = Corpus::bundled();
        corpus.events.truncate(700);
        let mut scenario = Scenario::load(scenario).unwrap();
        scenario.set_publish_rate(100.0).ok(); // where it has one
        Workload::plan(&scenario, &corpus, seed, &[Format::JSON]).unwrap()
    }

    fn first_request(plan: &mut Workload) -> &mut PlannedRequest {
        plan.sessions.iter_mut().flat_map(|session| &mut session.steps).flatten().next().unwrap()
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
        let changes: [fn(&mut Workload, Duration); 8] = [
            |plan, nanosecond| plan.publications[3].at += nanosecond,
            |plan, _| plan.publications[3].connection ^= 1,
            |plan, _| Arc::make_mut(&mut plan.events)[5].sig[63] ^= 1,
            |plan, nanosecond| plan.sessions[1].stay += nanosecond,
            |plan, _| first_request(plan).filter.limit = Some(77),
            |plan, _| first_request(plan).expected.push(0),
            |plan, _| plan.live[0].filter.limit = Some(1),
            |plan, _| plan.roles.swap(0, 40),
        ];
        for change in changes {
            let mut plan = plan("mixed-day", 1);
            change(&mut plan, nanosecond);
            hashes.push(plan.sha256());
        }
        let count = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), count, "each change shows");
    }
}
