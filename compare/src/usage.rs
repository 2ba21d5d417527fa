//! Mistakes that a user can correct.

use std::io::{self, Write};

use anyhow::{Context, Result};
use corpus::Corpus;

/// A mistake in the command line or in a file that it names, which ends the program with exit code
/// 2; the text says what is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub(crate) struct UsageError(pub(crate) anyhow::Error);

/// The flag of every client whose corpus is read past what is no valid event.
pub(crate) const SKIP_INVALID: &str = "--skip-invalid";

/// Whether it is among the arguments of every client.
pub(crate) fn skips_invalid(client_args: &[String]) -> bool {
    client_args.iter().any(|arg| arg == SKIP_INVALID)
}

/// Reads `--corpus` before anything is played, and says what `--skip-invalid` leaves out.
///
/// # Errors
/// Names the first line that is no event, or why there are none.
pub(crate) fn read_corpus(file: &str, skip_invalid: bool) -> Result<Corpus> {
    let corpus = Corpus::read_with(file.as_ref(), skip_invalid);
    let corpus = corpus.context("cannot read --corpus").map_err(UsageError)?;
    if corpus.skipped.count() > 0 {
        let _ = writeln!(io::stderr(), "{file}: {}; `corpus verify` lists all", corpus.skipped);
    }
    Ok(corpus)
}
