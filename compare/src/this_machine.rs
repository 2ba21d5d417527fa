//! One client process of this machine for each block, which starts and stops its own relay.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use codecs::quoted_lines;
use futures::{FutureExt, future::LocalBoxFuture};
use measure::{Exit, MemoryKills, PinnedCores, cores};
use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time,
};
use wire::RelayUrl;

use crate::{
    generator::{self, Generator, Interrupt, Played, Task},
    grants::{self, ByRelay},
    plan,
    progress::Progress,
    relays::{Started, on_cores},
    usage::{header_args, last_words},
};
use report::result::{Config, RelayCommand, Role};

/// Time for a client to stop by itself after Ctrl-C, which the terminal sends to it, too.
const CLIENT_STOPS_ALONE: Duration = Duration::from_secs(1);

/// Time for a client to write its record and stop its relay after SIGTERM.
const CLIENT_STOPS_ASKED: Duration = Duration::from_secs(10);

/// Upper bound on a block beyond three times what it should take: start, corpus, signatures,
/// timeouts.
const BLOCK_EXTRA: Duration = Duration::from_secs(120);

/// The client program, and what all its blocks have in common.
#[derive(Debug)]
pub struct ThisMachine {
    client: PathBuf,
    config: Config,
    /// The doctor's answers about relays of others.
    answers: ByRelay,
    /// The cores of relays and of clients, where blocks have different relays.
    pinned: Option<PinnedCores>,
    /// What was said of relays, once.
    warned: RefCell<BTreeSet<String>>,
    /// Has the answers that the client of a block reads, and what it says.
    folder: TempDir,
}

impl ThisMachine {
    /// The first argument of the `client` program is `role:client`; `answers` are the doctor's answers
    /// about the external relays of `config`, by their names.
    ///
    /// # Errors
    /// When the system does not report its cores, or there is no room for answers.
    pub fn new(client: &Path, config: &Config, answers: ByRelay) -> Result<ThisMachine> {
        let pinned = if config.relays.is_empty() {
            None
        } else {
            cores::halves().context("cannot read which cores this process may use")?
        };
        let folder =
            TempDir::with_prefix("compare-").context("cannot make a folder for a relay's answers")?;
        let (client, config) = (client.to_owned(), config.clone());
        Ok(ThisMachine { client, config, answers, pinned, warned: RefCell::default(), folder })
    }

    /// Has the client of a block read what a relay answered, at this address if it is asked there.
    fn tell_answers(&self, command: &mut Command, relay: &str, url: Option<&RelayUrl>) -> Result<()> {
        let Some(answers) = self.answers.get(relay) else { return Ok(()) };
        let file = self.folder.path().join("doctor.json");
        fs::write(&file, grants::text(answers, url)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
        command.arg("--doctor").arg(file);
        Ok(())
    }

    /// Plays a block against a relay that is started for it.
    async fn play_against(
        &self,
        relay: &RelayCommand,
        task: &Task<'_>,
        progress: &mut Progress,
        mut interrupt: Interrupt<'_>,
    ) -> Result<Played> {
        let failed = |failure: String| Played {
            exit_code: Some(Exit::Error.code().into()),
            failure: Some(failure),
            ..Played::default()
        };
        let started = tokio::select! {
            biased;
            () = interrupt.as_mut() => return Ok(Played { interrupted: true, ..Played::default() }.with_words()),
            started = Started::start(relay, self.pinned.as_ref()) => match started {
                Ok(started) => started,
                Err(error) => return Ok(failed(format!("{error:#}"))),
            },
        };
        if let Some(file) = relay.replaced(&started.programs) {
            let why = format!(
                "relay {}: {file} is another program than when the run began, whose blocks are not to be mixed with those \
                 of another build; the run ends here, so leave the file alone until a run is over",
                relay.name
            );
            started.stop().await?;
            return Ok(Played { is_over: true, ..failed(why) });
        }
        let mut command = self.command(task);
        command.args(["--url", started.url.with_password()]);
        self.tell_answers(&mut command, &relay.name, Some(&started.url))?;
        let pids: Vec<String> = started.pids.iter().map(u32::to_string).collect();
        command.args(["--relay-pid", &pids.join(",")]).arg("--relay-dir").arg(started.dir());
        let clients = self.pinned.as_ref().map(|pinned| &*pinned.clients);
        let played = self.attend(command, clients, task, progress, interrupt).await;
        let noticed = started.stop().await?;
        for warning in noticed.warnings {
            if self.warned.borrow_mut().insert(warning.clone()) {
                progress.note(&format!("warning: {warning}"));
            }
        }
        let played = played?;
        let with_output = |failure: String| match &*noticed.output {
            "" => failure,
            output => format!("{failure}\nthe relay wrote:{}", quoted_lines(output)),
        };
        // Also where the user ended the block: a terminal signals no relay.
        let failure = noticed.failure.or_else(|| played.failure.clone().map(with_output));
        Ok(Played { failure, ..played })
    }

    /// Runs the client of a block to its end, on these cores where they are named.
    async fn attend(
        &self,
        mut command: Command,
        cores: Option<&[u32]>,
        task: &Task<'_>,
        progress: &mut Progress,
        interrupt: Interrupt<'_>,
    ) -> Result<Played> {
        let limit = plan::cell_estimate(task.cell, task.seconds) * 3 + BLOCK_EXTRA;
        let said = self.folder.path().join("stderr.txt");
        let stderr = File::create(&said).with_context(|| format!("cannot write {}", said.display()))?;
        command.stderr(stderr);
        if progress.is_live() {
            command.arg("--progress-json").stdout(Stdio::piped());
        }
        let spawn = || {
            let client = || format!("cannot start the client {}", self.client.display());
            command.spawn().with_context(client)
        };
        let child = on_cores(cores, spawn)?;
        attend(child, limit, &said, progress, interrupt).await
    }

    fn command(&self, task: &Task<'_>) -> Command {
        let Task { cell, .. } = *task;
        let mut command = Command::new(&self.client);
        command.args(["role:client", "--cell", &serde_json::json!(cell.cell).to_string()]);
        command.args(["--comparable-with", &task.comparable_with.join(",")]);
        for fault in &cell.faults {
            command.args(["--relay-fault", fault]);
        }
        if let Some(packets_per_s) = cell.over_links.and_then(|over| over.packets_per_s) {
            command.args(["--link-capacity", &packets_per_s.to_string()]);
        }
        if let Some(corpus) = &self.config.corpus {
            command.args(["--corpus", corpus]);
        }
        command.args(["--seed", &task.seed.to_string(), "--seconds", &task.seconds.to_string()]);
        command.arg("--record").arg(task.record).arg("--quiet").args(&self.config.client_args);
        if env::var_os("RUST_LOG").is_none() {
            // A relay's progress would hide the failure in the last lines.
            command.env("RUST_LOG", "warn");
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        command
    }
}

impl Generator for ThisMachine {
    fn play<'a>(
        &'a self,
        task: Task<'a>,
        progress: &'a mut Progress,
        interrupt: Interrupt<'a>,
    ) -> LocalBoxFuture<'a, Result<Played>> {
        async move {
            let (task, config) = (&task, &self.config);
            let name = &task.cell.cell.relay_name;
            let is_floor = task.cell.role == Role::Floor;
            let relay = config.relays.iter().find(|relay| relay.name == *name);
            if let Some(relay) = relay.filter(|_| !is_floor) {
                return self.play_against(relay, task, progress, interrupt).await;
            }
            let mut command = self.command(task);
            if is_floor {
                // Its client starts it, on a core of its own, and plays the plan of the relays beside it.
                command.arg("--floor");
                if let Some(first) = config.relays.first() {
                    self.tell_answers(&mut command, &first.name, None)?;
                }
            } else if let Some(url) = &config.url {
                command.args(["--url", url.with_password()]).args(header_args(&config.headers));
                self.tell_answers(&mut command, "", Some(url))?;
            }
            self.attend(command, None, task, progress, interrupt).await
        }
        .boxed_local()
    }
}

/// Waits for the client to end, which writes its errors into `said`; stops it on an interruption or after
/// `limit`.
async fn attend(
    mut child: Child,
    limit: Duration,
    said: &Path,
    progress: &mut Progress,
    mut interrupt: Interrupt<'_>,
) -> Result<Played> {
    let (kills, pid) = (MemoryKills::so_far(), child.id());
    let mut seconds = child.stdout.take().map(|stdout| BufReader::new(stdout).lines());
    let (mut timed_out, mut interrupted) = (false, false);
    let mut signals = [Signal::SIGTERM, Signal::SIGKILL].into_iter();
    let deadline = time::sleep(limit);
    tokio::pin!(deadline);
    let status = loop {
        tokio::select! {
            status = child.wait() => break status.context("cannot wait for the client")?,
            second = next_line(&mut seconds) => progress.second(&second),
            () = interrupt.as_mut(), if !interrupted => {
                interrupted = true;
                deadline.as_mut().reset(time::Instant::now() + CLIENT_STOPS_ALONE);
            }
            () = deadline.as_mut() => {
                timed_out = !interrupted;
                // Without a pid it ended this instant, and the wait above completes.
                if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
                    let signal = signals.next().with_context(|| {
                        format!("the client, process {pid}, does not end by SIGKILL: the run ends, and leaves it behind")
                    })?;
                    match kill(Pid::from_raw(pid), signal) {
                        Ok(()) | Err(Errno::ESRCH) => {}
                        Err(error) => bail!("cannot end the client, process {pid}, which lives on: {error}"),
                    }
                }
                deadline.as_mut().reset(time::Instant::now() + CLIENT_STOPS_ASKED);
            }
        }
    };
    let exit_code = status.code();
    let what = match exit_code {
        _ if timed_out && !interrupted => {
            Some(format!("the client did not end within {} s and was stopped", limit.as_secs()))
        }
        None if !interrupted => {
            Some(format!("the client, process {}, ended with {}", pid.unwrap_or(0), kills.how(status)))
        }
        _ => generator::failure(exit_code, interrupted),
    };
    let tail = last_words(said);
    let failure = what.map(|what| if tail.is_empty() { what } else { format!("{what}; it wrote:{tail}") });
    Ok(Played { exit_code, failure, interrupted, is_over: false })
}

/// The next line; pending forever after the last.
async fn next_line(lines: &mut Option<Lines<BufReader<ChildStdout>>>) -> String {
    if let Some(open) = lines {
        if let Ok(Some(line)) = open.next_line().await {
            return line;
        }
        *lines = None;
    }
    std::future::pending().await
}
