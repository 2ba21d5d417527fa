//! A relay for tests that must know it, tell it something or outlive it.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_client-sim"))
}

/// A relay process from the same program, with flags of its own.
pub(crate) struct Relay {
    pub(crate) child: Child,
    pub(crate) url: String,
}

impl Relay {
    pub(crate) fn start(flags: &[&str]) -> Relay {
        Relay::started_by(program(), flags)
    }

    /// A relay that another program starts, which is given the program and its flags.
    pub(crate) fn started_by(mut command: Command, flags: &[&str]) -> Relay {
        command.args(["role:relay", "--verify", "none"]).args(flags);
        Relay::announced(command)
    }

    /// What listens as a relay does, by a command that takes the flags of one.
    pub(crate) fn announced(mut command: Command) -> Relay {
        command.args(["--listen", "127.0.0.1:0", "--announce"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split('"').find(|part| part.starts_with("ws")).expect(&line).to_owned();
        Relay { child, url }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
