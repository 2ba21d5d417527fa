//! `compare browser`: pages play rounds, and a result folder is written.

use std::{ffi::OsString, time::SystemTime};

use anyhow::{Context, Result};
use measure::{Exit, utc};
use program::command_line;

use super::{folder::Folder, run};
use crate::{
    args::BrowserFlags,
    assemble,
    browser::{Pages, Part, Rows, find},
    git,
    matrix::CellSpec,
    rounds::Rounds,
    usage::{note, refuse},
};
use report::result::Config;

/// Measures and writes a result folder.
pub(super) fn measure(flags: &BrowserFlags, args: &[OsString]) -> Result<Exit> {
    let only = "over --link only the part end-to-end is measured: the others have no transfer to wait for";
    refuse((flags.link.is_some() && flags.parts() != [Part::EndToEnd]).then_some(only))?;
    let rows = Rows::read(flags.page.as_deref())?;
    let chromium = find(flags.chromium.as_deref())?;
    let formats = rows.formats(&flags.formats)?;
    let cells = rows.cells(flags, &formats)?;
    Folder::try_out(&flags.out)?;
    let (began, git) = (SystemTime::now(), git::current());
    let (pages, browser, foreign) =
        Pages::start((flags, command_line(args)), chromium, (&rows, &formats), &cells)?;
    let decoders = rows.decoders(&formats).count();
    note(flags.quiet, &format!("{decoders} decoders read every event as JSON.parse does"));
    let cells: Vec<CellSpec> = cells.iter().map(|cell| cell.spec.clone()).collect();
    let config = Config {
        scenarios: flags.parts().iter().map(|part| part.name().to_owned()).collect(),
        profile: "browser".to_owned(),
        rounds: flags.rounds,
        seconds: flags.step_ms.div_ceil(1_000),
        seed: flags.seed,
        corpus: flags.send.corpus.clone(),
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
    let measured = rounds.play(header, None, None)?;
    folder.ensure_measured(&measured)?;
    let derived = folder.publish(&measured.result, false, |_| Ok(()))?;
    Ok(run::exit_code(&measured, &derived))
}
