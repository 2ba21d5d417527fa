//! Progress of a run over agents, for people.

use std::{fmt::Write, time::Duration};

use agents::{Aborted, Overview, Phase, Run, RunState};
use measure::LiveCounts;
use tokio::time::{Instant, interval_at};

use crate::progress::milliseconds;

/// Between two lines about agents that are waited for.
const WAITS_EVERY: Duration = Duration::from_secs(5);

/// Most agents that a line names.
const NAMED: usize = 10;

/// Waits until all agents are there, and says from time to time who is not.
///
/// # Errors
/// When agents are missing in the end, or one is lost.
pub(crate) async fn until_ready(run: &Run, tell: impl Fn(&str)) -> Result<(), Aborted> {
    let mut lines = interval_at(Instant::now() + WAITS_EVERY, WAITS_EVERY);
    let ready = run.ready();
    tokio::pin!(ready);
    loop {
        tokio::select! {
            ready = ready.as_mut() => return ready,
            _ = lines.tick() => {
                let seen = run.overview();
                let there = seen.agents.iter().flatten().count();
                let missing = named(seen.agents_in(None));
                let relay = if seen.relay == Some(None) { ", and the relay's agent" } else { "" };
                let of = seen.agents.len();
                tell(&format!("{there} of {of} agents are there; missing: {missing}{relay}"));
            }
        }
    }
}

/// One line about a run, made anew as it goes on.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// When the deliveries of a block were last looked at, and how many there were.
    before: Option<(Instant, u64)>,
    per_second: Option<u64>,
}

impl Line {
    /// The state, who lags behind, and what all agents count.
    pub(crate) fn text(&mut self, now: Instant, run: &Overview) -> String {
        self.look(now, run);
        let mut line = format!(" {}", run.state);
        if let Some(phase) = behind(run) {
            // Writing to a string does not fail.
            let _ = write!(line, ", waits for {} ({phase})", named(run.agents_in(Some(phase))));
        }
        let LiveCounts { connections, sent, deliveries, latency } = &run.block;
        let quantile = |name, q| Some(format!("{name} {}", milliseconds(latency.quantile_ns(q)?)));
        let counts = [
            self.per_second.map(|per_second| format!("{per_second}/s")),
            quantile("p50", 0.5),
            quantile("p99", 0.99),
            Some(format!("{sent} sent, {deliveries} delivered, {connections} connections")),
        ];
        if sent + deliveries > 0 {
            let counts: Vec<String> = counts.into_iter().flatten().collect();
            let _ = write!(line, ": {}", counts.join(", "));
        }
        line
    }

    /// Deliveries a second, over a second or more.
    fn look(&mut self, now: Instant, run: &Overview) {
        let deliveries = run.block.deliveries;
        let before =
            self.before.filter(|(_, before)| deliveries >= *before && run.state == RunState::Running);
        let Some((then, before)) = before else {
            (self.before, self.per_second) = (Some((now, deliveries)), None);
            return;
        };
        let elapsed = now - then;
        if elapsed >= Duration::from_secs(1) {
            let per_second = u128::from(deliveries - before) * 1_000 / elapsed.as_millis();
            self.per_second = u64::try_from(per_second).ok();
            self.before = Some((now, deliveries));
        }
    }
}

/// How far the agents are that a barrier waits for, while others are further.
fn behind(run: &Overview) -> Option<Phase> {
    let phases = || run.agents.iter().flatten().filter(|phase| **phase != Phase::Stopped);
    let (least, most) = (phases().min()?, phases().max()?);
    (least < most).then_some(*least)
}

/// The first of these agents, and how many more there are.
fn named(agents: impl Iterator<Item = u16>) -> String {
    let all: Vec<String> = agents.map(|index| index.to_string()).collect();
    match all.len() {
        0 => "none".to_owned(),
        1..=NAMED => all.join(", "),
        count => format!("{} and {} more", all[..NAMED].join(", "), count - NAMED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overview(state: RunState, agents: &[Phase], sent: u64, deliveries: u64) -> Overview {
        let block = LiveCounts { connections: 4, sent, deliveries, ..LiveCounts::default() };
        Overview { state, agents: agents.iter().copied().map(Some).collect(), relay: None, block }
    }

    const RUNNING: Phase = Phase::Running;

    #[test]
    fn a_line_has_the_state_sums_and_the_rate_of_the_last_second() {
        let mut line = Line::default();
        let began = Instant::now();
        let mut at = |ms, deliveries| {
            let mut run = overview(RunState::Running, &[RUNNING, RUNNING], 9, deliveries);
            run.block.latency.buckets[4] = 200;
            line.text(began + Duration::from_millis(ms), &run)
        };
        let first = at(0, 100);
        let expected = " running: p50 1.50 ms, p99 1.99 ms, 9 sent, 100 delivered, 4 connections";
        assert_eq!(first, expected);
        assert!(!at(900, 200).contains("/s"), "a second is not yet over");
        assert!(at(2_000, 2_100).starts_with(" running: 1000/s, p50 1.50 ms"));
        assert!(at(2_500, 2_200).contains("1000/s"), "until the next second");
        assert!(at(3_000, 2_600).contains("500/s"));
        let next = overview(RunState::Claimed, &[RUNNING; 2], 0, 0);
        assert_eq!(line.text(began + Duration::from_secs(9), &next), " claimed", "a block begins anew");
    }

    #[test]
    fn agents_that_are_behind_are_named() {
        let agents = [Phase::Prepared, Phase::Preparing, Phase::Prepared];
        let run = overview(RunState::Claimed, &agents, 0, 0);
        let line = Line::default().text(Instant::now(), &run);
        assert_eq!(line, " claimed, waits for 1 (preparing)", "agent 0 and 2 are as far as any");
        assert_eq!(named(0..10), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9");
        assert_eq!(named(0..64), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 54 more");
    }
}
