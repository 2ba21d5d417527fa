//! Provenance of a result: command, events, machine, build, and the instrument's own tests.

use cell::Factor;
use measure::{Environment, Tool};

use crate::{
    merged::Merged,
    number,
    result::{Axis, Block, CellResult, Config, Git, Oracle, ResultFile},
    tables::{
        browser,
        table::{Table, distinct},
    },
    utilisation::Utilisation,
    verdicts::likeness,
};

/// The command as one would type it again.
pub(crate) fn command(result: &ResultFile) -> String {
    quoted(&result.command)
}

/// The commands that measure it again, from a checkout.
pub(crate) fn reproduce(result: &ResultFile) -> String {
    format!(
        "git checkout {}\ncargo run --release -p {} -- {}",
        result.git.as_ref().map_or("COMMIT", |git| git.commit.as_str()),
        result.command.first().map_or("compare", |program| program.rsplit('/').next().unwrap_or(program)),
        arguments(result)
    )
}

/// The command's arguments, without the program's name.
pub(crate) fn arguments(result: &ResultFile) -> String {
    quoted(result.command.get(1..).unwrap_or_default())
}

fn quoted(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,=:+".contains(c);
    let quoted = |word: &String| {
        let simple = !word.is_empty() && word.chars().all(plain);
        if simple { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// The values that each factor has in this result.
pub(crate) fn factors(result: &ResultFile) -> String {
    let values = |factor: Factor| {
        let recorded = result.cells.iter().filter_map(|cell| (factor.row().recorded)(&cell.cell));
        let values = distinct(recorded.filter(|value| !value.is_empty())).join(", ");
        (!values.is_empty()).then(|| format!("{} {values}", factor.row().heading()))
    };
    format!("Cells: {}", Factor::ALL.into_iter().filter_map(values).collect::<Vec<_>>().join("; "))
}

/// The events.
pub(crate) fn corpus(result: &ResultFile) -> Vec<String> {
    let Some(corpus) = &result.corpus else {
        return vec!["Corpus: no run got far enough to state it".to_owned()];
    };
    let skipped = match corpus.invalid_skipped {
        0 => String::new(),
        skipped => format!("{skipped} invalid skipped, "),
    };
    let mut items = vec![format!(
        "Corpus: {}, {} events, {skipped}{}, fingerprint {}",
        corpus.name,
        number::grouped(&corpus.events.to_string()),
        corpus.origin,
        corpus.sha256
    )];
    if corpus.origin == "real" {
        items.push(
            "Real events are not published with results. data/README.md names public ones, `corpus capture` collects \
             them from relays, `corpus sample` draws from either"
                .to_owned(),
        );
    }
    items
}

/// What was measured, as list items.
pub(crate) fn provenance(result: &ResultFile) -> Vec<String> {
    let mut items = corpus(result);
    items.extend(result.provenance.as_ref().map(|provenance| format!("Measured by {provenance}")));
    if let Some(foreign) = &result.config.foreign {
        let refused = foreign.refused_events.iter();
        items.extend(
            refused.map(|(reason, events)| format!("Set aside for all cells: {events} events: {reason}")),
        );
        items.extend(foreign.declined.iter().cloned());
    }
    if let Some(search) = &result.search {
        let Config { seed, seconds, client_args, .. } = &result.config;
        items.push(match search.config.axis() {
            Axis::Bandwidth => format!("Seed: {seed}. Arguments of every client: {}", client_args.join(" ")),
            Axis::Load | Axis::Rate => {
                format!(
                    "Seed: {seed}. Probes of {seconds} s, precision {:.0} %",
                    search.config.precision * 100.0
                )
            }
        });
    } else if let Some(found) = &result.config.browser {
        items.push(format!("Seed: {}. Browser: {}", result.config.seed, browser::conditions(found)));
    } else {
        let Config { seed, profile, rounds, seconds, .. } = &result.config;
        items.push(factors(result));
        items.push(format!("Seed: {seed}. Profile: {profile}, {} of {seconds} s", number::rounds(*rounds)));
    }
    for chosen in &result.config.chosen {
        let cell = result.cells.iter().find(|cell| cell.id == chosen.cell);
        let blocks = cell.into_iter().flat_map(|cell| cell.blocks.iter().filter_map(Block::usable));
        let reached = Utilisation::of_whole_time(&Merged::of_counts(blocks)).relay;
        items.push(format!("Chosen by a pilot: {}", chosen.line(reached)));
    }
    let planned = result.config.planned_rounds.iter();
    items.extend(planned.map(|planned| format!("Rounds planned with `--precision`: {planned}")));
    for cell in likeness::compressions(result.cells.iter()) {
        let (name, parameters) = (&cell.cell.compression, &cell.cell.compression_parameters);
        items.push(format!("Compression {name}: {parameters}{}", compressors(cell)));
    }
    let commit = result.git.as_ref().map_or_else(|| "not in a checkout of it".to_owned(), Git::to_string);
    items.push(format!("Machine: {}", machine(&result.host)));
    items.push(made_by(&result.tool, &format!(", {commit}"), &result.host, &result.started_utc));
    items
}

/// The machine.
pub(crate) fn machine(host: &Environment) -> String {
    let unknown = || "unknown".to_owned();
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
    format!(
        "{}, {}, governor {}, {}{}, {}, kernel {}",
        host.cpu.clone().unwrap_or_else(unknown),
        host.cores_text(),
        host.governor.clone().unwrap_or_else(unknown),
        host.memory_bytes.map_or_else(unknown, gib),
        if host.virtual_machine == Some(true) { ", virtual" } else { "" },
        host.os.clone().unwrap_or_else(unknown),
        host.kernel.clone().unwrap_or_else(unknown),
    )
}

/// The build; `source` is the tree that it is of, where that is known.
pub(crate) fn made_by(tool: &Tool, source: &str, host: &Environment, started_utc: &str) -> String {
    let rustc = host.rustc.as_deref().unwrap_or("unknown");
    format!("Made by {} {}{source}, {rustc}, started {started_utc}", tool.name, tool.version)
}

/// Memory of the compression's states, as the cell's last run counted it.
fn compressors(cell: &CellResult) -> String {
    let last = cell.blocks.iter().rev().find_map(|block| block.record.as_ref()?.compression_memory);
    last.map_or_else(String::new, |memory| format!("; its states take {memory}"))
}

/// The instrument's own tests in a sentence.
pub(crate) fn tested(result: &ResultFile) -> String {
    match &result.selftest {
        None => {
            "Not tested for this result: `compare selftest --out FILE`, then `--selftest FILE`.".to_owned()
        }
        Some(test) => {
            let passed = match test.oracles.len() - test.failed().len() {
                passed if passed < test.oracles.len() => passed.to_string(),
                _ => "all".to_owned(),
            };
            let left_out = match test.left_out().join(", ") {
                names if names.is_empty() => names,
                names => format!(" Left out: {names}."),
            };
            let commit = test.git.as_ref().and_then(|git| git.commit.get(..8)).unwrap_or("unknown");
            let untested = test.untested.as_ref().map(|why| format!(" Not tested: {why}"));
            format!(
                "{} of {} run, {passed} passed ({}, commit {commit}, {}).{left_out}{}",
                test.oracles.len(),
                test.in_all(),
                if test.quick { "the short form" } else { "the long form" },
                test.started_utc,
                untested.unwrap_or_default()
            )
        }
    }
}

/// Each test with its disturbance, the expected effect and the measured one.
pub(crate) fn selftest_table(result: &ResultFile) -> Option<Table> {
    let test = result.selftest.as_ref()?;
    let headings = ["test", "what was done", "what had to be seen", "what was seen", "verdict"];
    let row = |oracle: &Oracle| {
        let verdict = if oracle.passed { "passed" } else { "**failed**" };
        let fields = [oracle.name.as_str(), &oracle.done, &oracle.limit, &oracle.measured, verdict];
        fields.map(str::to_owned).to_vec()
    };
    Some(Table { rows: test.oracles.iter().map(row).collect(), ..Table::new(headings.len(), &headings) })
}
