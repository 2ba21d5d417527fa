//! Progress on stderr: a live line on a terminal, elsewhere a line for each block.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
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
    blocks: usize,
    finished: usize,
    invalid: usize,
    started: Instant,
    first_guess: Duration,
    /// On a terminal.
    bar: Option<ProgressBar>,
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
        let bar = (!quiet && program::rewrites_lines(&io::stderr())).then(|| {
            let style = ProgressStyle::with_template("{bar:16} {pos}/{len} {wide_msg}")
                .expect("the template is a constant that was tried");
            // At most two redraws a second keep the cores free.
            let target = ProgressDrawTarget::stderr_with_hz(2);
            ProgressBar::with_draw_target(Some(blocks as u64), target).with_style(style)
        });
        Progress {
            blocks,
            finished: 0,
            invalid: 0,
            started: Instant::now(),
            first_guess: block_guess,
            bar,
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
        self.blocks += blocks;
        if let Some(bar) = &self.bar {
            bar.inc_length(blocks as u64);
        }
        self.say(&format!(
            "times of some blocks are invalid: a further round, the {further}. of at most {most}"
        ));
    }

    /// Whether reports of single seconds are wanted.
    pub fn is_live(&self) -> bool {
        self.bar.is_some() || self.metrics.is_some()
    }

    /// Shows the block that starts.
    pub fn block(&mut self, round: usize, rounds: usize, cell: &str) {
        if self.finished == 0 && self.bar.is_none() && !self.quiet {
            self.note(&format!("{} blocks, about {}", self.blocks, minutes(self.left())));
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

    /// Shows how a block goes on at all its agents.
    pub(crate) fn agents(&self, line: &str) {
        self.draw(line);
    }

    /// Counts a block and shows its outcome.
    pub fn finish_block(&mut self, block: &Block) {
        if let Some(metrics) = &self.metrics {
            metrics.ended(block);
        }
        self.finished += 1;
        self.last = outcome(block);
        self.invalid += usize::from(block.usable().is_none());
        if let Some(bar) = &self.bar {
            bar.inc(1);
        } else if !self.quiet {
            let (left, of) = (minutes(self.left()), self.blocks);
            self.note(&format!("block {}/{of}, {}: {}; {left} left", self.finished, self.now, self.last));
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
        let write = || drop(writeln!(io::stderr(), "{text}"));
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Leaves the terminal on a fresh line.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn draw(&self, second: &str) {
        let Some(bar) = &self.bar else { return };
        let last = if self.last.is_empty() { String::new() } else { format!(" | before: {}", self.last) };
        let invalid =
            if self.invalid == 0 { String::new() } else { format!(" | {} unusable so far", self.invalid) };
        bar.set_message(format!("{} left, {}{second}{invalid}{last}", minutes(self.left()), self.now));
    }

    fn left(&self) -> Duration {
        time_left(self.blocks, self.finished, self.started.elapsed(), self.first_guess)
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

fn time_left(blocks: usize, finished: usize, elapsed: Duration, guess: Duration) -> Duration {
    let left = u32::try_from(blocks - finished).unwrap_or(u32::MAX);
    match u32::try_from(finished) {
        Ok(finished @ 1..) => elapsed / finished * left,
        _ => guess * left,
    }
}

fn minutes(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 { format!("{seconds} s") } else { format!("{} min {:02} s", seconds / 60, seconds % 60) }
}
