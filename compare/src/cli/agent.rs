//! `compare agent`: plays this machine's share of somebody's run; and the other end of it.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, IsTerminal, Write},
    net::TcpListener,
    path::Path,
};

use agents::{
    BlockKey, Ending, Left, Policy, Process,
    nats::{Attendance, NatsError, attend},
};
use anyhow::{Context, Result, bail};
use measure::Exit;

use crate::{
    args::{AgentFlags, Run},
    matrix::CellSpec,
    metrics,
    over_agents::{self, Agents},
    plan::Profile,
    run::Interrupt,
};

/// Attends a run until it ends.
pub(super) fn attend_run(flags: &AgentFlags) -> Result<Exit> {
    let identity = over_agents::identity(flags.corpus.as_deref())?;
    let of_file = |flag: &str, file: &Option<String>| {
        file.iter().flat_map(|file| [flag.into(), file.into()]).collect::<Vec<OsString>>()
    };
    let mut arguments = vec![OsString::from("role:client")];
    arguments.extend(of_file("--corpus", &flags.corpus));
    arguments.extend(of_file("--ca", &flags.ca));
    let player =
        Process { program: env::current_exe().context("cannot find this program's own file")?, arguments };
    let attendance = Attendance {
        server: flags.place.server(),
        run: flags.place.run.clone(),
        index: flags.index,
        of: flags.of,
        policy: Policy { targets: flags.allow_target.clone(), max_rate_per_s: flags.max_rate, identity },
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let left = runtime.context("cannot start the runtime")?.block_on(async {
        let mut interrupt = Interrupt::listen()?;
        anyhow::Ok(attend(&attendance, &player, interrupt.wait()).await)
    })?;
    match left {
        Ok(Left::Finished) => Ok(Exit::Success),
        Ok(Left::Stopped { reason, unpublished }) => {
            let _ = writeln!(io::stderr(), "stopped: {reason}");
            if let Some((key, ending)) = unpublished {
                keep(flags, key, &ending)?;
            }
            Ok(Exit::Incomplete)
        }
        Err(NatsError::Interrupted) => Ok(Exit::Interrupted),
        Err(error) => Err(error.into()),
    }
}

/// Opens the run of `compare run --nats` and waits for its agents; `None` without.
///
/// # Errors
/// When agents cannot play it, or are missing.
pub(super) fn gather(flags: &Run, url: &str, answers: &Path, cells: &[CellSpec]) -> Result<Option<Agents>> {
    let (Some(server), Some(of)) = (flags.over.server(), flags.over.agents) else { return Ok(None) };
    over_agents::check(&flags.client_args, cells)?;
    let identity = over_agents::identity(flags.corpus.as_deref())?;
    let tell = |line: &str| {
        if !flags.quiet {
            let _ = writeln!(io::stderr(), "{line}");
        }
    };
    tell(&format!("waits for {of} agents of run {}", flags.over.run));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let metrics = flags.over.metrics_listen.as_deref().map(listen).transpose()?;
    let is_watched = metrics.is_some() || (!flags.quiet && io::stderr().is_terminal());
    let live = is_live(flags.profile, is_watched);
    let opening = async {
        let run = flags.over.run.clone();
        let agents = Agents::open(server, run, of, identity, url.to_owned(), answers, live).await?;
        if let Some(listener) = metrics {
            let address = metrics::serve(listener, agents.overview()).context("cannot serve metrics")?;
            let _ = writeln!(io::stderr(), "metrics at http://{address}/metrics");
        }
        agents.ready(tell).await?;
        anyhow::Ok(Some(agents))
    };
    runtime.context("cannot start the runtime")?.block_on(async {
        let mut interrupt = Interrupt::listen()?;
        tokio::select! {
            opened = opening => opened,
            // Ends the run, so that its name is free again.
            () = interrupt.wait() => bail!("interrupted before the agents were there"),
        }
    })
}

fn listen(address: &str) -> Result<TcpListener> {
    TcpListener::bind(address).with_context(|| format!("cannot listen on --metrics-listen {address}"))
}

/// Whether agents tell what they count: where somebody watches, and never beside what is published.
fn is_live(profile: Profile, is_watched: bool) -> bool {
    is_watched && profile != Profile::Publish
}

/// Keeps a partial record that nobody could take.
fn keep(flags: &AgentFlags, key: BlockKey, ending: &Ending) -> Result<()> {
    let BlockKey { round, position } = key;
    let name = format!("{}-{round:03}-{position:03}.agent-{}.partial.json", flags.place.run, flags.index);
    fs::write(&name, &ending.record).with_context(|| format!("cannot write {name}"))?;
    let _ = writeln!(io::stderr(), "partial record: {name}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_count_for_who_watches_and_never_beside_what_is_published() {
        assert!(is_live(Profile::Quick, true) && is_live(Profile::Standard, true));
        assert!(!is_live(Profile::Publish, true), "a measurement alone");
        assert!(!is_live(Profile::Quick, false), "nobody watches");
    }
}
