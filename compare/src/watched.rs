//! Progress of a run over agents, for people.

use std::{fmt::Write, time::Duration};

use agents::{Aborted, Overview, Phase, Run};
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

/// One line about a run: the state, who lags behind, and what all agents count.
pub(crate) fn line(run: &Overview) -> String {
    let mut line = format!(" {}", run.state);
    if let Some(phase) = behind(run) {
        // Writing to a string does not fail.
        let _ = write!(line, ", waits for {} ({phase})", named(run.agents_in(Some(phase))));
    }
    let LiveCounts { connections, sent, deliveries, latency } = &run.block;
    if sent + deliveries > 0 {
        let quantile = |name, q| Some(format!("{name} {}, ", milliseconds(latency.quantile_ns(q)?)));
        let quantiles: String = [quantile("p50", 0.5), quantile("p99", 0.99)].into_iter().flatten().collect();
        let counts = format!("{sent} sent, {deliveries} delivered, {connections} connections");
        let _ = write!(line, ": {quantiles}{counts}");
    }
    line
}

/// How far the agents are that a barrier waits for, while others are further.
fn behind(run: &Overview) -> Option<Phase> {
    let phases = || run.agents.iter().flatten();
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
