//! Mistakes that a user can correct.

use std::{
    fmt::Display,
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    path::Path,
};

use anyhow::{Context, Result, anyhow};
use codecs::quoted_lines;
use corpus::Corpus;
use measure::Exit;
use program::{Interrupt, UsageError};
use wire::Header;

/// An end of the program with an exit code of its own; the text says why.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    pub(crate) reason: String,
}

/// Refuses a command line for a reason, if there is one.
pub(crate) fn refuse(reason: Option<impl Display>) -> Result<(), UsageError> {
    reason.map_or(Ok(()), |reason| Err(UsageError(anyhow!("{reason}"))))
}

/// Awaits what a signal may end.
///
/// # Errors
/// The errors of `work`, and when the runtime cannot be started.
pub(crate) fn until_signal<T>(work: impl AsyncFnOnce(&mut Interrupt) -> Result<T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(async { work(&mut Interrupt::listen()?).await })
}

/// Says a line on stderr. A closed stderr loses nothing that the result needs.
pub(crate) fn note(quiet: bool, line: &str) {
    if !quiet {
        program::report(line);
    }
}

/// Why a command that measures ends without a result.
pub(crate) const NOTHING_MEASURED: &str = "nothing was measured, so no result was written";

/// The flag for clients that skips invalid events of the corpus.
pub(crate) const SKIP_INVALID: &str = "--skip-invalid";

/// Whether it is among the arguments of every client.
pub(crate) fn skips_invalid(client_args: &[String]) -> bool {
    client_args.iter().any(|arg| arg == SKIP_INVALID)
}

/// The values of a flag among the arguments for every client.
pub(crate) fn values(client_args: &[String], flag: &str) -> Vec<String> {
    let after = client_args.windows(2).filter(|pair| pair[0] == flag).map(|pair| pair[1].clone());
    let within = client_args.iter().filter_map(|arg| arg.strip_prefix(flag)?.strip_prefix('='));
    after.chain(within.map(str::to_owned)).collect()
}

/// Flags with header fields for a process, values included.
pub(crate) fn header_args(headers: &[Header]) -> impl Iterator<Item = String> {
    headers.iter().flat_map(|header| ["--header".to_owned(), header.with_value()])
}

/// The last that a process wrote into a file, quoted: an error and its causes.
pub(crate) fn last_words(file: &Path) -> String {
    const TAIL_BYTES: u64 = 4096;
    let mut words = Vec::new();
    // Without the file nothing was said.
    let _ = File::open(file).and_then(|mut file| {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        file.read_to_end(&mut words)
    });
    quoted_lines(String::from_utf8_lossy(&words).trim())
}

/// Reads `--corpus` before anything is played, and says what `--skip-invalid` leaves out.
///
/// # Errors
/// Names the first line that is no event, or why there are none, and a pipe, which every block
/// would read.
pub(crate) fn read_corpus(file: &str, skip_invalid: bool) -> Result<Corpus> {
    let is_pipe = fs::metadata(file).is_ok_and(|found| !found.is_file() && !found.is_dir());
    if file == "-" || is_pipe || file.starts_with("/dev/") || file.starts_with("/proc/") {
        let why =
            anyhow!("every block reads --corpus, and {file} can be read once: write its events to a file");
        return Err(UsageError(why).into());
    }
    let corpus = Corpus::read_with(file.as_ref(), skip_invalid);
    let corpus = corpus.context("cannot read --corpus").map_err(UsageError)?;
    if corpus.skipped.count() > 0 {
        program::report(&format!("{file}: {}; `corpus verify` lists all", corpus.skipped));
    }
    Ok(corpus)
}
