//! The process that plays an agent's share of a block.

use std::{
    ffi::OsString,
    future::Future,
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use measure::LiveCounts;
use nix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use tokio::{
    fs,
    io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, Command},
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval_at, timeout},
};

use crate::{
    message::{Facts, RECORD_BYTES, Said},
    spec::Play,
};

/// Longest line that a player writes.
const LINE_BYTES: u64 = 16 << 10;

/// Between two lines `on`, after a second without which a player stops.
const ON_EVERY: Duration = Duration::from_millis(200);

/// For the last lines of a player that has ended: they are in the pipe.
const LAST_LINES_WITHIN: Duration = Duration::from_secs(1);

/// Nanoseconds of this machine's monotonic clock, which all its processes share.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has a monotonic clock");
    let now = Duration::from(now);
    u64::try_from(now.as_nanos()).expect("a machine that is up for 584 years")
}

/// A word to a player while it plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commanded {
    /// Time zero of the plan.
    Start { at_ns: u64 },
    /// Stop the load and write what there is.
    Stop,
}

/// How a player ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// Exit code of its process; `None` when a signal ended it.
    pub exit_code: Option<i32>,
    /// The record that it wrote.
    pub record: Vec<u8>,
}

/// Plays one agent's share of a block.
pub trait Player: Send + Sync {
    /// Plays share `index` of `of`: prepares, says so, waits for its start, plays, and returns how
    /// it ended. Stops when told, when `commands` closes, or when the future is dropped. If the
    /// block is live, it reports its counts so far, and all at the end.
    ///
    /// # Errors
    /// A reason for people, when there is no record.
    fn play(
        &self,
        play: Box<Play>,
        index: u16,
        of: u16,
        commands: mpsc::Receiver<Commanded>,
        says: watch::Sender<Said>,
    ) -> impl Future<Output = Result<Ending, String>> + Send;
}

/// Starts a process for each block. The relay's agent starts one with `--serve`, which starts a relay.
///
/// - stdout: a line of JSON with its facts, `{"prepared":{"plan_sha256":"…","corpus_sha256":"…"}}`, with
///   `url` for a relay. If the block is live, further lines have its counts in `so_far`.
/// - stdin: `start NANOSECONDS` or `stop`, and `on` every 200 ms. The process stops when stdin ends or
///   nothing comes for a second.
/// - the file of `--record`: its record.
#[derive(Debug)]
pub struct Process {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments, which no coordinator chooses.
    pub arguments: Vec<OsString>,
}

#[derive(Deserialize)]
struct Line {
    prepared: Facts,
}

#[derive(Deserialize)]
struct Second {
    so_far: LiveCounts,
}

impl Player for Process {
    async fn play(
        &self,
        play: Box<Play>,
        index: u16,
        of: u16,
        mut commands: mpsc::Receiver<Commanded>,
        says: watch::Sender<Said>,
    ) -> Result<Ending, String> {
        let folder = tempfile::TempDir::with_prefix("compare-")
            .map_err(|error| format!("cannot make a folder: {error}"))?;
        let file = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, text)
                .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
            file.into_os_string().into_string().map_err(|_| "a folder whose name is not UTF-8".to_owned())
        };
        let Play { scenario, scenario_toml, answers, .. } = &*play;
        let scenario = match scenario_toml {
            Some(text) => file(&format!("{scenario}.toml"), text)?,
            None => scenario.clone(),
        };
        let mut arguments = play.arguments(&scenario);
        if !answers.is_empty() {
            arguments.push(format!("--doctor={}", file("answers.json", answers)?));
        }
        // The slot behind all players' is the relay's.
        arguments.extend((index < of).then(|| format!("--share={index}/{of}")));
        let record = folder.path().join("record.json");
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .args(arguments)
            .args(["--quiet", "--record"])
            .arg(&record)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot start the player: {error}"))?;
        let mut stdin = child.stdin.take().ok_or("stdin was piped")?;
        let stdout = BufReader::new(child.stdout.take().ok_or("stdout was piped")?);
        tokio::pin! { let passing = pass_on(stdout, &says); }
        let mut is_silent = false;
        let mut on = interval_at(Instant::now() + ON_EVERY, ON_EVERY);
        // One line says as much as those that were missed.
        on.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let status = loop {
            tokio::select! {
                biased;
                passed = passing.as_mut(), if !is_silent => match passed {
                    Ok(()) => is_silent = true,
                    Err(reason) => return Err(failed(&mut child, reason).await),
                },
                command = commands.recv() => {
                    let line = match command {
                        Some(Commanded::Start { at_ns }) => format!("start {at_ns}\n"),
                        Some(Commanded::Stop) | None => "stop\n".to_owned(),
                    };
                    // A player that has ended reads nothing; `wait` below says how it ended.
                    let _ = stdin.write_all(line.as_bytes()).await;
                    if command.is_none() {
                        break child.wait().await;
                    }
                }
                status = child.wait() => break status,
                _ = on.tick() => {
                    let _ = stdin.write_all(b"on\n").await;
                }
            }
        };
        let status = status.map_err(|error| format!("cannot wait for the player: {error}"))?;
        if !is_silent {
            // Counts are for who watches: without the last of them the record is as good.
            let _ = timeout(LAST_LINES_WITHIN, passing).await;
        }
        match read(&record).await {
            Ok(record) => Ok(Ending { exit_code: status.code(), record }),
            Err(error) => Err(format!("the player ended ({status}) without a record: {error}")),
        }
    }
}

/// Passes on the facts in the player's first line, then its counts, until its output ends. Drops any
/// other line, so that the player never waits for a reader.
async fn pass_on(mut stdout: impl AsyncBufRead + Unpin, says: &watch::Sender<Said>) -> Result<(), String> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let is_prepared = says.borrow().facts.is_some();
        match (&mut stdout).take(LINE_BYTES).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) if is_prepared => return Ok(()),
            _ => {}
        }
        if !is_prepared {
            let facts = serde_json::from_slice(&line);
            let Line { prepared } =
                facts.map_err(|error| format!("the player's first line has no facts: {error}"))?;
            says.send_modify(|said| said.facts = Some(prepared));
        } else if let Ok(Second { so_far }) = serde_json::from_slice(&line) {
            says.send_modify(|said| said.counts = so_far);
        }
    }
}

/// The reason with how the player ended, which says more when it refused its arguments.
async fn failed(child: &mut Child, reason: String) -> String {
    match timeout(Duration::from_secs(1), child.wait()).await {
        Ok(Ok(status)) => format!("the player ended before it was prepared ({status}); its stderr says why"),
        _ => reason,
    }
}

async fn read(record: &Path) -> io::Result<Vec<u8>> {
    let file = fs::File::open(record).await?;
    let mut bytes = Vec::new();
    file.take(RECORD_BYTES as u64 + 1).read_to_end(&mut bytes).await?;
    if bytes.len() > RECORD_BYTES {
        return Err(io::Error::other(format!("it has more than {RECORD_BYTES} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::tests::play as a_play;

    /// Plays with a shell script as player. `$last` is the file for its record.
    async fn play(script: &str, told: &[Commanded]) -> (Option<Facts>, Result<Ending, String>) {
        let script = format!("for last; do :; done; {script}");
        let arguments = ["-c", &script, "player"].map(OsString::from).to_vec();
        let process = Process { program: PathBuf::from("sh"), arguments };
        let (commands, receiver) = mpsc::channel(4);
        for command in told {
            commands.send(*command).await.unwrap();
        }
        let (says, said) = watch::channel(Said::default());
        let ending = process.play(Box::new(a_play()), 1, 3, receiver, says).await;
        (said.borrow().facts.clone(), ending)
    }

    #[tokio::test]
    async fn of_a_players_lines_those_that_count_are_passed_on() {
        let last = LiveCounts { connections: 3, sent: 7, deliveries: 9, ..LiveCounts::default() };
        let told = async |text: String| {
            let says = watch::Sender::new(Said::default());
            pass_on(format!("{FACTS}\n{text}").as_bytes(), &says).await.unwrap();
            says.borrow().counts
        };
        let line = serde_json::json!({ "second": 1, "so_far": last });
        assert_eq!(told(format!("{line}\n")).await, last);
        let long = "x".repeat(100_000);
        let first = line.to_string().replace("\"sent\":7", "\"sent\":6");
        let hostile = line.to_string().replace("[", "[1,");
        for garbage in ["", "{}", "\u{fffd}", "[[[[", &long, "{\"so_far\":{\"sent\":8}}", &hostile] {
            assert_eq!(told(format!("{first}\n{garbage}\n{line}\n{garbage}")).await, last, "{garbage}");
        }
    }

    const FACTS: &str = r#"{"prepared":{"plan_sha256":"plan","corpus_sha256":"corpus"}}"#;

    #[tokio::test]
    async fn a_player_states_its_facts_hears_its_start_and_leaves_a_record() {
        let script = format!("echo '{FACTS}'; read line; echo \"$line $*\" > $last; exit 3");
        let (found, ending) = play(&script, &[Commanded::Start { at_ns: 12 }]).await;
        let (plan_sha256, corpus_sha256) = ("plan".to_owned(), "corpus".to_owned());
        assert_eq!(found, Some(Facts { plan_sha256, corpus_sha256, url: None }));
        let Ending { exit_code, record } = ending.unwrap();
        let text = String::from_utf8(record).unwrap();
        assert_eq!(exit_code, Some(3));
        assert!(text.starts_with("start 12 --url=ws://127.0.0.1:1 "), "{text}");
        assert!(text.contains("--share=1/3 --quiet --record /"), "{text}");
        assert!(text.contains("/note-stream.toml "), "{text}");
        assert!(text.contains("/answers.json "), "{text}");
    }

    #[tokio::test]
    async fn a_player_hears_that_its_agent_is_there_and_when_to_stop() {
        for (reads, told, hears) in [
            ("read one; read two; echo $one $two", &[][..], "on on\n"),
            ("read one; echo $one", &[Commanded::Stop], "stop\n"),
        ] {
            let (_, ending) = play(&format!("echo '{FACTS}'; ({reads}) > $last"), told).await;
            assert_eq!(ending.unwrap().record, hears.as_bytes());
        }
    }

    #[tokio::test]
    async fn a_player_without_facts_or_record_has_failed() {
        for (script, expected) in [
            ("exit 2", "(exit status: 2)"),
            ("echo hello; sleep 9", "has no facts"),
            ("head -c 100000 /dev/zero; sleep 9", "has no facts"),
        ] {
            let (found, ending) = play(script, &[]).await;
            assert_eq!(found, None);
            assert!(ending.clone().unwrap_err().contains(expected), "{ending:?}");
        }
        let (_, ending) = play(&format!("echo '{FACTS}'; exit 1"), &[]).await;
        assert!(ending.unwrap_err().contains("(exit status: 1) without a record"));
        let (_, ending) = play(&format!("echo '{FACTS}'; head -c 1000000 /dev/zero > $last"), &[]).await;
        assert!(ending.unwrap_err().contains("more than 921600 bytes"));
    }
}
