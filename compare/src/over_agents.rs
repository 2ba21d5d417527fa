//! Blocks that several machines play together: what agents are told, and one record of all of
//! theirs.

mod records;
mod told;

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use agents::{
    Attendance, Block, CorpusFile, Identity, NatsError, Run, RunId, Server, Spec, SpecError, coordinate,
    file_sha256,
};
use anyhow::{Context, Result, bail, ensure};
use cell::Batching;
use codecs::{Format, hex};
use corpus::{Corpus, FileFormat};
use futures::{FutureExt, future::LocalBoxFuture};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, interval};
use wire::{Dictionary, RelayUrl};

use self::records::Records;
pub(crate) use self::told::Told;
use crate::{
    generator::{Generator, Interrupt, Played, Task},
    matrix::CellSpec,
    progress::Progress,
    relay_agent::{self, LocalAgent, RelayPlace},
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
    keeps_records: bool,
    /// Rounds that began, over all plans: no two blocks of a run have one key.
    rounds: AtomicU32,
    /// Behind the run, which lets it go.
    relay: Option<LocalAgent>,
}

/// Who starts the relay of each block.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Relay<'a> {
    /// Nobody: it runs already; `client-sim doctor` wrote the file `answers` about it.
    Foreign { url: &'a RelayUrl, answers: &'a Path },
    /// This machine.
    Here(&'a RelayPlace),
    /// An agent on a machine of its own.
    Elsewhere,
}

/// The events of a run.
#[derive(Debug)]
pub(crate) struct Events {
    name: String,
    identity: Identity,
    /// Their file, for agents that have not these events; `None` where every program has them.
    file: Option<(PathBuf, CorpusFile)>,
}

impl Events {
    /// Those of `--corpus`, or the bundled ones.
    ///
    /// # Errors
    /// When the file or the program's own cannot be read.
    pub(crate) fn from_corpus(corpus: Option<&str>) -> Result<Events> {
        let file = corpus.map(Path::new);
        let events = file.map_or_else(|| Ok(Corpus::bundled()), Corpus::read);
        let events = events.map_err(|error| UsageError(error.into()))?;
        let identity = identity(&events)?;
        let file = file.map(|file| anyhow::Ok((file.to_owned(), corpus_file(file)?))).transpose()?;
        Ok(Events { name: events.name, identity, file })
    }

    /// Why agents cannot fetch them.
    pub(crate) fn stay(&self) -> Option<SpecError> {
        self.file.as_ref()?.1.check().err()
    }
}

impl Agents {
    /// Opens a run, which agents join from then on.
    ///
    /// # Errors
    /// When the server does not do its part.
    pub(crate) async fn open(
        server: Server,
        run: RunId,
        of: u16,
        events: Events,
        relay: Relay<'_>,
        told: Told,
    ) -> Result<Agents> {
        let stay = events.stay().is_some();
        let Events { name: corpus_name, identity, file } = events;
        let (file, corpus_file) = file.unzip();
        let policy = relay_agent::policy(identity.clone());
        let attendance = Attendance { server: server.clone(), run: run.clone(), index: of, of, policy };
        let has_relay = !matches!(relay, Relay::Foreign { .. });
        let spec = Spec { run, nonce: rand::random(), of, has_relay, identity, corpus_file };
        let run = coordinate(server, spec, file.clone().filter(|_| !stay)).await?;
        let relay = match relay {
            Relay::Here(place) => Some(LocalAgent::start(attendance, place.player(file.as_deref())?)?),
            Relay::Foreign { .. } | Relay::Elsewhere => None,
        };
        Ok(Agents { run, of, told, corpus_name, keeps_records: false, rounds: AtomicU32::new(0), relay })
    }

    /// Whether the agents' own records stay beside that of all.
    pub(crate) fn keeping_records(self, keeps_records: bool) -> Agents {
        Agents { keeps_records, ..self }
    }

    /// Waits until all agents are there; `tell` hears who is missing.
    ///
    /// # Errors
    /// When agents are missing in the end, or one is lost.
    pub(crate) async fn ready(&mut self, tell: impl Fn(&str)) -> Result<()> {
        let left = async {
            match &mut self.relay {
                Some(agent) => agent.left().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ready = watched::until_ready(&self.run, tell) => Ok(ready?),
            reason = left => bail!("the agent that starts the relay on this machine left: {reason}"),
        }
    }

    /// Why agents cannot fetch the run's events.
    pub(crate) fn unstored(&self) -> Option<&NatsError> {
        self.run.unstored()
    }

    async fn play_together(
        &self,
        task: Task<'_>,
        progress: &Progress,
        mut interrupt: Interrupt<'_>,
    ) -> Result<Played> {
        let block = self.block(&task)?;
        let mut records = Records::new(task.record, self.of, self.keeps_records);
        let (outcome, interrupted) = {
            let playing = self.run.play(block, |arrival| records.take(&arrival));
            tokio::pin!(playing);
            let (mut looks, mut line) = (interval(LOOKS_EVERY), watched::Line::default());
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
                        progress.agents(&line.text(Instant::now(), &run));
                    }
                }
            }
        };
        let played = match outcome {
            Ok(clocks) => records.merge(&clocks, &self.corpus_name)?,
            Err(aborted) => {
                let failure = Some(records.partial(&aborted.reason)?);
                Played { failure, is_over: true, ..Played::default() }
            }
        };
        Ok(Played { interrupted, ..played }.with_words())
    }

    /// The block as agents are told of it. A round begins with its first one.
    fn block(&self, task: &Task<'_>) -> Result<Block> {
        let play = self.told.play(task)?;
        let begins = u32::from(task.position == 0);
        let rounds = self.rounds.fetch_add(begins, Ordering::Relaxed) + begins;
        Ok(Block { round: rounds.saturating_sub(1), position: task.position, play })
    }
}

impl Generator for Agents {
    /// Writes one record of all agents'. Beside it stand those of a block that was aborted, each
    /// with its agent and `partial` in its name, those that do not fit, and others if they are
    /// kept.
    fn play<'a>(
        &'a self,
        task: Task<'a>,
        progress: &'a mut Progress,
        interrupt: Interrupt<'a>,
    ) -> LocalBoxFuture<'a, Result<Played>> {
        self.play_together(task, progress, interrupt).boxed_local()
    }
}

/// Which program this process is, and which events it has, as agents of one run must agree.
///
/// # Errors
/// When the program's own file cannot be read.
pub(crate) fn identity(corpus: &Corpus) -> Result<Identity> {
    let mut dictionaries = Sha256::new();
    for dictionary in Format::all().filter_map(|format| Dictionary::bundled(format.name())) {
        dictionaries.update(dictionary.bytes());
    }
    let program = measure::own_program().and_then(|file| file_sha256(&file));
    let (program_sha256, _) = program.context("cannot read this program's own file")?;
    Ok(Identity {
        program_sha256,
        corpus_sha256: corpus.fingerprint.to_string(),
        dictionary_sha256: hex::encode(&dictionaries.finalize()),
    })
}

fn corpus_file(file: &Path) -> Result<CorpusFile> {
    let (sha256, bytes) = file_sha256(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(CorpusFile { sha256, bytes, extension: FileFormat::from_path(file)?.extension() })
}

/// Refuses what only one process on one machine can do.
///
/// # Errors
/// The part to leave out.
pub(crate) fn check(client_args: &[String], cells: &[CellSpec], is_foreign: bool) -> Result<()> {
    ensure!(client_args.is_empty(), "agents take no arguments behind --: leave them out");
    ensure!(cells.iter().all(|cell| cell.faults.is_empty()), "agents play against no planted faults");
    ensure!(
        !is_foreign || cells.iter().all(|cell| cell.cell.batching.is_none_or(Batching::leaves_limits)),
        "the limits of batches are those of the relay behind --url: use --batching on"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_corpus_of_every_format_may_travel() {
        let folder = tempfile::tempdir().unwrap();
        for format in FileFormat::all() {
            let file = folder.path().join(format!("mine{}", format.extension()));
            fs::write(&file, "events").unwrap();
            let stated = corpus_file(&file).unwrap();
            assert_eq!((stated.check(), stated.bytes), (Ok(()), 6), "{format:?}");
            assert_eq!(FileFormat::from_path(Path::new(&stated.name())).unwrap(), format);
        }
    }
}
