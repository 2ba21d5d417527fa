//! Progress on stderr: a live line on a terminal, elsewhere a line for each block.

use std::{
    io::{self, Write},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use measure::LiveCounts;
use serde::Deserialize;

use crate::metrics::Metrics;
use report::{
    merged::{Merged, latency_of},
    metric::Metric,
    result::Block,
};

/// Progress over a known number of blocks.
#[derive(Debug)]
pub struct Progress {
    /// Counts blocks; shown on a terminal alone.
    bar: ProgressBar,
    invalid: usize,
    first_guess: Duration,
    quiet: bool,
    /// The running block.
    now: String,
    /// The outcome of the block before.
    last: String,
    /// Who else sees it.
    metrics: Option<Metrics>,
}

/// A client's progress report of one second.
#[derive(Debug, Deserialize)]
struct Second {
    second: u64,
    of: f64,
    samples: u64,
    latency_ns_p50: u64,
    latency_ns_p99: u64,
    so_far: LiveCounts,
}

impl Progress {
    /// `block_guess` is the expected time of a block until one was measured.
    pub fn new(blocks: usize, block_guess: Duration, quiet: bool) -> Progress {
        let style = ProgressStyle::with_template("{bar:16} {pos}/{len} {wide_msg}")
            .expect("the template is a constant that was tried");
        let is_shown = !quiet && program::rewrites_lines(&io::stderr());
        // At most two redraws a second keep the cores free.
        let target =
            if is_shown { ProgressDrawTarget::stderr_with_hz(2) } else { ProgressDrawTarget::hidden() };
        Progress {
            bar: ProgressBar::with_draw_target(Some(blocks as u64), target).with_style(style),
            invalid: 0,
            first_guess: block_guess,
            quiet,
            now: String::new(),
            last: String::new(),
            metrics: None,
        }
    }

    /// Also tells whoever scrapes it.
    pub(crate) fn scraped(self, metrics: Option<Metrics>) -> Progress {
        Progress { metrics, ..self }
    }

    /// Adds the blocks of a further round, one of at most so many.
    pub(crate) fn add(&mut self, blocks: usize, further: usize, most: usize) {
        self.bar.inc_length(blocks as u64);
        self.say(&format!(
            "times of some blocks are invalid: a further round, the {further}. of at most {most}"
        ));
    }

    /// Whether reports of single seconds are wanted.
    pub fn is_live(&self) -> bool {
        !self.bar.is_hidden() || self.metrics.is_some()
    }

    /// Shows the block that starts.
    pub fn block(&mut self, round: usize, rounds: usize, cell: &str) {
        if self.bar.position() == 0 && self.bar.is_hidden() {
            self.say(&format!("{} blocks, about {}", self.blocks(), minutes(self.left())));
        }
        self.now = format!("round {}/{rounds} {cell}", round + 1);
        self.draw("");
    }

    /// Shows a client's report of a second; ignores other lines.
    pub fn second(&mut self, line: &str) {
        let Ok(Second { second, of, samples, latency_ns_p50, latency_ns_p99, so_far }) =
            serde_json::from_str(line)
        else {
            return;
        };
        self.counted(&so_far, latency_ns_p99);
        let (p50, p99) = (milliseconds(latency_ns_p50), milliseconds(latency_ns_p99));
        self.draw(&format!(" {second}/{of:.0} s: {samples}/s, p50 {p50}, p99 {p99}"));
    }

    /// Takes what the running block counts.
    pub(crate) fn counted(&self, counts: &LiveCounts, latency_ns_p99: u64) {
        if let Some(metrics) = &self.metrics {
            metrics.counted(counts, latency_ns_p99);
        }
    }

    /// Counts a block and shows its outcome.
    pub fn finish_block(&mut self, block: &Block) {
        if let Some(metrics) = &self.metrics {
            metrics.ended(block);
        }
        self.bar.inc(1);
        self.last = outcome(block);
        self.invalid += usize::from(block.usable().is_none());
        if self.bar.is_hidden() {
            let (number, of, left) = (self.bar.position(), self.blocks(), minutes(self.left()));
            self.say(&format!("block {number}/{of}, {}: {}; {left} left", self.now, self.last));
        }
        self.draw("");
    }

    /// Prints a line unless progress is hidden.
    pub(crate) fn say(&self, text: &str) {
        if !self.quiet {
            self.note(text);
        }
    }

    /// Prints a line that stays above the progress line.
    pub fn note(&self, text: &str) {
        // A closed stderr loses nothing: the result file has the same.
        self.bar.suspend(|| drop(writeln!(io::stderr(), "{text}")));
    }

    /// Leaves the terminal on a fresh line.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// Shows how a block goes on.
    pub(crate) fn draw(&self, second: &str) {
        let last = if self.last.is_empty() { String::new() } else { format!(" | before: {}", self.last) };
        let invalid =
            if self.invalid == 0 { String::new() } else { format!(" | {} unusable so far", self.invalid) };
        self.bar.set_message(format!("{} left, {}{second}{invalid}{last}", minutes(self.left()), self.now));
    }

    fn blocks(&self) -> u64 {
        self.bar.length().unwrap_or_default()
    }

    fn left(&self) -> Duration {
        let finished = self.bar.position();
        let each = match u32::try_from(finished) {
            Ok(finished @ 1..) => self.bar.elapsed() / finished,
            _ => self.first_guess,
        };
        each * u32::try_from(self.blocks().saturating_sub(finished)).unwrap_or(u32::MAX)
    }
}

/// The rate, p99 and validity of a block.
fn outcome(block: &Block) -> String {
    if block.is_interrupted() {
        return "interrupted".to_owned();
    }
    let Some(record) = &block.record else { return "no record".to_owned() };
    if let Some(page) = &record.page {
        let each = page.wall_ns as f64 / 1e3 / record.counts.envelopes().max(1) as f64;
        return format!("{each:.2} µs an event, {}", record.validity.class);
    }
    let latency = latency_of([record]).0;
    let merged = Merged::from_records([record]);
    let rate = Metric::EnvelopesPerSecond.value(&merged, latency).unwrap_or(0.0);
    let p99 = merged.quantile(latency, 0.99).ns().map_or_else(|| "–".to_owned(), milliseconds);
    // `run` notes the reasons.
    format!("{rate:.0}/s, p99 {p99}, {}", record.validity.class)
}

pub(crate) fn milliseconds(ns: u64) -> String {
    format!("{:.2} ms", ns as f64 / 1e6)
}

fn minutes(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 { format!("{seconds} s") } else { format!("{} min {:02} s", seconds / 60, seconds % 60) }
}
