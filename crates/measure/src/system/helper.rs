//! This program again in another role: a process that answers lines.

use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use super::{host::MemoryKills, platform::own_program};

/// Time for an answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Time to end, beyond that of whatever the process waits for itself.
const ENDS_WITHIN: Duration = Duration::from_secs(15);

/// A process of this program in another role. It prints a line when it is ready, answers each line of its
/// input with one, and ends when its input does: when this is dropped, or this process ends.
#[derive(Debug)]
pub struct Helper {
    what: &'static str,
    child: Child,
    lines: Receiver<String>,
    kills: MemoryKills,
}

/// How a process ended.
#[derive(Debug)]
pub struct HelperEnd {
    /// Whether it ended by itself and with success.
    pub is_success: bool,
    /// The way, in words.
    pub how: String,
    /// What it said last, after the answers.
    pub last: Option<String>,
}

impl Helper {
    /// Starts this program with a role as first argument and what `add` adds to the command. `ended` is
    /// called when its output ends.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn start(
        role: &'static str,
        add: impl FnOnce(&mut Command),
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<Helper> {
        let what = role.trim_start_matches("role:");
        let mut command = Command::new(own_program()?);
        command.arg(role).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A process group of its own keeps Ctrl-C from it: it must live until the clients have closed.
        command.process_group(0);
        add(&mut command);
        let kills = MemoryKills::so_far();
        let mut child = command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("cannot start the {what} process: {error}"))
        })?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // Without a receiver nobody asks any more.
                if sender.send(line).is_err() {
                    break;
                }
            }
            drop(sender);
            ended();
        });
        Ok(Helper { what, child, lines, kills })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its first line, as long as it takes; `None` if it ended before.
    pub fn first_line(&self) -> Option<String> {
        self.lines.recv().ok()
    }

    /// Its next line, in the time of an answer.
    ///
    /// # Errors
    /// When it has ended, or is silent for too long.
    pub fn line_in_time(&self) -> io::Result<String> {
        self.lines.recv_timeout(ANSWERS_WITHIN).map_err(|error| match error {
            RecvTimeoutError::Disconnected => self.has_ended(),
            RecvTimeoutError::Timeout => {
                let (what, seconds) = (self.what, ANSWERS_WITHIN.as_secs());
                let why = format!("the {what} process did not answer for {seconds} s");
                io::Error::new(io::ErrorKind::TimedOut, why)
            }
        })
    }

    /// Its answer to a line.
    ///
    /// # Errors
    /// When it has ended, or is silent for too long.
    pub fn ask(&mut self, question: &str) -> io::Result<String> {
        // What came too late answers an earlier question.
        self.lines.try_iter().for_each(drop);
        let input = self.child.stdin.as_mut();
        if input.is_none_or(|input| writeln!(input, "{question}").is_err()) {
            return Err(self.has_ended());
        }
        self.line_in_time()
    }

    fn has_ended(&self) -> io::Error {
        io::Error::new(io::ErrorKind::BrokenPipe, format!("the {} process has ended", self.what))
    }

    /// How it ended, if it did.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn ended(&mut self) -> io::Result<Option<String>> {
        Ok(self.child.try_wait()?.map(|status| self.how(status)))
    }

    fn how(&self, status: ExitStatus) -> String {
        format!("the {}'s process {} ended with {}", self.what, self.pid(), self.kills.how(status))
    }

    /// Has it end; one that does not is killed.
    ///
    /// # Errors
    /// When the system does not tell how it ended.
    pub fn end(mut self) -> io::Result<HelperEnd> {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + ENDS_WITHIN;
        let mut last = None;
        let left = || deadline.saturating_duration_since(Instant::now());
        let is_late = loop {
            match self.lines.recv_timeout(left()) {
                Ok(line) => last = Some(line),
                Err(error) => break error == RecvTimeoutError::Timeout,
            }
        };
        if is_late {
            self.child.kill()?;
        }
        let status = self.child.wait()?;
        Ok(HelperEnd { is_success: status.success(), how: self.how(status), last })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + ENDS_WITHIN;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        // Fails when it ended meanwhile, which is what is wanted.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
