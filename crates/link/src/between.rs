//! External programs at both ends of a link. They show whether the link is as configured.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use crate::{
    emulation::Emulation,
    host,
    profile::Link,
    protocol::{DEFAULT_CONGESTION, Report},
};

/// Two programs and the link between them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Programs {
    /// As after `--link`.
    pub link: String,
    /// A program and its arguments, at the relay's side. It prints a line on standard output when
    /// it listens at [`crate::RELAY`].
    pub relay: Vec<String>,
    /// A program and its arguments, at the users' side; it ends by itself. Its packets cross the
    /// link when it binds an address of a user ([`crate::user_address`]).
    pub user: Vec<String>,
}

/// The output of the user's program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Heard {
    /// Its standard output.
    pub output: String,
    /// The emulator's report on that time.
    pub report: Report,
}

/// Runs both programs until the user's ends. Call it in a process of one thread; the process stays
/// in the link's namespaces.
///
/// # Errors
/// When the host forbids links, a program cannot be started, or the user's fails.
pub(crate) fn run(programs: &Programs) -> anyhow::Result<Heard> {
    let link: Link = programs.link.parse()?;
    host::enter()?;
    let mut emulation = Emulation::start(std::slice::from_ref(&link), 1, DEFAULT_CONGESTION, || {})?;
    // A process is in the namespace of the thread that starts it.
    let relay = command(&programs.relay)?.stdout(Stdio::piped()).spawn().context("the relay's program")?;
    let mut relay = Running(relay);
    let mut line = String::new();
    let output = relay.0.stdout.take().context("its output was asked for")?;
    BufReader::new(output).read_line(&mut line).context("the relay's program says nothing")?;
    ensure!(!line.is_empty(), "the relay's program ended before it listened");
    emulation.join_users()?;
    emulation.begin()?;
    let user = command(&programs.user)?.stderr(Stdio::piped()).output().context("the user's program")?;
    let report = emulation.report()?;
    let said = String::from_utf8_lossy(&user.stderr);
    ensure!(user.status.success(), "the user's program ended with {}: {said}", user.status);
    Ok(Heard { output: String::from_utf8_lossy(&user.stdout).into_owned(), report })
}

fn command(words: &[String]) -> anyhow::Result<Command> {
    let (program, arguments) = words.split_first().context("expected a program")?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    Ok(command)
}

/// A program that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Fails when it ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
