//! Mistakes that a user can correct.

/// A mistake in the command line or in a file that it names, which ends the program with exit code
/// 2; the text says what is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub(crate) struct UsageError(pub(crate) anyhow::Error);
