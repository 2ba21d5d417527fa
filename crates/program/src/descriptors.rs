//! Descriptors that a process may open: a connection is one.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The most that macOS takes from a process whose maximum is unlimited (`OPEN_MAX`, setrlimit(2)).
const OPEN_MAX: u64 = 10_240;

/// Raises the limit of open descriptors to its maximum, and returns it.
///
/// # Errors
/// When the system does not report the maximum, or refuses it.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let most = if cfg!(target_os = "macos") { hard.min(OPEN_MAX) } else { hard };
    setrlimit(Resource::RLIMIT_NOFILE, most, hard)?;
    Ok(most)
}
