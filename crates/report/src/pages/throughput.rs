//! The first table of a run at the limit: what a core of the relay sends, what that is in bytes,
//! and what a core of the clients reads, by format and compression.
//!
//! Each figure is a quotient of sums over blocks, so envelopes = figure × core-seconds. Each ratio
//! is the quotient of two figures, so ratios of a row divide. Its interval is by the scatter of all
//! blocks of the table, which a few rounds of one cell do not show.

use std::collections::BTreeMap;

use measure::{NOT_SATURATED, RunRecord};

use crate::{
    number::{self, Ratio},
    pages::part::Part,
    reference::{BASE_COMPRESSION, BASE_FORMAT},
    result::{Block, CellResult, Role},
    statistics::stats,
    tables::table::{Table, distinct, or_nothing},
    view::{CellView, LoadView},
};

/// A figure of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    Sends,
    Bytes,
    Reads,
}

impl Quantity {
    pub(crate) const ALL: [Quantity; 3] = [Quantity::Sends, Quantity::Bytes, Quantity::Reads];

    /// The side that a load saturates for it.
    fn side(self) -> &'static str {
        match self {
            Quantity::Sends | Quantity::Bytes => "relay",
            Quantity::Reads => "clients",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Quantity::Sends => "envelopes/s that one relay core sends",
            Quantity::Bytes => "bytes per envelope",
            Quantity::Reads => "envelopes/s that one client core reads",
        }
    }

    /// The record of a block, if it may say something about this quantity.
    fn record(self, block: &Block) -> Option<&RunRecord> {
        if self == Quantity::Bytes { block.counted() } else { block.usable() }
    }

    /// What a block adds to both sums.
    fn sums(self, record: &RunRecord) -> Option<Sums> {
        let envelopes = record.counts.envelopes() as f64;
        let [over, under] = match self {
            Quantity::Sends => [envelopes, record.relay_cpu?.total_ns as f64 / 1e9],
            Quantity::Bytes => [record.traffic.wire_bytes() as f64, envelopes],
            // Light readers do less than clients do.
            Quantity::Reads if record.counts.deliveries_unread > 0 => return None,
            Quantity::Reads => [envelopes, record.client_cpu.total_ns as f64 / 1e9],
        };
        Some(Sums { over, under })
    }

    /// Whether a block measured the limit that this quantity is of; bytes are of none.
    fn is_full(self, record: &RunRecord) -> bool {
        self == Quantity::Bytes || record.saturated.as_ref().is_some_and(|found| found.is_throughput())
    }

    pub(crate) fn shown(self, value: f64) -> String {
        if self == Quantity::Bytes { number::three(value) } else { number::scaled(value) }
    }
}

/// What is divided, and what divides it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sums {
    pub(crate) over: f64,
    pub(crate) under: f64,
}

impl Sums {
    fn add(self, other: Sums) -> Sums {
        Sums { over: self.over + other.over, under: self.under + other.under }
    }

    fn quotient(self) -> Option<f64> {
        Some(self.over / self.under).filter(|value| value.is_finite() && *value > 0.0)
    }
}

/// A cell's sums of one quantity, a block each, with its round.
#[derive(Debug, Clone, Default, PartialEq)]
struct Measured {
    blocks: Vec<(u32, Sums)>,
    /// Blocks in which the side asked for was full.
    full: usize,
}

impl Measured {
    fn new(view: &CellView<'_>, quantity: Quantity) -> Measured {
        let mut measured = Measured::default();
        for block in &view.cell.blocks {
            let Some(record) = quantity.record(block) else { continue };
            let Some(sums) = quantity.sums(record) else { continue };
            measured.blocks.push((block.round, sums));
            measured.full += usize::from(quantity.is_full(record));
        }
        measured
    }

    fn sums(&self) -> Sums {
        self.blocks.iter().fold(Sums::default(), |sum, (_, one)| sum.add(*one))
    }

    /// In most blocks.
    fn is_full(&self) -> bool {
        self.full * 2 > self.blocks.len()
    }

    /// The logarithms of its blocks' quotients, less their mean, each with its round.
    fn deviations(&self) -> Vec<(u32, f64)> {
        let logs = self.blocks.iter().filter_map(|(round, sums)| Some((*round, sums.quotient()?.ln())));
        let logs: Vec<(u32, f64)> = logs.collect();
        let mean = logs.iter().map(|(_, log)| log).sum::<f64>() / logs.len() as f64;
        logs.into_iter().map(|(round, log)| (round, log - mean)).collect()
    }

    /// The quotient of two figures, with its 95 % interval.
    fn divided_by(&self, reference: &Measured, scatter: Option<Scatter>) -> Option<Ratio> {
        let value = self.sums().quotient()? / reference.sums().quotient()?;
        let reach = scatter.map(|scatter| scatter.reach(self.blocks.len(), reference.blocks.len()));
        Some(Ratio { value, interval: reach.map(|reach| (value * (-reach).exp(), value * reach.exp())) })
    }
}

/// How far blocks of one cell lie from each other, as a standard deviation of logarithms with its degrees
/// of freedom. A change that all cells of a round share is no scatter: it does not change ratios between
/// cells of the same rounds.
#[derive(Debug, Clone, Copy)]
struct Scatter {
    deviation: f64,
    freedom: f64,
}

impl Scatter {
    /// Scatter of the residuals of all cells; `None` with one round, which has no residuals.
    fn new(cells: &[Measured]) -> Option<Scatter> {
        let cells: Vec<_> = cells.iter().map(Measured::deviations).filter(|cell| !cell.is_empty()).collect();
        let mut rounds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for (round, deviation) in cells.iter().flatten() {
            rounds.entry(*round).or_default().push(*deviation);
        }
        let (blocks, cells) = (rounds.values().map(Vec::len).sum::<usize>(), cells.len());
        let freedom = (blocks + 1).checked_sub(cells + rounds.len()).filter(|freedom| *freedom > 0)? as f64;
        let squares = |round: &Vec<f64>| {
            let mean = round.iter().sum::<f64>() / round.len() as f64;
            round.iter().map(|one| (one - mean).powi(2)).sum::<f64>()
        };
        let squares: f64 = rounds.values().map(squares).sum();
        (rounds.len() > 1).then(|| Scatter { deviation: (squares / freedom).sqrt(), freedom })
    }

    /// Half the width of the 95 % interval of the logarithm of a ratio, by Student's t.
    fn reach(self, blocks: usize, reference: usize) -> f64 {
        let mean_of = (1.0 / blocks as f64 + 1.0 / reference as f64).sqrt();
        stats::t_quantile(self.freedom) * self.deviation * mean_of
    }
}

/// A field of the table.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The cell's id.
    id: String,
    /// The format, with other factors where these vary.
    row: String,
    compression: String,
    pub(crate) value: Option<f64>,
    ratio: Option<Ratio>,
    pub(crate) sums: Sums,
    /// Otherwise the side asked for was not full in most blocks, and the value is a lower bound.
    pub(crate) is_full: bool,
}

/// One quantity of all cells.
pub(crate) struct Grid {
    pub(crate) quantity: Quantity,
    /// In the order of cells.
    entries: Vec<Entry>,
    /// JSON against itself.
    control: Option<Ratio>,
}

impl Grid {
    /// The grid of a load that was played at the quantity's limit.
    pub(crate) fn at_limit(load: &LoadView<'_>, quantity: Quantity) -> Option<Grid> {
        if quantity.side() == load.saturates() { Grid::new(load, quantity) } else { None }
    }

    fn new(load: &LoadView<'_>, quantity: Quantity) -> Option<Grid> {
        let measured = |view: &CellView<'_>| Measured::new(view, quantity);
        // A bound has no ratio, and none is to it.
        let reference = load.anchor().map(measured).filter(Measured::is_full);
        let cells = || load.cells.iter().filter(|view| view.cell.role != Role::Floor);
        let scatter = Scatter::new(&cells().map(measured).collect::<Vec<_>>());
        let mut grid = Grid { quantity, entries: Vec::new(), control: None };
        for view in cells() {
            let measured = measured(view);
            let (sums, is_full) = (measured.sums(), measured.is_full());
            let ratio = (reference.as_ref())
                .filter(|_| is_full && view.cell.role != Role::Anchor)
                .and_then(|reference| measured.divided_by(reference, scatter));
            if view.cell.role == Role::Control {
                grid.control = ratio;
                continue;
            }
            let (row, compression) = (load.name_of(view.cell), view.cell.cell.compression.clone());
            let (id, value) = (view.cell.id.clone(), sums.quotient());
            grid.entries.push(Entry { id, row, compression, value, ratio, sums, is_full });
        }
        grid.entries.iter().any(|entry| entry.value.is_some()).then_some(grid)
    }

    fn at(&self, row: &str, compression: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| (&*entry.row, &*entry.compression) == (row, compression))
    }

    /// A cell's field.
    pub(crate) fn of_cell(&self, id: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.id == id)
    }

    /// A cell ÷ JSON without compression.
    pub(crate) fn ratio(&self, cell: &CellResult) -> Option<Ratio> {
        if cell.role == Role::Control { self.control } else { self.of_cell(&cell.id)?.ratio }
    }

    fn heading(&self) -> String {
        format!("{} (× JSON without compression, ± is its 95 % interval)", self.quantity.name())
    }

    fn shown(&self, entry: &Entry) -> Option<String> {
        let value = self.quantity.shown(entry.value?);
        Some(match entry.ratio {
            Some(ratio) => format!("{value} {}", ratio.with_reach()),
            None if entry.is_full => value,
            None => format!("≥{value}"),
        })
    }

    fn table(&self) -> Table {
        let columns = distinct(self.entries.iter().map(|entry| &*entry.compression));
        let rows = distinct(self.entries.iter().map(|entry| &*entry.row));
        let field =
            |row: &str, column: &str| or_nothing(self.at(row, column).and_then(|entry| self.shown(entry)));
        let line = |row: &&str| {
            let fields = columns.iter().map(|column| field(row, column));
            std::iter::once((*row).to_owned()).chain(fields).collect()
        };
        let headings = std::iter::once(&"format").chain(&columns).map(|name| (*name).to_owned());
        Table { names: 1, headings: headings.collect(), rows: rows.iter().map(line).collect() }
    }
}

/// The tables of one scenario.
pub(crate) struct Throughput {
    scenario: String,
    grids: Vec<Grid>,
}

/// The tables of the loads that were played at the limit: one for each scenario.
pub(crate) fn throughputs(loads: &[LoadView<'_>]) -> Vec<Throughput> {
    let mut found: Vec<Throughput> = Vec::new();
    for load in loads.iter().filter(|load| load.saturates() != NOT_SATURATED) {
        let grids = Quantity::ALL.into_iter().filter_map(|quantity| Grid::at_limit(load, quantity));
        let scenario = load.name_at_any_limit();
        match found.iter_mut().find(|one| one.scenario == scenario) {
            Some(one) => one.grids.extend(grids),
            None => found.push(Throughput { scenario, grids: grids.collect() }),
        }
    }
    found.iter_mut().for_each(|one| one.grids.sort_by_key(|grid| grid.quantity as usize));
    found.retain(|one| !one.grids.is_empty());
    found
}

impl Throughput {
    /// Tables, the closing sentence, and what the marks mean.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let mut parts = vec![Part::heading(2, self.scenario.clone())];
        for grid in &self.grids {
            parts.push(Part::heading(3, grid.heading()));
            parts.push(Part::table(grid.table()));
        }
        let notes = [self.bounds(), self.control(), closing(&self.grids)];
        parts.extend(notes.into_iter().flatten().map(Part::sentence));
        parts
    }

    /// What the mark of a bound means, where one stands.
    fn bounds(&self) -> Option<String> {
        let has_bound =
            |grid: &&Grid| grid.entries.iter().any(|entry| entry.value.is_some() && !entry.is_full);
        let sides: Vec<&str> = self.grids.iter().filter(has_bound).map(|grid| grid.quantity.side()).collect();
        (!sides.is_empty()).then(|| {
            format!(
                "≥ is a lower bound and no throughput: the {} had CPU time to spare in half of the blocks or more.",
                sides.join(" or the ")
            )
        })
    }

    fn control(&self) -> Option<String> {
        let of = |grid: &Grid| Some(format!("{} {}", grid.quantity.name(), grid.control?.with_reach()));
        let all: Vec<String> = self.grids.iter().filter_map(of).collect();
        (!all.is_empty())
            .then(|| format!("A/A control, JSON against itself: {}. Less is noise.", all.join(", ")))
    }
}

/// What the best format does without compression, and what each compression does to JSON.
pub(crate) fn closing(grids: &[Grid]) -> Option<String> {
    let of = |quantity: Quantity| grids.iter().find(|grid| grid.quantity == quantity);
    let sends = of(Quantity::Sends)?;
    let in_bytes = |entry: &Entry| {
        let ratio = of(Quantity::Bytes).and_then(|bytes| bytes.at(&entry.row, &entry.compression)?.ratio);
        ratio.map_or_else(String::new, |ratio| format!(", in {:.2} of the bytes", ratio.value))
    };
    let compared = || sends.entries.iter().filter_map(|entry| Some((entry, entry.ratio?)));
    let best = compared()
        .filter(|(entry, _)| entry.compression == BASE_COMPRESSION && entry.row != BASE_FORMAT)
        .max_by(|(_, one), (_, other)| one.value.total_cmp(&other.value));
    let mut sentences = Vec::new();
    if let Some((entry, ratio)) = best {
        let how_many = match ratio.differs(None) {
            true => format!("{:.2} times as many envelopes as JSON", ratio.value),
            false => format!("as many envelopes as JSON within noise ({:.2})", ratio.value),
        };
        sentences.push(format!("{} sends {how_many}{}", entry.row, in_bytes(entry)));
    }
    for (entry, ratio) in compared().filter(|(entry, _)| entry.row == BASE_FORMAT) {
        let of_them = if best.is_some() && sentences.len() == 1 { " as many as JSON alone" } else { "" };
        let (compression, share) = (&entry.compression, times(ratio.value));
        sentences.push(format!("JSON with {compression} {share}{of_them}{}", in_bytes(entry)));
    }
    (!sentences.is_empty()).then(|| format!("Per relay core, {}.", sentences.join("; ")))
}

/// The tables as CSV, with the sums behind each figure; `None` where no load was played at its limit.
pub(crate) fn csv(tables: &[Throughput]) -> Option<String> {
    const HEADINGS: &str =
        "scenario,quantity,format,compression,value,ratio,ratio_low,ratio_high,is_throughput,divided,by\n";
    let mut text = HEADINGS.to_owned();
    for (scenario, grid) in tables.iter().flat_map(|one| one.grids.iter().map(|grid| (&one.scenario, grid))) {
        for Entry { row, compression, value, ratio, sums, is_full, .. } in &grid.entries {
            let (low, high) = ratio.and_then(|ratio| ratio.interval).unzip();
            let numbers = [*value, ratio.map(|ratio| ratio.value), low, high];
            let numbers = numbers.map(|number| number.map_or_else(String::new, |number| number.to_string()));
            let names = [&**scenario, grid.quantity.name(), row, compression].map(quoted);
            let (names, numbers, Sums { over, under }) = (names.join(","), numbers.join(","), sums);
            text += &format!("{names},{numbers},{is_full},{over},{under}\n");
        }
    }
    (!tables.is_empty()).then_some(text)
}

pub(crate) fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// `0.90`, or `1/21` of what is far less.
fn times(ratio: f64) -> String {
    if ratio < 0.2 { format!("1/{:.0}", 1.0 / ratio) } else { format!("{ratio:.2}") }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn intervals_of_three_rounds_cover_the_ratio_as_often_as_they_state() {
        const TRIALS: u32 = 2_000;
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut normal = move || (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
        let covers = |_: &u32| {
            // Each round has a drift that all cells share; the reference has four blocks in each.
            let drifts: Vec<f64> = (0..3).map(|_| 0.2 * normal()).collect();
            let mut cell = |blocks: u32| Measured {
                blocks: (0..3 * blocks)
                    .map(|block| (block % 3, drifts[block as usize % 3] + 0.2 * normal()))
                    .map(|(round, log)| (round, Sums { over: log.exp(), under: 1.0 }))
                    .collect(),
                full: 0,
            };
            let cells: Vec<Measured> = [4, 1, 1, 1, 1, 1, 1, 1].map(&mut cell).into();
            let ratio = cells[1].divided_by(&cells[0], Scatter::new(&cells)).unwrap();
            !ratio.differs(None)
        };
        let coverage = (0..TRIALS).filter(covers).count() as f64 / f64::from(TRIALS);
        assert!((coverage - 0.95).abs() < 0.02, "{coverage}");
        assert!(Scatter::new(&[]).is_none());
    }
}
