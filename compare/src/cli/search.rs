//! `compare search`: finds roots, reports each probe, and writes a result folder.

use std::{ffi::OsString, time::SystemTime};

use anyhow::{Context, Result};
use measure::{Exit, Status, utc};

use super::{folder::Folder, links, rates};
use crate::{
    args::{By, SearchFlags},
    assemble, git,
    grants::asked,
    matrix::{CellSpec, cells},
    search::{Found, link, search},
    this_machine::ThisMachine,
    usage::{Ended, NOTHING_MEASURED, refuse},
};
use program::UsageError;
use report::{
    bracket::Limit,
    result::{AtLoad1, Axis, Config, FLOOR, Probe, RelayCommand, Role, SearchConfig},
};

/// Searches what the flags ask for.
pub(super) fn find(flags: &SearchFlags, args: &[OsString]) -> Result<Exit> {
    refuse(flags.refusal())?;
    flags.play.check("search")?;
    let (url, relay) = (&flags.play.url, &flags.play.relay);
    let mut cells = cells(&flags.matrix().map_err(UsageError)?)?;
    // Beside external relays there is a floor only if it is named, and it takes no user's time.
    let is_own = url.is_none() && relay.is_empty() && flags.by != By::Bandwidth;
    let has_floor = is_own || relay.iter().any(RelayCommand::is_floor);
    cells.retain(|cell| cell.role != Role::Control && (has_floor || cell.role != Role::Floor));
    let mut config = flags.config();
    let question = flags.question(at_load_1(flags, &config, &cells)?);
    refuse(links::needs_own_relay(&config).map_err(UsageError)?)?;
    if question.axis() == Axis::Bandwidth {
        size_links(&config, &question, &mut cells)?;
    }
    let started = SystemTime::now();
    let program = measure::own_program().context("cannot find this program's own file")?;
    let running = tempfile::TempDir::with_prefix("compare-").context("cannot make a folder for records")?;
    let (answers, foreign) = asked(&flags.play, &mut config.relays, &mut cells)?;
    let config = Config { foreign, ..config };
    let machine = ThisMachine::new(&program, &config, answers)?;
    let header = assemble::header(args, git::current(), started, config.clone());
    let folder = Folder::new(&flags.play.out, format!("{}-search-{}", utc::compact(started), config.seed));
    let mut tell = |found: &Found, cell: &str, probe: &Probe| {
        program::report(&format!("{cell}: {}", probe.line(question.axis())));
        folder.keep(&found.result(header.clone(), Status::Complete));
    };
    let searched = search(&cells, (&config, &question), (&machine, running.path()), &mut tell);
    let found = searched.inspect_err(|_| folder.tell_left())?;
    if found.search.cells.iter().all(|cell| cell.probes.is_empty()) {
        return Err(Ended { exit: Exit::Interrupted, reason: NOTHING_MEASURED.to_owned() }.into());
    }
    let status = if found.finished { Status::Complete } else { Status::Interrupted };
    let result = found.result(header, status);
    let derived = folder.publish(&result, false, |_| Ok(()))?;
    // The floor is no format.
    let is_answer = |limit: &Limit| limit.cell == FLOOR || limit.is_answer(question.axis());
    Ok(match () {
        () if !found.finished => Exit::Interrupted,
        () if !derived.limits.iter().all(is_answer) => Exit::Invalid,
        () => Exit::Success,
    })
}

/// Refuses a break-even of fewer than two cells, and links that this host cannot emulate. Notes in
/// each cell how long a block lasts over the slowest link.
fn size_links(config: &Config, question: &SearchConfig, cells: &mut [CellSpec]) -> Result<()> {
    refuse((cells.len() < 2).then_some(
        "a break-even is of two cells; give --format or --compression more, as in --format json,dannypack",
    ))?;
    let Some(links) = &question.links else { return Ok(()) };
    let mut blocks = Vec::new();
    for rtt_ns in links.rtts_ns.iter().rev() {
        for kbit_per_s in [question.start_per_s, question.limit_per_s] {
            let link = link(links, kbit_per_s, *rtt_ns)?;
            blocks.extend(cells.iter().cloned().map(|mut cell| {
                cell.cell.link = Some(link.clone());
                cell
            }));
        }
    }
    // Advice is for the flag that a search has.
    let note = |line: &str| program::report(&line.replace("--seconds", "--probe-seconds"));
    if let Some(reason) = links::size(Some(config.seconds), &mut config.clone(), &mut blocks, note)? {
        return Err(Ended { exit: Exit::NotPossible, reason }.into());
    }
    cells.iter_mut().zip(&blocks).for_each(|(cell, slowest)| cell.over_links = slowest.over_links);
    Ok(())
}

/// Demand of the scenario at load 1; `None` where no loads are searched.
fn at_load_1(flags: &SearchFlags, config: &Config, cells: &[CellSpec]) -> Result<Option<AtLoad1>> {
    let Some(first) = cells.first().filter(|_| flags.by == By::Load) else { return Ok(None) };
    rates::at_load_1(&first.cell, config).map(Some)
}
