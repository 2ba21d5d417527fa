//! A program that runs, and one that ended: its exit code, and what it wrote.

use std::{
    fmt,
    process::{Child, Command, Output},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

pub(crate) fn send(signal: Signal, pid: u32) {
    kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Its command line, for whoever reads a failure.
    line: String,
    /// Its exit code; `None` after a signal.
    pub(crate) code: Option<i32>,
    /// Its standard output.
    pub(crate) out: String,
    /// Its standard error.
    pub(crate) said: String,
}

/// Waits for a program's end.
pub(crate) trait Runs {
    fn ran(self) -> Ran;
}

impl Runs for &mut Command {
    fn ran(self) -> Ran {
        Ran::new(format!("{self:?}"), self.output().unwrap())
    }
}

impl Runs for Child {
    fn ran(self) -> Ran {
        Ran::new(format!("process {}", self.id()), self.wait_with_output().unwrap())
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ended with {:?}\n{}{}", self.line, self.code, self.out, self.said)
    }
}

impl Ran {
    pub(crate) fn new(line: String, Output { status, stdout, stderr }: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ran { line, code: status.code(), out: text(stdout), said: text(stderr) }
    }

    /// It measured: a busy machine may make its times invalid (3), but never its ledger wrong.
    #[track_caller]
    pub(crate) fn measured(self) -> Ran {
        assert!(matches!(self.code, Some(0 | 3)), "{self}");
        self
    }

    /// It ended with this code.
    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{self}");
        self
    }

    /// It said each of these on standard error.
    #[track_caller]
    pub(crate) fn saying(self, all: &[&str]) -> Ran {
        all.iter().for_each(|words| assert!(self.said.contains(words), "no {words:?}: {self}"));
        self
    }
}
