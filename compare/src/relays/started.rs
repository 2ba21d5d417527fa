//! A relay while it runs, for a block or for a question.

use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use agents::file_sha256;
use anyhow::{Context, Result, bail};
use codecs::quoted_lines;
use measure::{Helper, PinnedCores, cores};
use report::result::RelayCommand;
use tempfile::TempDir;
use tokio::{
    sync::oneshot,
    task::spawn_blocking,
    time::{Instant, sleep, timeout, timeout_at},
};
use wire::RelayUrl;

use super::{
    command::Words,
    keeper::{Ended, KEEPER_ROLE},
};

/// Seconds for a relay to answer a WebSocket handshake, where none are set.
const LISTENS_WITHIN_S: u32 = 30;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// A relay that writes more than this in a block is told of.
const MUCH_OUTPUT_BYTES: u64 = 10_000_000;

/// A relay that answers. Dropped, it is ended without a word.
#[derive(Debug)]
pub(crate) struct Started {
    name: String,
    /// Its address.
    pub(crate) url: RelayUrl,
    /// Its processes, without those that they started.
    pub(crate) pids: Vec<u32>,
    /// SHA-256 of each program that runs for it, by its file.
    pub(crate) programs: BTreeMap<String, String>,
    /// The process that keeps it.
    keeper: Helper,
    /// A folder that the relay runs in, and may write to.
    folder: TempDir,
}

/// What was noticed when a relay had ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Noticed {
    /// Why nothing that was measured holds.
    pub(crate) failure: Option<String>,
    /// What its author may want to know.
    pub(crate) warnings: Vec<String>,
    /// What it wrote last.
    pub(crate) output: String,
}

impl Started {
    /// Starts a relay on a free port, on its own cores where there are any, and waits until it
    /// completes a WebSocket handshake.
    ///
    /// # Errors
    /// When it does not, with what it wrote.
    pub(crate) async fn start(relay: &RelayCommand, pinned: Option<&PinnedCores>) -> Result<Started> {
        let name = &relay.name;
        let folder =
            tempfile::TempDir::with_prefix("compare-").context("cannot make a folder for a relay")?;
        let dir = folder.path();
        let address = free_address().context("no port of 127.0.0.1 is free")?;
        let words = Words::new(relay, address, dir)?;
        let url = format!("ws://{address}").parse().context("an address makes a URL")?;
        let (sender, ended) = oneshot::channel();
        let add = |command: &mut Command| {
            command.arg(&words.program).args(&words.arguments).current_dir(dir);
        };
        let tell = || {
            // Without a receiver the relay has answered.
            let _ = sender.send(());
        };
        let keeper =
            on_cores(pinned.map(|pinned| &*pinned.relay), || Ok(Helper::start(KEEPER_ROLE, add, tell)?))?;
        let hint = words.relative_file().map_or_else(String::new, |file| {
            format!(
                "; {file} is a path from here, and the relay runs in a folder of its own: give the whole path"
            )
        });
        let why = tokio::select! {
            answered = answers(address, relay.listen_within_s.unwrap_or(LISTENS_WITHIN_S)) => match answered {
                Ok(()) => {
                    let pids = measure::children(keeper.pid());
                    let programs = programs(&words, keeper.pid());
                    return Ok(Started { name: name.clone(), url, pids, programs, keeper, folder });
                }
                Err(why) => Some(why),
            },
            _ = ended => None,
        };
        let ended = end(keeper).await?;
        let why = why.unwrap_or_else(|| format!("ended before it listened at {address}: {}", ended.how));
        bail!("relay {name} {why}{hint}{}", written(&ended))
    }

    /// The folder that it runs in.
    pub(crate) fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Ends the relay with all of its children, and returns what went wrong.
    ///
    /// # Errors
    /// When the process that keeps it does not end.
    pub(crate) async fn stop(self) -> Result<Noticed> {
        let ended = end(self.keeper).await?;
        Ok(noticed(&self.name, &ended))
    }
}

fn noticed(name: &str, ended: &Ended) -> Noticed {
    let failure = ended
        .by_itself
        .then(|| format!("relay {name} ended before it was asked to: {}{}", ended.how, written(ended)));
    let mut warnings = Vec::new();
    if ended.was_killed {
        warnings.push(format!("relay {name} did not end within 5 s of SIGTERM, so it was killed"));
    }
    if !ended.alive.is_empty() {
        warnings.push(format!(
            "relay {name} lives on and takes time from later blocks: {}",
            ended.alive.join(", ")
        ));
    }
    if ended.output_bytes > MUCH_OUTPUT_BYTES {
        let megabytes = ended.output_bytes / 1_000_000;
        warnings.push(format!(
            "relay {name} wrote {megabytes} MB of output, which takes time from what is measured: let it log less"
        ));
    }
    Noticed { failure, warnings, output: ended.output.clone() }
}

/// What a relay wrote last, behind a sentence.
fn written(ended: &Ended) -> String {
    match &*ended.output {
        "" => "; it wrote nothing".to_owned(),
        output => format!("; it wrote:{}", quoted_lines(output)),
    }
}

/// The programs that the keeper's processes run, and the file that the command names, which may be
/// a script. What this user may not read is left out.
fn programs(words: &Words, keeper: u32) -> BTreeMap<String, String> {
    let running = measure::started_by(keeper).into_iter().filter_map(|pid| {
        let image = PathBuf::from(format!("/proc/{pid}/exe"));
        Some((fs::read_link(&image).ok()?, image))
    });
    let named = words.file().map(|file| (file.to_owned(), file.to_owned()));
    let hashed = |(file, image): (PathBuf, PathBuf)| {
        let file = file.to_string_lossy().trim_end_matches(" (deleted)").to_owned();
        Some((file, file_sha256(&image).ok()?))
    };
    running.chain(named).filter_map(hashed).collect()
}

/// A free one a moment ago: no relay takes a socket that is open already.
fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Waits for a WebSocket handshake.
async fn answers(address: SocketAddr, within_s: u32) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(within_s.into());
    let url = format!("ws://{address}/");
    let mut last = "no connection".to_owned();
    while Instant::now() < deadline {
        match timeout_at(deadline, tokio_tungstenite::connect_async(&url)).await {
            Ok(Ok((mut socket, _))) => {
                // It answered, which is all that was asked.
                let _ = timeout(PAUSE, socket.close(None)).await;
                return Ok(());
            }
            Ok(Err(error)) => last = error.to_string(),
            Err(_) => "a connection without an answer".clone_into(&mut last),
        }
        sleep(PAUSE).await;
    }
    Err(format!(
        "did not answer a WebSocket handshake at {address} within {within_s} s (--listen-within gives it longer): {last}"
    ))
}

/// Starts a process on these cores; the calling thread keeps its own.
pub(crate) fn on_cores<T>(cores: Option<&[u32]>, start: impl FnOnce() -> Result<T>) -> Result<T> {
    let Some(cores) = cores else { return start() };
    let own = cores::allowed().context("cannot read which cores this process may use")?;
    cores::keep_to(cores).context("cannot pin a process")?;
    let started = start();
    cores::keep_to(&own).context("cannot take back all cores")?;
    started
}

/// Has the process that keeps a relay end it, and say how.
async fn end(keeper: Helper) -> Result<Ended> {
    let pids = measure::started_by(keeper.pid());
    let ended = spawn_blocking(|| keeper.end()).await.context("a thread that waits panicked")??;
    let said = || {
        format!("the process that keeps a relay did not say how it ended; look for its processes: {pids:?}")
    };
    let line = ended.last.with_context(said)?;
    serde_json::from_str(&line).with_context(|| format!("not how a relay ended: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended() -> Ended {
        let (how, output) = ("exit status: 3".to_owned(), "no space".to_owned());
        Ended { how, output, output_bytes: 8, ..Ended::default() }
    }

    #[test]
    fn a_relay_that_ends_or_stays_or_writes_much_is_told_of() {
        let output = "no space".to_owned();
        assert_eq!(noticed("old", &ended()), Noticed { output, ..Noticed::default() });
        let alone = noticed("old", &Ended { by_itself: true, ..ended() });
        let says = "relay old ended before it was asked to: exit status: 3; it wrote:\n  no space";
        assert_eq!(alone.failure.as_deref(), Some(says));
        let stays = noticed("old", &Ended { was_killed: true, output_bytes: 1_000_000_000, ..ended() });
        assert_eq!(stays.failure, None);
        let says = stays.warnings.join("\n");
        assert!(
            says.contains("did not end within 5 s of SIGTERM") && says.contains("wrote 1000 MB"),
            "{says}"
        );
        let other = noticed("old", &Ended { alive: vec!["process 7 (not ours)".to_owned()], ..ended() });
        let says = other.warnings.join("\n");
        assert!(
            says.contains("lives on") && says.contains("process 7") && !says.contains("killed"),
            "{says}"
        );
    }
}
