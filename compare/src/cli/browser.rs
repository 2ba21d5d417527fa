//! `compare browser`: pages are measured in rounds, and a result folder is written.

use std::{ffi::OsString, time::SystemTime};

use anyhow::Result;
use codecs::Format;
use measure::{Environment, Exit, utc};
use program::{command_line, report as say};

use super::{folder::Folder, stopped_code};
use crate::{
    args::BrowserFlags,
    browser::{self, BrowserError, Client, Found, Question, Rows, Selection},
    git,
};
use report::result::{Header, Part, ResultFile};

/// Measures and writes a result folder.
pub(super) fn measure(flags: &BrowserFlags, args: &[OsString]) -> Result<Exit> {
    if flags.link.is_some() && flags.parts() != [Part::EndToEnd] {
        say(
            "error: over --link only the part end-to-end is measured: the others have no transfer to wait for",
        );
        return Ok(Exit::Usage);
    }
    let rows = Rows::read(flags.page.as_deref());
    let program = browser::find(flags.chromium.as_deref());
    let client = match flags.serve {
        Some(address) => Ok(Client::Device(address)),
        None => program.as_deref().map(Client::Browser),
    };
    let (rows, client) = match (&rows, client) {
        (Ok(rows), Ok(client)) => (rows, client),
        (Err(error), _) | (_, Err(error)) => {
            say(&format!("error: {error}"));
            return Ok(Exit::Usage);
        }
    };
    let formats = formats(&flags.formats, rows);
    let config = flags.config(formats);
    let asked = Selection {
        parts: &config.parts,
        formats: &config.formats,
        sets: &flags.sets(),
        compressions: &flags.compressions(),
        batchings: &flags.batchings(),
    };
    let cells = match rows.cells(&asked) {
        Ok(cells) => cells,
        Err(reason) => {
            say(&format!("error: {reason}"));
            return Ok(Exit::Usage);
        }
    };
    Folder::try_out(&flags.out)?;
    let started = SystemTime::now();
    let (git, host) = (git::current(), Environment::collect());
    let (link, quiet) = (flags.link.as_ref(), flags.quiet);
    let question = Question { client, rows, config: &config, link, cells, quiet };
    let folder = Folder::new(&flags.out, format!("{}-browser-{}", utc::compact(started), config.seed));
    let result_of = |found: Found| {
        let id = |place: &usize| found.browser.cells[*place].id.clone();
        let schedule = found.plan.rounds.iter().map(|round| round.iter().map(id).collect()).collect();
        let header = Header {
            command: command_line(args),
            git: git.clone(),
            host: host.clone(),
            started_utc: utc::format(started),
            status: found.status,
            config: config.as_run(),
            selftest: None,
        };
        ResultFile::of_browser(header, found.browser, schedule, found.corpus)
    };
    let keep = |so_far: Found| folder.keep(&result_of(so_far));
    let found = match browser::run_until_signal(question, &keep) {
        Err(error)
            if matches!(
                error.downcast_ref(),
                Some(BrowserError::Differs { .. } | BrowserError::Received { .. })
            ) =>
        {
            say(&format!("error: {error}; nothing was measured"));
            return Ok(Exit::Unbalanced);
        }
        found => found?,
    };
    let blocks = || found.browser.cells.iter().flat_map(|cell| &cell.blocks);
    if blocks().next().is_none() {
        say("error: nothing was measured, so no result was written");
        if let Some(reason) = found.status.reason() {
            say(reason);
        }
        return Ok(stopped_code(found.stopped).unwrap_or(Exit::Error));
    }
    let usable = found.browser.cells.iter().all(|cell| cell.blocks.iter().any(|block| block.why.is_empty()));
    let (stopped, status) = (found.stopped, found.status.clone());
    folder.publish(&mut result_of(found), false, |_, _| Ok(()))?;
    Ok(match (stopped_code(stopped), status.reason()) {
        (Some(exit), _) => exit,
        (None, Some(reason)) => {
            say(&format!("error: {reason}"));
            Exit::Error
        }
        (None, None) if !usable => Exit::Invalid,
        (None, None) => Exit::Success,
    })
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
