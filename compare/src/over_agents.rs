//! Blocks that several machines play together: what agents are told, and one record of all of
//! theirs.

mod records;
mod told;

use std::{io, path::PathBuf, time::Duration};

use agents::{Attendance, Identity, Run, Spec, coordinate, file_sha256};
use anyhow::{Context, Result, bail, ensure};
use cell::Batching;
use client_sim::answers::Answers;
use codecs::{Format, hex};
use corpus::{Corpus, FileFormat};
use futures::{FutureExt, future::LocalBoxFuture};
use sha2::{Digest, Sha256};
use tokio::time::interval;
use wire::{Dictionary, RelayUrl};

use self::records::Records;
use self::told::Told;
use crate::{
    args,
    generator::{Generator, Interrupt, Played, Task},
    matrix::CellSpec,
    plan::Profile,
    progress::Progress,
    relay_agent,
    usage::{note, until_signal},
    watched,
};
use program::UsageError;

/// Between two looks at a block for who watches.
const LOOKS_EVERY: Duration = Duration::from_millis(250);

/// A run whose agents are there. When it is dropped they are let go.
#[derive(Debug)]
pub struct Agents {
    run: Run,
    of: u16,
    told: Told,
    corpus_name: String,
    /// Whether the agents' own records stay next to their sum.
    keeps_records: bool,
}

impl Agents {
    /// Opens the run of `compare run --nats` and waits for its agents; `None` without. Of a relay that runs
    /// already there is its URL, and what the doctor was answered; otherwise this machine starts the relay
    /// of each block, or an agent does.
    ///
    /// # Errors
    /// When agents cannot play it, or are missing.
    pub(crate) fn gather(
        flags: &args::Run,
        foreign: Option<(&RelayUrl, &Answers)>,
        cells: &[CellSpec],
    ) -> Result<Option<Agents>> {
        let args::Run { over, play, .. } = flags;
        let (Some(server), Some(of)) = (over.server(), over.agents) else { return Ok(None) };
        check(&play.client_args, cells, foreign.is_some())?;
        let place = if foreign.is_some() { None } else { over.relay_place(&server)? };
        let is_watched =
            flags.metrics_listen.is_some() || (!flags.quiet && program::rewrites_lines(&io::stderr()));
        let told = Told::read(foreign, is_watched && flags.profile != Profile::Publish, cells)?;
        let file = play.events.corpus.as_ref().map(PathBuf::from);
        let events = file.as_deref().map_or_else(|| Ok(Corpus::bundled()), Corpus::read);
        let events = events.map_err(|error| UsageError(error.into()))?;
        let identity = identity(&events)?;
        let stored = |file: &PathBuf| {
            let extension = FileFormat::from_path(file)?.extension();
            anyhow::Ok(format!("{}{extension}", identity.corpus_sha256))
        };
        let corpus_file = file.as_ref().map(stored).transpose()?;
        let (run, has_relay) = (over.meeting.run.clone(), foreign.is_none());
        let tell = |line: &str| note(flags.quiet, line);
        tell(&format!("waits for {of} agents of run {run}, and for the NATS server"));
        let policy = relay_agent::policy(identity.clone());
        let attendance = Attendance { server: server.clone(), run: run.clone(), index: of, of, policy };
        let spec = Spec { run, nonce: rand::random(), of, has_relay, identity, corpus_file };
        let opening = async {
            let mut run = coordinate(server, spec, file.clone()).await?;
            if let Some(place) = place {
                run = run.attended(attendance, place.player(file.as_deref())?);
            }
            if let Some(error) = &run.unstored {
                program::report(&format!("warning: {error}. Start every agent with --corpus"));
            }
            watched::until_ready(&run, tell).await?;
            let (corpus_name, keeps_records) = (events.name, over.keep_agent_records);
            anyhow::Ok(Some(Agents { run, of, told, corpus_name, keeps_records }))
        };
        until_signal(async |interrupt| {
            tokio::select! {
                opened = opening => opened,
                // Ends the run, so that its name is free again.
                () = interrupt.wait() => bail!("interrupted before the agents were there"),
            }
        })
    }

    async fn play_together(
        &self,
        task: Task<'_>,
        progress: &Progress,
        mut interrupt: Interrupt<'_>,
    ) -> Result<Played> {
        let play = self.told.play(&task)?;
        let mut records = Records::new(task.record, self.of, self.keeps_records);
        let (outcome, interrupted) = {
            let playing = self.run.play(play, |index, ending| records.take(index, &ending));
            tokio::pin!(playing);
            let mut looks = interval(LOOKS_EVERY);
            loop {
                tokio::select! {
                    outcome = playing.as_mut() => break (outcome, false),
                    () = interrupt.as_mut() => {
                        self.run.abort("interrupted".to_owned());
                        break (playing.await, true);
                    }
                    _ = looks.tick(), if progress.is_live() => {
                        let run = self.run.overview();
                        progress.counted(&run.block, run.block.latency.quantile_ns(0.99).unwrap_or(0));
                        progress.draw(&watched::line(&run));
                    }
                }
            }
        };
        let played = match outcome {
            Ok(clocks) => records.merge(&clocks, &self.corpus_name)?,
            Err(aborted) => {
                let failure = Some(format!("the run over agents was aborted: {aborted}"));
                Played { failure, is_over: true, ..Played::default() }
            }
        };
        Ok(Played { interrupted, ..played }.with_words())
    }
}

impl Generator for Agents {
    /// Writes the sum of all agents' records. Their own records stay next to it if they do not add up, or on
    /// request.
    fn play<'a>(
        &'a self,
        task: Task<'a>,
        progress: &'a mut Progress,
        interrupt: Interrupt<'a>,
    ) -> LocalBoxFuture<'a, Result<Played>> {
        self.play_together(task, progress, interrupt).boxed_local()
    }
}

/// Hashes of this program, its events and its dictionaries, which all agents of a run must share.
///
/// # Errors
/// When the program's own file cannot be read.
pub(crate) fn identity(corpus: &Corpus) -> Result<Identity> {
    let mut dictionaries = Sha256::new();
    for dictionary in Format::all().filter_map(|format| Dictionary::bundled(format.name())) {
        dictionaries.update(dictionary.bytes());
    }
    let program = measure::own_program().and_then(|file| file_sha256(&file));
    Ok(Identity {
        program_sha256: program.context("cannot read this program's own file")?,
        corpus_sha256: corpus.fingerprint.to_string(),
        dictionary_sha256: hex::encode(&dictionaries.finalize()),
    })
}

/// Refuses arguments that need all clients in one process on one machine.
///
/// # Errors
/// Names the argument to leave out.
fn check(client_args: &[String], cells: &[CellSpec], is_foreign: bool) -> Result<()> {
    ensure!(client_args.is_empty(), "agents take no arguments after --: leave them out");
    ensure!(cells.iter().all(|cell| cell.faults.is_empty()), "agents play against no planted faults");
    ensure!(
        !is_foreign || cells.iter().all(|cell| cell.cell.batching.is_none_or(Batching::leaves_limits)),
        "the limits of batches are those of the relay at --url: use --batching on"
    );
    Ok(())
}
