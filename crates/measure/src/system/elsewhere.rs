//! Stands for `linux.rs` on other systems: what they do not tell is missing, never zero.

use std::{env, io, path::PathBuf};

use nix::{errno::Errno, time::ClockId, unistd::Pid};

/// Why figures are missing in every record of this system; `None` where none is.
pub const UNKNOWN_HERE: Option<&str> = Some(
    "this system tells no CPU time of other processes, no wait for a core and no CPU pressure: the relay's CPU time is \
     not known, and a busy host goes unnoticed (Linux tells all of them)",
);

/// The file of this program, which may hold another build meanwhile.
///
/// # Errors
/// When the system does not tell.
pub fn own_program() -> io::Result<PathBuf> {
    env::current_exe()
}

/// The CPU clock of another process: none.
pub(crate) fn clock_of(_pid: Pid) -> nix::Result<ClockId> {
    Err(Errno::ENOTSUP)
}

/// The cores that a thread can be pinned to: none.
pub(crate) fn allowed_cores(_thread: Pid) -> io::Result<Vec<u32>> {
    Ok(Vec::new())
}

/// The core on which the calling thread runs: not told.
pub(crate) fn this_core() -> io::Result<u32> {
    Err(pins_nothing())
}

/// Pins nothing.
pub(crate) fn keep_to(_thread: Pid, _cores: &[u32]) -> io::Result<()> {
    Err(pins_nothing())
}

fn pins_nothing() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this system pins no thread to a core")
}
