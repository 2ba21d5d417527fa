//! `compare browser`: pages play rounds, and a result folder is written.

use std::{ffi::OsString, time::SystemTime};

use anyhow::{Context, Result};
use codecs::Format;
use measure::{Exit, Status, utc};
use program::command_line;

use super::{folder::Folder, run, stopped_code};
use crate::{
    args::BrowserFlags,
    assemble::{self, assemble},
    browser::{Client, Pages, Part, Question, Rows, Selection, find},
    git,
    matrix::CellSpec,
    rounds::{Measured, Rounds},
    usage::{Ended, NOTHING_MEASURED, note, refuse},
};
use report::result::{Config, Header};

/// Measures and writes a result folder.
pub(super) fn measure(flags: &BrowserFlags, args: &[OsString]) -> Result<Exit> {
    let parts = flags.parts();
    let only = "over --link only the part end-to-end is measured: the others have no transfer to wait for";
    refuse((flags.link.is_some() && parts != [Part::EndToEnd]).then_some(only))?;
    let rows = Rows::read(flags.page.as_deref())?;
    let client = match flags.serve {
        Some(address) => Client::Device(address),
        None => Client::Browser(find(flags.chromium.as_deref())?),
    };
    let formats = formats(&flags.formats, &rows);
    let mut cells = rows.cells(&Selection {
        parts: &parts,
        formats: &formats,
        sets: &flags.sets(),
        compressions: &flags.compressions(),
        batchings: &flags.batchings(),
        link: flags.link.as_ref(),
    })?;
    Folder::try_out(&flags.out)?;
    let (began, git) = (SystemTime::now(), git::current());
    let question = Question {
        client,
        rows: &rows,
        formats: &formats,
        corpus: flags.corpus.as_deref(),
        skip_invalid: flags.skip_invalid,
        link: flags.link.as_ref(),
        step_ms: flags.step_ms,
        seed: flags.seed,
        command: command_line(args),
    };
    let (pages, browser, foreign) = Pages::start(question, &mut cells)?;
    let decoders = rows.decoders(&formats).len();
    note(flags.quiet, &format!("{decoders} decoders read every event as JSON.parse does"));
    foreign.declined.iter().for_each(|left_out| note(flags.quiet, left_out));
    let cells: Vec<CellSpec> = cells.into_iter().map(|cell| cell.spec).collect();
    let config = Config {
        scenarios: parts.iter().map(|part| part.name().to_owned()).collect(),
        profile: "browser".to_owned(),
        rounds: flags.rounds,
        seconds: flags.step_ms.div_ceil(1_000),
        seed: flags.seed,
        corpus: flags.corpus.clone(),
        foreign: Some(foreign),
        browser: Some(browser),
        ..Config::default()
    };
    let header = assemble::header(args, git, began, config);
    let folder = Folder::new(&flags.out, format!("{}-browser-{}", utc::compact(began), flags.seed));
    let running = tempfile::TempDir::with_prefix("compare-").context("cannot make a folder for records")?;
    let rounds = Rounds {
        generator: &pages,
        cells: &cells,
        running: running.path(),
        folder: folder.made()?,
        quiet: flags.quiet,
        metrics: None,
    };
    let Measured { config, plan, outcome } = rounds.play(header.clone(), None, None)?;
    pages.end(match outcome.status {
        Status::Complete => "Done: compare has the result.",
        Status::Interrupted => "Interrupted: compare keeps what was measured.",
        Status::Incomplete { .. } => "The run failed: compare says why.",
    });
    if outcome.blocks.iter().all(|(_, block)| block.record.is_none()) {
        // A folder with other files stays.
        let _ = folder.abandon();
        let exit = stopped_code(outcome.stopped).unwrap_or(Exit::Error);
        return Err(Ended { exit, reason: NOTHING_MEASURED.to_owned() }.into());
    }
    let header = Header { status: outcome.status, config, ..header };
    let mut result = assemble(header, &cells, &plan, outcome.blocks);
    let derived = folder.publish(&mut result, false, |_, _| Ok(()))?;
    Ok(run::exit_code(&result, &derived, outcome.stopped))
}

/// The formats behind names and groups, in the order of every table.
fn formats(wanted: &[String], rows: &Rows) -> Vec<String> {
    let readable = rows.formats();
    let mut formats: Vec<String> = Vec::new();
    for name in wanted {
        match name.as_str() {
            "all" => formats.extend(readable.iter().map(|format| (*format).to_owned())),
            "core" => formats.extend(Format::core().map(|format| format.name().to_owned())),
            _ => formats.push(name.clone()),
        }
    }
    let place = |format: &String| readable.iter().position(|name| name == format);
    formats.sort_by_key(|format| place(format).unwrap_or(usize::MAX));
    formats.dedup();
    formats
}
