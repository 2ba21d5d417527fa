//! Runs the doctor against external relays before the first block, and reports what is left out for them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use client_sim::answers::Answers;
use measure::Exit;
use program::Interrupt;
use report::result::{Foreign, RelayCommand};

use crate::{
    grants::{self, ByRelay, Question},
    matrix::CellSpec,
    relays::Started,
    usage::{Ended, NOTHING_MEASURED, until_signal},
};

/// Answers of external relays, asked before the first block; none of relays of our own.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// What was left out.
    pub(super) foreign: Option<Foreign>,
    /// The file of the answers of a relay behind `--url`.
    pub(super) file: Option<PathBuf>,
    /// The answers of each relay of `--relay`.
    pub(super) by_relay: ByRelay,
}

/// Questions the relay at `--url`, or starts each relay of `--relay` once, questions it, and notes the
/// programs that ran for it.
pub(super) fn asked(
    question: &Question<'_>,
    url: Option<&wire::RelayUrl>,
    relays: &mut [RelayCommand],
    cells: &mut Vec<CellSpec>,
    folder: &Path,
) -> Result<Asked> {
    if let Some(url) = url {
        let answers = until_signal(async |interrupt| grants::ask(question, url, cells, interrupt).await)?;
        let mut answers = ByRelay::from([(String::new(), answers)]);
        let foreign = left_out(&mut answers, cells)?;
        let file = folder.join("doctor.json");
        answers.values().try_for_each(|answers| grants::write(answers, Some(url), &file))?;
        return Ok(Asked { foreign: Some(foreign), file: Some(file), ..Asked::default() });
    }
    if relays.is_empty() {
        return Ok(Asked::default());
    }
    let mut by_relay = until_signal(async |interrupt| {
        let mut answers = ByRelay::new();
        for relay in relays.iter_mut().filter(|relay| !relay.is_floor()) {
            answers.insert(relay.name.clone(), ask_one(question, relay, cells, interrupt).await?);
        }
        Ok(answers)
    })?;
    let foreign = left_out(&mut by_relay, cells)?;
    Ok(Asked { foreign: Some(foreign), by_relay, ..Asked::default() })
}

async fn ask_one(
    question: &Question<'_>,
    relay: &mut RelayCommand,
    cells: &[CellSpec],
    interrupt: &mut Interrupt,
) -> Result<Answers> {
    let own: Vec<CellSpec> =
        cells.iter().filter(|cell| cell.cell.relay_name == relay.name).cloned().collect();
    let started = tokio::select! {
        biased;
        () = interrupt.wait() => {
            return Err(Ended { exit: Exit::Interrupted, reason: NOTHING_MEASURED.to_owned() }.into());
        }
        started = Started::start(relay, None) => started?,
    };
    relay.programs.clone_from(&started.programs);
    let asked = grants::ask(question, &started.url, &own, interrupt).await;
    let noticed = started.stop().await?;
    for warning in noticed.warnings {
        program::report(&format!("warning: {warning}"));
    }
    match noticed.failure {
        Some(failure) => Err(anyhow!(failure)),
        None => asked.with_context(|| format!("relay {}", relay.name)),
    }
}

/// Leaves out what relays do not grant, and reports it.
fn left_out(answers: &mut ByRelay, cells: &mut Vec<CellSpec>) -> Result<Foreign> {
    let foreign = grants::apply(answers, cells)?;
    let refused =
        foreign.refused_events.iter().map(|(reason, events)| format!("{events} events set aside: {reason}"));
    for note in foreign.declined.iter().cloned().chain(refused) {
        program::report(&note);
    }
    Ok(foreign)
}
