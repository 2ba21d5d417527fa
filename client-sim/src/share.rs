//! Plays one agent's share of a plan: what a coordinator says on standard input, and what this
//! process tells it on standard output.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, stdin},
    iter,
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    time::{ClockId, clock_gettime},
};
use tokio::sync::watch;

use program::print;
use workload::{Share, schedule::nanos};

/// The longest line of a coordinator, with the newline at its end.
const LINE_BYTES: u64 = 1 << 10;

/// After the first `on` silence for so many milliseconds is a stop: five of an agent's lines.
const SILENCE_MS: u16 = 1_000;

/// The start is at least so far ahead: a worker needs a moment to be ready for it.
const AHEAD: Duration = Duration::from_millis(500);

/// The start is at most so far ahead: beyond it the instant is of another clock.
const FAR_AHEAD: Duration = Duration::from_secs(3_600);

/// The player of a share: which share of which plan, and what its coordinator says.
#[derive(Debug, Clone)]
pub struct Player {
    /// Its share.
    pub share: Share,
    /// [`workload::Workload::sha256`] of the whole plan.
    pub plan_sha256: String,
    /// The fingerprint of the corpus in hex.
    pub corpus_sha256: String,
    /// The coordinator's orders.
    pub orders: Orders,
}

/// Tells the coordinator which plan over which events is ready for the start, and of a relay where
/// it is reached.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn say_prepared(plan_sha256: &str, corpus_sha256: &str, url: Option<&str>) -> Result<()> {
    let prepared = serde_json::json!({
        "prepared": { "plan_sha256": plan_sha256, "corpus_sha256": corpus_sha256, "url": url },
    });
    print(&format!("{prepared}\n"))
}

/// Orders of a coordinator so far.
#[derive(Debug, Default)]
struct Said {
    start_ns: Option<u64>,
    stop: Option<String>,
}

/// The orders of a coordinator: `start NANOSECONDS` of CLOCK_MONOTONIC, `on` and `stop`, a line
/// each. The end of the input is a stop, and so is any other line. After the first `on` a second of
/// silence is a stop, too, because a process that is stopped (SIGSTOP) keeps its end of the pipe open.
#[derive(Debug, Clone)]
pub struct Orders(watch::Receiver<Said>);

impl Orders {
    /// Reads standard input from now on, on a thread that ends with the process: a read cannot be
    /// interrupted.
    pub fn of_stdin() -> Orders {
        let (sender, said) = watch::channel(Said::default());
        thread::spawn(move || {
            // Not the buffered `Stdin`, whose lines `poll` does not see. Without a reader there is a stop.
            if let Ok(input) = stdin().as_fd().try_clone_to_owned() {
                obey(File::from(input), &sender);
            }
        });
        Orders(said)
    }

    /// Waits for a stop; returns its reason.
    pub async fn stopped(&self) -> String {
        let mut said = self.0.clone();
        match said.wait_for(|said| said.stop.is_some()).await {
            Ok(said) => said.stop.clone().unwrap_or_default(),
            Err(_) => "nobody reads standard input".to_owned(),
        }
    }

    /// Waits for a start; returns its instant.
    ///
    /// # Errors
    /// When the instant is too near or too far.
    pub async fn start(&self) -> Result<Instant> {
        let mut said = self.0.clone();
        let start_ns = match said.wait_for(|said| said.start_ns.is_some()).await {
            Ok(said) => said.start_ns.unwrap_or_default(),
            // Without a reader there is a stop, and no start.
            Err(_) => std::future::pending().await,
        };
        let (now, now_ns) = clocks()?;
        Ok(now + ahead(start_ns, now_ns)?)
    }
}

/// One line of a coordinator.
enum Order {
    Start(u64),
    On,
    Stop(String),
}

/// Follows orders until the first stop.
fn obey(input: impl Read + AsFd, sender: &watch::Sender<Said>) {
    let mut input = BufReader::new(input);
    let mut patience = PollTimeout::NONE;
    loop {
        let is_second = sender.borrow().start_ns.is_some();
        let stop = match next_order(&mut input, patience) {
            Order::On => {
                patience = SILENCE_MS.into();
                continue;
            }
            Order::Start(start_ns) if !is_second => {
                sender.send_modify(|said| said.start_ns = Some(start_ns));
                continue;
            }
            Order::Start(_) => "the coordinator started the load twice".to_owned(),
            Order::Stop(reason) => reason,
        };
        return sender.send_modify(|said| said.stop = Some(stop));
    }
}

/// The next line, if one comes in time. The kernel judges that, so that a thread that waits for a
/// core takes no waiting line for silence. An agent writes whole lines.
fn next_order(input: &mut BufReader<impl Read + AsFd>, patience: PollTimeout) -> Order {
    if input.buffer().is_empty() {
        let mut waited = [PollFd::new(input.get_ref().as_fd(), PollFlags::POLLIN)];
        // Another thread's signal may end the wait.
        let mut polls = iter::repeat_with(|| poll(&mut waited, patience));
        if polls.find(|polled| *polled != Err(Errno::EINTR)) == Some(Ok(0)) {
            return Order::Stop("the agent is silent".to_owned());
        }
    }
    let mut line = Vec::new();
    match input.take(LINE_BYTES).read_until(b'\n', &mut line) {
        Ok(_) if line.ends_with(b"\n") => order(&line),
        Ok(_) if line.len() as u64 == LINE_BYTES => {
            Order::Stop("the coordinator sent a line beyond 1 KiB".to_owned())
        }
        Ok(_) => Order::Stop("standard input ended".to_owned()),
        Err(error) => Order::Stop(format!("cannot read standard input: {error}")),
    }
}

fn order(line: &[u8]) -> Order {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end();
    let start = text.strip_prefix("start ").filter(|ns| ns.bytes().all(|byte| byte.is_ascii_digit()));
    match (text, start.and_then(|ns| ns.parse().ok())) {
        (_, Some(start_ns)) => Order::Start(start_ns),
        ("on", _) => Order::On,
        ("stop", _) => Order::Stop("the coordinator said stop".to_owned()),
        _ => {
            let shown: String = text.chars().take(40).collect();
            Order::Stop(format!("the coordinator sent an unknown order: {shown:?}"))
        }
    }
}

/// One instant on both clocks: as the standard library has it, and in nanoseconds of
/// CLOCK_MONOTONIC.
fn clocks() -> Result<(Instant, u64)> {
    const ATTEMPTS: usize = 8;
    let mut best: Option<(Duration, Instant, u64)> = None;
    // Between two readings the process may have to wait for a core.
    for _ in 0..ATTEMPTS {
        let before = Instant::now();
        let read = clock_gettime(ClockId::CLOCK_MONOTONIC).context("cannot read CLOCK_MONOTONIC")?;
        let read_ns = nanos(read.into());
        let took = before.elapsed();
        if best.is_none_or(|best| took < best.0) {
            best = Some((took, before + took / 2, read_ns));
        }
    }
    let (_, now, now_ns) = best.expect("there are attempts");
    Ok((now, now_ns))
}

/// How far a start is ahead.
fn ahead(start_ns: u64, now_ns: u64) -> Result<Duration> {
    let ahead = Duration::from_nanos(start_ns.saturating_sub(now_ns));
    let ahead_ms = (i128::from(start_ns) - i128::from(now_ns)) / 1_000_000;
    let least_ms = AHEAD.as_millis();
    ensure!(ahead >= AHEAD, "the start is {ahead_ms} ms ahead, and must be {least_ms} ms ahead or more");
    ensure!(ahead <= FAR_AHEAD, "the start is {ahead_ms} ms ahead; is it of this machine's CLOCK_MONOTONIC?");
    Ok(ahead)
}

#[cfg(test)]
mod tests {
    use std::io::{Write, pipe};

    use super::*;

    #[test]
    fn what_is_no_order_stops() {
        let said = |input: &str| {
            let (sender, said) = watch::channel(Said::default());
            let (reader, mut writer) = pipe().unwrap();
            writer.write_all(input.as_bytes()).unwrap();
            drop(writer);
            obey(reader, &sender);
            let said = said.borrow();
            (said.start_ns, said.stop.clone().unwrap())
        };
        assert_eq!(said("on\nstart 12\non\n"), (Some(12), "standard input ended".to_owned()));
        assert_eq!(said("start 12\n"), (Some(12), "standard input ended".to_owned()));
        assert_eq!(said("start 12\nstop\nstart 13\n"), (Some(12), "the coordinator said stop".to_owned()));
        assert_eq!(said("start 12\nstart 12\n").1, "the coordinator started the load twice");
        let long = format!("stop{}\n", " ".repeat(2_000));
        assert_eq!(said(&long), (None, "the coordinator sent a line beyond 1 KiB".to_owned()));
        for line in
            ["", "start", "start ", "start x", "start -1", "start +1", "start 1 2", "stop now", "on 1"]
        {
            let (start, stop) = said(&format!("{line}\n"));
            assert!(start.is_none() && stop.contains("an unknown order"), "{line}: {stop}");
        }
        let beyond = format!("start {}0\n", u64::MAX);
        assert!(said(&beyond).1.contains("an unknown order"));
        assert_eq!(said("start 12"), (None, "standard input ended".to_owned()), "half a line is none");
        assert_eq!(said(""), (None, "standard input ended".to_owned()));
    }

    #[test]
    fn silence_stops_only_after_the_first_on() {
        let (sender, said) = watch::channel(Said::default());
        let (reader, mut writer) = pipe().unwrap();
        let obeys = thread::spawn(move || obey(reader, &sender));
        let silence = Duration::from_millis(SILENCE_MS.into());
        thread::sleep(silence + silence / 2);
        assert_eq!(said.borrow().stop, None, "nobody has said that it says so");
        writer.write_all(b"on\n").unwrap();
        let since = Instant::now();
        obeys.join().unwrap();
        assert!(since.elapsed() >= silence - Duration::from_millis(10), "{:?}", since.elapsed());
        assert_eq!(said.borrow().stop.as_deref(), Some("the agent is silent"));
    }

    #[test]
    fn a_start_is_half_a_second_to_an_hour_ahead() {
        const SECOND: u64 = 1_000_000_000;
        assert_eq!(ahead(3 * SECOND, SECOND).unwrap(), Duration::from_secs(2));
        let why = |start_ns| ahead(start_ns, 10 * SECOND).unwrap_err().to_string();
        assert!(why(9 * SECOND).contains("the start is -1000 ms ahead"));
        assert!(why(10 * SECOND + SECOND / 2 - 1).contains("the start is 499 ms ahead"));
        assert!(why(0).contains("-10000 ms") && why(u64::MAX).contains("is it of this machine's"));
    }
}
