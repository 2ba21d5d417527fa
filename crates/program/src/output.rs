//! Lines for people and results for programs.

use std::io::{ErrorKind, Write, stderr, stdout};

use anyhow::Context;
use serde::Serialize;

/// A mistake in the command line or in a file that it names. It ends the program with exit code 2;
/// the text gives the fix.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub struct UsageError(pub anyhow::Error);

/// Prints a line to standard error, because standard output is for results. A closed standard error
/// is ignored.
pub fn report(text: &str) {
    let _ = writeln!(stderr(), "{text}");
}

/// Prints a result to standard output. A pipe that its reader closed is no error.
///
/// # Errors
/// When standard output cannot be written otherwise.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Prints a line of JSON for the program that started this one, which may be gone.
pub fn tell(line: &impl Serialize) {
    let _ = serde_json::to_writer(stdout(), line);
    let _ = writeln!(stdout());
}
