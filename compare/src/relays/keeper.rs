//! The process between compare and a relay. It starts the relay, reads its output, and ends it with all
//! of its children, even if compare is killed.

use std::{
    collections::VecDeque,
    ffi::OsString,
    io::{self, Read, Write},
    os::unix::process::ExitStatusExt,
    process::{Command, ExitCode, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use measure::MemoryKills;
use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill},
        wait::{WaitStatus, waitpid},
    },
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

/// The first argument that makes a program a keeper; the relay's command follows.
pub const KEEPER_ROLE: &str = "role:relay-keeper";

/// Bytes kept of what a process writes: an error and its causes.
const TAIL_BYTES: usize = 4096;

/// Time for a relay to end after SIGTERM, and for the system to end it after SIGKILL.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time to read what the pipe still holds once no process is left.
const DRAINS_WITHIN: Duration = Duration::from_secs(1);

/// How a relay ended, as the keeper prints it last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ended {
    /// How its process ended, in words.
    pub(super) how: String,
    /// Whether it ended before it was asked to.
    pub(super) by_itself: bool,
    /// Whether SIGKILL was needed, and sent.
    pub(super) was_killed: bool,
    /// The processes that did not end, each with the reason.
    pub(super) alive: Vec<String>,
    /// The last that it wrote.
    pub(super) output: String,
    /// Bytes that it wrote.
    pub(super) output_bytes: u64,
}

enum Event {
    /// Standard input ended.
    Asked,
    /// A process ended.
    Ended(Pid, ExitStatus),
    /// None is left.
    Gone,
}

/// Runs a command until standard input ends, then ends all of its processes and prints how.
pub fn main(mut command: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(program) = command.next() else { return ExitCode::from(2) };
    let ended = keep(Command::new(&program).args(command));
    let ended = ended.unwrap_or_else(|error| Ended {
        how: format!("{} does not start: {error}", program.to_string_lossy()),
        by_itself: true,
        ..Ended::default()
    });
    let line = serde_json::json!(ended).to_string();
    match writeln!(io::stdout(), "{line}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn keep(command: &mut Command) -> io::Result<Ended> {
    // As relay-sim does for itself: otherwise two limits would be compared, and no relays.
    let _ = program::raise_descriptor_limit();
    let kills = MemoryKills::so_far();
    // Orphans of a relay become children of this process. Other systems have no such option.
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_child_subreaper(true)?;
    let (mut output, write) = io::pipe()?;
    let child = command.stdin(Stdio::null()).stdout(write.try_clone()?).stderr(write).spawn()?;
    // The command holds the write end, which would keep the pipe open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let relay = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    let tail = Arc::new(Mutex::new(Tail::default()));
    let written = Arc::clone(&tail);
    let (at_end, drained) = mpsc::channel::<()>();
    thread::spawn(move || {
        drain(&mut output, &written);
        drop(at_end);
    });
    let (events, event) = mpsc::channel();
    let asked = events.clone();
    thread::spawn(move || {
        // Whatever is read, and an error, too: nobody is there any more.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        asked.send(Event::Asked)
    });
    thread::spawn(move || {
        while let Some((pid, status)) = next_ended() {
            if events.send(Event::Ended(pid, status)).is_err() {
                return;
            }
        }
        let _ = events.send(Event::Gone);
    });
    let ended = attend(relay, &event, kills);
    // Usually no process is left, so the pipe has an end; what it still holds may be the reason.
    let _ = drained.recv_timeout(DRAINS_WITHIN);
    let tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Ended { output: tail.text(), output_bytes: tail.all_bytes, ..ended })
}

/// Waits for the end of all processes: until it is asked, then by SIGTERM, then by SIGKILL. Says how,
/// but not what the relay wrote.
fn attend(relay: Pid, events: &mpsc::Receiver<Event>, kills: MemoryKills) -> Ended {
    let mut ended = Ended { how: "it did not end".to_owned(), ..Ended::default() };
    let mut asked = None;
    let mut is_killing = false;
    loop {
        let deadline = asked.map(|asked: Instant| asked + PATIENCE);
        let event = match deadline {
            None => events.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
            Some(_) if is_killing => events.recv_timeout(Duration::from_millis(20)),
            Some(deadline) => events.recv_timeout(deadline.saturating_duration_since(Instant::now())),
        };
        match event {
            Ok(Event::Ended(pid, status)) if pid == relay => ended.how = kills.how(status),
            Ok(Event::Ended(..)) => {}
            Ok(Event::Gone) | Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Ended { by_itself: asked.is_none(), ..ended };
            }
            Ok(Event::Asked) => {
                asked = Some(Instant::now());
                signal_all(relay, Signal::SIGTERM);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                is_killing = true;
                ended.was_killed |= signal_all(relay, Signal::SIGKILL);
                if deadline.is_some_and(|deadline| deadline + PATIENCE < Instant::now()) {
                    return Ended { alive: alive(relay), ..ended };
                }
            }
        }
    }
}

/// Everything that this process started, and that what it started did; where the system does not
/// tell of these, the relay alone.
fn all(relay: Pid) -> Vec<Pid> {
    let started = measure::started_by(std::process::id());
    let pids: Vec<Pid> =
        started.into_iter().filter_map(|pid| i32::try_from(pid).ok()).map(Pid::from_raw).collect();
    if pids.is_empty() && !cfg!(target_os = "linux") { vec![relay] } else { pids }
}

/// Signals all; whether any took it. It may have ended meanwhile, or be another user's.
fn signal_all(relay: Pid, signal: Signal) -> bool {
    all(relay).into_iter().filter(|pid| kill(*pid, signal).is_ok()).count() > 0
}

/// The processes that live, each with the reason.
fn alive(relay: Pid) -> Vec<String> {
    let reason = |pid| match kill(pid, None) {
        Err(Errno::ESRCH) => None,
        Err(error) => Some(format!("process {pid} may not be signalled by this user ({})", error.desc())),
        Ok(()) => Some(format!("process {pid} does not end by SIGKILL")),
    };
    all(relay).into_iter().filter_map(reason).collect()
}

/// The next process that ends; `None` when none is left.
fn next_ended() -> Option<(Pid, ExitStatus)> {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) => return Some((pid, ExitStatus::from_raw(code << 8))),
            Ok(WaitStatus::Signaled(pid, signal, _)) => {
                return Some((pid, ExitStatus::from_raw(signal as i32)));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
    }
}

/// The last bytes of what a process writes.
#[derive(Debug, Default)]
struct Tail {
    bytes: VecDeque<u8>,
    all_bytes: u64,
}

impl Tail {
    fn add(&mut self, bytes: &[u8]) {
        self.all_bytes += bytes.len() as u64;
        self.bytes.extend(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
        let excess = self.bytes.len().saturating_sub(TAIL_BYTES);
        self.bytes.drain(..excess);
    }

    fn text(&self) -> String {
        let (head, rest) = self.bytes.as_slices();
        String::from_utf8_lossy(&[head, rest].concat()).trim().to_owned()
    }
}

/// Reads to the end, in pieces so large that a relay which writes much loses little time.
fn drain(output: &mut impl Read, tail: &Mutex<Tail>) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match output.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => tail.lock().unwrap_or_else(PoisonError::into_inner).add(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
