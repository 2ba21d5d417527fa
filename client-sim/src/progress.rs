//! One line of progress each second.

use std::{
    io::{Write, stderr, stdout},
    time::Duration,
};

use measure::LiveCounts;
use tokio::time::{Interval, MissedTickBehavior, interval};

use client::{recorder::Recorder, shared::Shared};

const PERIOD: Duration = Duration::from_secs(1);

/// Shows how far a run is: on standard error, where a terminal has its line rewritten, and with
/// `json` as JSON lines on standard output.
pub(crate) struct Progress<'a> {
    shared: &'a Shared,
    interval: Interval,
    quiet: bool,
    json: bool,
    seconds: u64,
    /// Length of the run, in seconds.
    total: f64,
    terminal: bool,
}

impl<'a> Progress<'a> {
    /// Makes the progress of a run that has just started.
    /// `expected` is how long it takes, where that is longer than its plan.
    pub(crate) fn new(shared: &'a Shared, quiet: bool, json: bool, expected: Option<Duration>) -> Self {
        let last = shared.workload.last_due();
        let total = expected.map_or(last, |expected| expected.max(last)).as_secs_f64();
        let mut interval = interval(PERIOD);
        interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
        interval.reset();
        Progress {
            shared,
            interval,
            quiet,
            json,
            seconds: 0,
            total,
            terminal: program::rewrites_lines(&stderr()),
        }
    }

    /// Waits for the next second and prints its line; cancel-safe.
    pub(crate) async fn tick(&mut self) {
        self.interval.tick().await;
        self.seconds += 1;
        let total = self.total;
        let (samples, p99) = self.shared.last_second();
        if self.json {
            let mut line = serde_json::json!({
                "second": self.seconds, "of": total.ceil(), "samples": samples, "latency_ns_p99": p99,
                "so_far": self.shared.live(),
            });
            if let Some(counts) = line["so_far"].as_object_mut().filter(|_| !self.shared.is_live()) {
                counts.remove("latency");
            }
            writeln!(stdout(), "{line}").ok();
        }
        if self.quiet {
            return;
        }
        let line = format!("{} s of {total:.0} s, {} deliveries", self.seconds, self.shared.deliveries());
        let end = if self.terminal { "\r" } else { "\n" };
        // A closed standard error does not end a measurement.
        write!(stderr(), "{line}{end}").ok();
    }
}

/// Tells a coordinator what a share counted in all, once its connections are closed.
pub(crate) fn tell_all(shared: &Shared, recorder: &Recorder) {
    if shared.is_live() {
        let latency = recorder.live(0..usize::MAX);
        let counts = LiveCounts { connections: 0, latency, ..shared.live() };
        writeln!(stdout(), "{}", serde_json::json!({ "so_far": counts })).ok();
    }
}
