//! The emulator's process as the program sees it that started it.

use std::{
    io::{BufRead, BufReader, Write},
    net::Ipv4Addr,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use crate::{
    host,
    profile::Link,
    protocol::{LINK_ROLE, Order, Ready, Report, TcpSettings},
};

/// How long the emulator may take for an answer, or to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// A running emulator; it ends when this is dropped, or when this process ends.
#[derive(Debug)]
pub struct Emulation {
    child: Child,
    answers: Receiver<String>,
    /// The emulator's process id.
    pub pid: u32,
    /// The settings of TCP in its namespaces.
    pub tcp: TcpSettings,
}

impl Emulation {
    /// Starts an emulator for these links. The network namespace of the calling thread, which
    /// [`crate::enter`] made, becomes the relay's. Start the relay next, then call
    /// [`Emulation::join_users`]. `unbound` is the user whose connections bind no address. `ended` is
    /// called when the emulator's process ends, for any reason.
    ///
    /// # Errors
    /// When the host forbids a device or a namespace; the emulator has reported it on standard
    /// error.
    pub fn start(
        links: &[Link],
        seed: u64,
        congestion: &str,
        unbound: Ipv4Addr,
        ended: impl FnOnce() + Send + 'static,
    ) -> anyhow::Result<Emulation> {
        let links = links.iter().map(Link::spelled_out).collect();
        let order = Order { links, seed, congestion: congestion.to_owned(), unbound };
        let program = measure::own_program().context("cannot find the file of this program")?;
        let mut child = Command::new(program)
            .arg(LINK_ROLE)
            .arg(serde_json::to_string(&order)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A process group of its own keeps Ctrl-C from the emulator, which must live until the
            // clients have closed.
            .process_group(0)
            .spawn()
            .context("cannot start the emulator's process")?;
        let output = child.stdout.take().context("the emulator's output was asked for")?;
        let (sender, answers) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
            drop(sender);
            ended();
        });
        let mut emulation = Emulation { child, answers, pid: 0, tcp: TcpSettings::default() };
        let line = emulation.line().context("the emulator did not start; its reason stands above")?;
        let Ready { pid, tcp } = serde_json::from_str(&line).with_context(|| format!("not ready: {line}"))?;
        (emulation.pid, emulation.tcp) = (pid, tcp);
        Ok(emulation)
    }

    /// Moves the calling thread, and the threads and processes that it starts later, to the
    /// namespace of the users.
    ///
    /// # Errors
    /// When the emulator has ended.
    pub fn join_users(&self) -> anyhow::Result<()> {
        host::join(self.pid).context("cannot join the users' network namespace")
    }

    /// Begins the counts anew.
    ///
    /// # Errors
    /// When the emulator has ended.
    pub fn begin(&mut self) -> anyhow::Result<()> {
        self.ask("begin").map(drop)
    }

    /// The emulator's report since [`Emulation::begin`].
    ///
    /// # Errors
    /// When the emulator has ended.
    pub fn report(&mut self) -> anyhow::Result<Report> {
        let line = self.ask("report")?;
        serde_json::from_str(&line).with_context(|| format!("not a report: {line:.200}"))
    }

    fn ask(&mut self, question: &str) -> anyhow::Result<String> {
        let stdin = self.child.stdin.as_mut().context("the emulator's input was asked for")?;
        writeln!(stdin, "{question}").context("the emulator of links has ended")?;
        self.line()
    }

    fn line(&mut self) -> anyhow::Result<String> {
        match self.answers.recv_timeout(PATIENCE) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => {
                bail!("the emulator of links did not answer for {} s", PATIENCE.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the emulator of links has ended"),
        }
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        // The emulator ends with its standard input.
        drop(self.child.stdin.take());
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
        // Fails when it ended meanwhile, which is what is wanted.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
