//! A scenario at the limit of relay or clients: every arrival becomes a closed loop that time ends.

use std::time::Duration;

use anyhow::{bail, ensure};
use cell::{Cell, Saturate};
use codecs::VerifyLevel;

use super::{Arrival, Scenario, Span, scaled};

/// Light readers decode every n-th delivery.
const DECODE_EVERY: u32 = 64;

/// Publications planned per second for each thread of a relay that checks signatures: checking one
/// takes some 40 µs of a core.
const VERIFIED_PER_S: f64 = 25_000.0;

/// Publications planned per second for each thread of a relay that checks no signatures.
const UNVERIFIED_PER_S: f64 = 60_000.0;

impl Scenario {
    /// Makes every arrival a closed loop without pauses for the whole run.
    ///
    /// Publishers have as many events as a relay takes, or as the cell's rate says, and keep a
    /// window unanswered. Sessions are the scenario's own, over and over; their stays are left
    /// out. Phases are one.
    ///
    /// # Errors
    /// Names what has no limit of the relay or of the clients to reach.
    pub(super) fn set_saturated(&mut self, whom: Saturate, cell: &Cell) -> anyhow::Result<()> {
        ensure!(
            self.replay.is_none(),
            "--saturate: a recording is played at its own instants, which have no limit to reach. Play it with --saturate none, \
             and faster with --load"
        );
        ensure!(
            cell.link.is_none() && !self.has_links(),
            "--saturate over links: a link would be the limit, not {}. Leave one of them out",
            whom.name()
        );
        if let Some(bare) = self.request.iter().find(|request| request.step.is_empty()) {
            bail!(
                "--saturate: sessions of {} have no step and only stay, which has no limit. Give them a [[request.step]]",
                bare.name.as_deref().unwrap_or("a [[request]]")
            );
        }
        let to = Duration::from_secs_f64(self.seconds);
        let span = Span { from: Duration::ZERO, to, load: [1.0, 1.0] };
        let relay = cell.own_relay();
        let per_thread = if relay.verify == VerifyLevel::Full { VERIFIED_PER_S } else { UNVERIFIED_PER_S };
        let per_s = cell.rate_per_s.unwrap_or(per_thread * f64::from(relay.threads));
        let populations = self.publish.len().max(1) as f64;
        for (clients, arrival, phases) in self.arriving() {
            *arrival = again(*arrival, *clients, span);
            *phases = None;
        }
        for publish in &mut self.publish {
            let events = per_s * self.seconds / populations;
            publish.arrival = looped(scaled(events, 1.0 / publish.connections as f64));
        }
        for request in &mut self.request {
            request.live.clear();
            request.stay_ms = None;
            request.decode_every = decode_every(whom, request.decode_every);
        }
        for subscribe in self.subscribe.iter_mut().filter(|subscribe| subscribe.read_bytes_per_s.is_none()) {
            subscribe.decode_every = decode_every(whom, subscribe.decode_every);
        }
        self.phase.clear();
        self.saturated = true;
        Ok(())
    }
}

/// A loop over as many sessions of a connection as its arrival starts in a run.
fn again(arrival: Arrival, connections: usize, span: Span) -> Arrival {
    looped(scaled(arrival.expected(connections, &[span]), 1.0 / connections as f64))
}

fn looped(rounds: usize) -> Arrival {
    Arrival::Closed { rounds, think_ms: 0 }
}

fn decode_every(whom: Saturate, own: Option<u32>) -> Option<u32> {
    match whom {
        Saturate::Relay => own.or(Some(DECODE_EVERY)),
        Saturate::Clients => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saturated(name: &str, set: &[&str], cell: &Cell) -> anyhow::Result<Scenario> {
        let set: Vec<_> = set.iter().map(|set| (*set).to_owned()).collect();
        let mut scenario = Scenario::load_with(name, &set).unwrap();
        scenario.set_cell(cell)?;
        Ok(scenario)
    }

    #[test]
    fn every_arrival_of_every_scenario_becomes_a_loop() {
        for name in Scenario::names() {
            for (whom, decodes) in [(Saturate::Relay, Some(DECODE_EVERY)), (Saturate::Clients, None)] {
                let scenario =
                    saturated(name, &[], &Cell { saturate: Some(whom), ..Cell::default() }).unwrap();
                for arrival in scenario.arrivals() {
                    assert!(
                        matches!(arrival, Arrival::Closed { rounds: 1.., think_ms: 0 }),
                        "{name} {arrival:?}"
                    );
                }
                let fast = scenario.subscribe.iter().filter(|one| one.read_bytes_per_s.is_none());
                assert!(fast.into_iter().all(|one| one.decode_every == decodes), "{name}");
                assert!(scenario.request.iter().all(|one| one.decode_every == decodes), "{name}");
            }
        }
    }

    #[test]
    fn what_has_no_limit_to_reach_is_refused_by_name() {
        let relay = || Cell { saturate: Some(Saturate::Relay), ..Cell::default() };
        let link = Cell { link: Some("slow-4g".parse().unwrap()), ..relay() };
        let error = saturated("note-stream", &[], &link).unwrap_err().to_string();
        assert!(error.contains("over links: a link would be the limit, not relay"), "{error}");
        let error = saturated("note-stream", &["subscribe.link=wifi"], &relay()).unwrap_err().to_string();
        assert!(error.contains("over links"), "{error}");
        let error = saturated("mixed-day", &["request.visitor.step=[]"], &relay()).unwrap_err().to_string();
        assert!(error.contains("sessions of visitor have no step"), "{error}");
    }

    #[test]
    fn a_rate_bounds_what_is_published() {
        let cell = Cell { saturate: Some(Saturate::Relay), rate_per_s: Some(300.0), ..Cell::default() };
        let scenario = saturated("mixed-day", &[], &cell).unwrap();
        assert_eq!(scenario.publish[0].arrival, looped(300 * 4 / 20));
    }
}
