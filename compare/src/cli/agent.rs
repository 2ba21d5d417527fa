//! `compare agent`, which plays this machine's share of a run.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

use agents::{Attendance, CORPUS_FILE_BYTES, Left, NatsError, Policy, Process, attend, fetch_corpus};
use anyhow::{Context, Result};
use corpus::Corpus;
use measure::Exit;

use crate::{
    args::AgentFlags,
    over_agents, relay_agent,
    usage::{header_args, until_signal},
};
use program::UsageError;

/// Most bytes of a decompressed stream of events that somebody else sent: four times the largest
/// file that travels, and still in an agent's memory.
const EVENTS_BYTES: u64 = 4 * CORPUS_FILE_BYTES;

/// Attends a run until it ends.
pub(super) fn attend_run(flags: &AgentFlags) -> Result<Exit> {
    let place = flags.relay_place().map_err(UsageError)?;
    let targets = flags.targets().map_err(UsageError)?;
    // The slot behind all players' is the relay's.
    let index = flags.index.unwrap_or(flags.of);
    let attended = until_signal(async |interrupt| {
        let (corpus, file) = tokio::select! {
            found = events(flags) => found?,
            () = interrupt.wait() => return Err(NatsError::Interrupted.into()),
        };
        let identity = over_agents::identity(&corpus)?;
        // The player reads its own.
        drop(corpus);
        let (player, policy) = match &place {
            Some(place) => (place.player(file.as_deref())?, relay_agent::policy(identity)),
            None => (player(flags, file.as_deref())?, Policy { targets, starts_relays: false, identity }),
        };
        let (server, run, of) = (flags.server(), flags.meeting.run.clone(), flags.of);
        let attendance = Attendance { server, run, index, of, policy };
        anyhow::Ok(attend(&attendance, &player, interrupt.wait()).await?)
    });
    match attended {
        Ok(Left::Finished) => Ok(Exit::Success),
        Ok(Left::Stopped(reason)) => {
            program::report(&format!("stopped: {reason}"));
            Ok(Exit::Incomplete)
        }
        Err(error) => match error.downcast_ref() {
            Some(NatsError::Interrupted) => Ok(Exit::Interrupted),
            _ => Err(error),
        },
    }
}

/// The agent's events with their file: `--corpus`, or the bundled ones, or else the run's, which are kept
/// in the working folder.
async fn events(flags: &AgentFlags) -> Result<(Corpus, Option<PathBuf>)> {
    if let Some(file) = flags.corpus.as_ref().map(PathBuf::from) {
        return Ok((Corpus::read(&file).map_err(|error| UsageError(error.into()))?, Some(file)));
    }
    let bundled = Corpus::bundled();
    let own_sha256 = bundled.fingerprint.to_string();
    let (server, folder) = (flags.server(), env::current_dir().context("no working folder")?);
    let Some(file) = fetch_corpus(&server, &flags.meeting.run, &own_sha256, &folder).await? else {
        return Ok((bundled, None));
    };
    program::report(&format!("plays the run's events, {}", file.display()));
    Ok((Corpus::read_within(&file, EVENTS_BYTES)?, Some(file)))
}

/// The process that plays this agent's share.
fn player(flags: &AgentFlags, corpus: Option<&Path>) -> Result<Process> {
    let mut arguments = vec![OsString::from("role:client")];
    if let Some(file) = corpus {
        arguments.extend([OsString::from("--corpus"), file.into()]);
    }
    if let Some(file) = &flags.ca {
        arguments.extend([OsString::from("--ca"), file.into()]);
    }
    arguments.extend(header_args(&flags.header).map(OsString::from));
    arguments.extend(flags.max_rate.map(|most| format!("--max-rate={most}").into()));
    arguments.extend(flags.max_connections.map(|most| format!("--max-connections={most}").into()));
    Ok(Process { program: measure::own_program().context("cannot find this program's own file")?, arguments })
}
