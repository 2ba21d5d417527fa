//! Plans reconciliations: which part of the relay's events each client has, and which events only
//! it has.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use codecs::{Event, Filter, KindClass};
use corpus::fresh::Keep;

use super::{Publication, Reconciliation, Role, Session, Task, Workload, index::named, sessions::position};
use crate::{
    scenario::{Scenario, is_among},
    schedule,
};

/// Kind of deletions (NIP-09), after which no new events are made.
const DELETION: u16 = 5;

impl Workload {
    /// Adds the connections and sessions of clients that reconcile, and the events that only they
    /// have.
    ///
    /// # Errors
    /// When the corpus has no event to reconcile.
    pub(super) fn plan_reconciliations(
        &mut self,
        scenario: &Scenario,
        eligible: &[&Event<'static>],
        seed: u64,
    ) -> anyhow::Result<()> {
        for (population, reconcile) in scenario.reconcile.iter().enumerate() {
            let kinds = reconcile.kinds.as_deref();
            let stored = self.stored_of(kinds);
            ensure!(!stored.is_empty(), "the corpus has no event of {}", named(kinds));
            let can_be_made = |event: &&&Event<'_>| {
                is_among(event, kinds) && event.class() != KindClass::Ephemeral && event.kind != DELETION
            };
            let templates: Vec<_> = eligible.iter().filter(can_be_made).copied().collect();
            self.frame_bytes = self.frame_bytes.into_iter().chain([reconcile.frame_bytes]).min();
            let label = self.label(reconcile.name.as_deref());
            for c in 0..reconcile.connections {
                let connection = self.roles.len();
                let speaks = self.speaks(reconcile.format, reconcile.compression, reconcile.link.as_ref());
                self.roles.push(Role::new(label, speaks, Task::Reconciler));
                let mut random = schedule::stream(seed, &format!("reconcile {population}"), c);
                let spans = scenario.spans(reconcile.phases.as_deref());
                let due =
                    schedule::arrivals(reconcile.arrival, reconcile.connections, c, &spans, &mut random);
                for (round, at) in due.into_iter().enumerate() {
                    let (has, lacks) = stored.iter().copied().partition(|_| random.unit() < reconcile.have);
                    let mut chosen = templates.clone();
                    let chosen = random.draw(&mut chosen, reconcile.extra).to_vec();
                    let seed = u64::from_le_bytes(*random.bytes32().first_chunk().expect("32 bytes"));
                    let own =
                        self.own_events(scenario, (at, connection), &chosen, (reconcile.extra, seed))?;
                    let reconciliation = Reconciliation {
                        filter: Filter { kinds: reconcile.kinds.clone(), ..Filter::default() },
                        has,
                        lacks,
                        own,
                        frame_bytes: reconcile.frame_bytes,
                        chunk: reconcile.chunk,
                    };
                    let session = Session::new(reconcile.arrival, connection, (round, at));
                    self.sessions.push(Session { reconciliation: Some(reconciliation), ..session });
                }
            }
        }
        Ok(())
    }

    /// Adds events that only one client has. It publishes them after its reconciliation.
    fn own_events(
        &mut self,
        scenario: &Scenario,
        (at, connection): (Duration, usize),
        templates: &[&Event<'static>],
        (count, seed): (usize, u64),
    ) -> anyhow::Result<Vec<u32>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        ensure!(!templates.is_empty(), "the corpus has no event after which others could be made");
        self.fresh += count;
        let mut own = Vec::with_capacity(count);
        for event in self.make(scenario, templates, count, (seed, Keep::default())) {
            let place = position(self.events.len())?;
            Arc::make_mut(&mut self.events).push(event);
            self.publications.push(Publication { at, connection, event: place, closed: true });
            own.push(place);
        }
        Ok(own)
    }
}

#[cfg(test)]
mod tests {
    use codecs::Format;

    use super::*;
    use crate::{inputs::plan_over, plan::tests::few};

    #[test]
    fn a_client_has_a_part_lacks_the_rest_and_owns_what_nobody_else_has() {
        let scenario = Scenario::load_with("negentropy-sync", &["reconcile.extra=5".to_owned()]).unwrap();
        let workload = plan_over(&scenario, &few(700), 1, &[Format::JSON]).unwrap();
        assert_eq!(workload.sessions.len(), 8, "4 clients, two bursts");
        assert_eq!((workload.publications.len(), workload.floods.len()), (40, 0));
        assert!(workload.timeline(|_| true).len() == 8, "what a client owns is not published by the clock");
        let mut parts = Vec::new();
        for session in &workload.sessions {
            let planned = session.reconciliation.as_ref().unwrap();
            let mut all = [&planned.has[..], &planned.lacks].concat();
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..u32::try_from(workload.stored).unwrap()), "all that is stored");
            let share = planned.has.len() as f64 / all.len() as f64;
            assert!((0.85..0.95).contains(&share), "{share}");
            for own in &planned.own {
                let publication = workload.publication_of(*own).unwrap();
                assert_eq!(workload.publications[publication].connection, session.connection);
            }
            parts.push(planned.has.clone());
        }
        parts.sort_unstable();
        parts.dedup();
        assert_eq!(parts.len(), 8, "each client has another part");
    }
}
