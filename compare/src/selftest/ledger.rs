//! The ledger's own test: what a relay spoils must be counted, each delivery as what became of it.

use std::fmt;

use anyhow::{Context, Result};
use codecs::{Format, Implementation};
use measure::{Counts, Exit, Planted};
use wire::Compression;

use super::{
    bench::{Bench, Run, Running},
    finding::Finding,
};

const SCENARIO: &str = include_str!("ledger.toml");

/// Deliveries spoiled in each of the five ways.
const RATE: &str = "3%";

/// Faults of the relay's deliveries, all at once.
const FAULTS: [&str; 5] = ["lose", "double", "alter", "invent", "misroute"];

/// Clients that run at a time.
const AT_ONCE: usize = 2;

/// Batches, clients that keep bytes, and a gateway, each tried alone.
const BATCHES: &str = "--batching=on";
const KEEPS_BYTES: &str = "--client-keeps=bytes";
const VIA_GATEWAY: &str = "--via=gateway";

/// A combination that is tried.
struct Cell {
    format: Format,
    compression: &'static str,
    /// A further flag of the client.
    flag: Option<&'static str>,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.format, self.compression)?;
        self.flag.map_or(Ok(()), |flag| write!(f, " {flag}"))
    }
}

impl Bench<'_> {
    /// The relay loses, doubles, alters, invents and misroutes deliveries and counts what it did. The
    /// ledger must find each one and nothing else: in every format and compression, in events and
    /// batches, with clients that keep bytes, and with a gateway, which then passes on the faults. A
    /// ledger that balances fails.
    pub(super) fn ledger(&mut self) -> Result<Finding> {
        let cells = self.ledger_cells();
        let mut sum = Planted::default();
        let mut wrong = Vec::new();
        // Runs mostly wait, and counts do not depend on time.
        for (first, together) in (0..).step_by(AT_ONCE).zip(cells.chunks(AT_ONCE)) {
            let start = |(seed, cell)| self.start_cell(cell, seed);
            let started = (first..).zip(together).map(start).collect::<Result<Vec<Running>>>()?;
            for (cell, running) in together.iter().zip(started) {
                let run = running.finish()?;
                let planted = run.record.relay.as_ref().and_then(|relay| relay.planted);
                let planted =
                    planted.with_context(|| format!("{cell}: the relay did not say what it spoiled"))?;
                wrong.extend(difference(&run, &planted).map(|difference| format!("{cell}: {difference}")));
                sum = sum + planted;
            }
        }
        let Planted { lost, doubled, altered, invented, misrouted } = sum;
        let each = [lost, doubled, altered, invented, misrouted];
        Ok(Finding {
            done: format!(
                "the relay loses, doubles, alters, invents and misroutes {RATE} of deliveries each, in {} combinations \
                 of format, compression, batching, what clients keep and the gateway before it",
                cells.len()
            ),
            limit: format!(
                "each found: {lost} lost, {doubled} doubled, {altered} altered, {invented} invented, {misrouted} \
                 misrouted; exit code {} each time",
                Exit::Unbalanced.code()
            ),
            measured: match wrong.first() {
                None => "each found, and nothing else".to_owned(),
                Some(first) => format!("{} combinations are wrong; {first}", wrong.len()),
            },
            values: vec![("planted", each.iter().sum::<u64>() as f64), ("wrong", wrong.len() as f64)],
            passed: wrong.is_empty() && each.iter().all(|planted| *planted > 0),
            untested: None,
        })
    }

    fn start_cell(&mut self, cell: &Cell, seed: usize) -> Result<Running> {
        let faults: Vec<String> = FAULTS.iter().map(|fault| format!("{fault}={RATE}:seed={seed}")).collect();
        let mut flags = vec!["--format", cell.format.name(), "--compression", cell.compression];
        flags.extend(["--verify", "none", "--drain-seconds", "1"]);
        flags.extend(cell.flag);
        if cell.flag == Some(KEEPS_BYTES) && cell.format.codec(Implementation::Tuned).is_ok() {
            flags.push("--implementation=tuned"); // a library makes the text first
        }
        faults.iter().for_each(|fault| flags.extend(["--relay-fault", fault]));
        self.play("ledger", SCENARIO, &flags)
    }

    /// The combinations that are tried: all, or in the short form each format and each compression
    /// once.
    fn ledger_cells(&self) -> Vec<Cell> {
        let compressions = Compression::NAMES;
        let cell = |format, compression, flag| Cell { format, compression, flag };
        let mut cells = Vec::new();
        for format in Format::all() {
            for compression in compressions {
                let once = format == Format::JSON || compression == compressions[0];
                if once || !self.options.quick {
                    cells.push(cell(format, compression, None));
                }
            }
            if format == Format::JSON || !self.options.quick {
                cells.extend([BATCHES, KEEPS_BYTES].map(|flag| cell(format, compressions[0], Some(flag))));
            }
        }
        // Through the gateway each format and each compression once.
        let pairs = Format::all().zip(compressions.into_iter().cycle());
        cells.extend(pairs.map(|(format, name)| cell(format, name, Some(VIA_GATEWAY))));
        cells
    }
}

/// The difference between ledger and relay; `None` when they agree to the count.
fn difference(run: &Run, planted: &Planted) -> Option<String> {
    let Counts { deliveries_lost, deliveries_unexpected, answers_unexpected, decode_errors, .. } =
        run.record.counts;
    let found = Planted {
        // An altered or misrouted delivery never came as it should have.
        lost: deliveries_lost.saturating_sub(planted.altered + planted.misrouted),
        doubled: run.record.counts.deliveries_duplicated,
        altered: run.record.counts.deliveries_altered,
        invented: run.record.counts.deliveries_invented,
        misrouted: run.record.counts.deliveries_misrouted,
    };
    let strays = deliveries_unexpected + answers_unexpected + decode_errors;
    if found == *planted && strays == 0 && Exit::Unbalanced.is(run.exit_code) {
        return None;
    }
    let code = run.exit_code.unwrap_or(-1);
    Some(format!("{found:?} found of {planted:?} planted, {strays} strays, exit code {code}"))
}
