//! Replaces `host.rs` and `process.rs` on systems without network namespaces: no link can be
//! emulated.

use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

use nix::sys::socket::SockFlag;

/// Flags of a socket that no program inherits: no such flag exists here.
pub(crate) const CLOSE_ON_EXEC: SockFlag = SockFlag::empty();

/// Why links cannot be emulated on this host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this host cannot emulate links: they need the network namespaces of Linux. The rest of the program works without --link"
)]
pub struct NotPossible(());

/// Moves this process to a network namespace of its own.
///
/// # Errors
/// Always.
pub fn enter() -> Result<(), NotPossible> {
    Err(NotPossible(()))
}

/// Moves the calling thread to the network namespace of a process.
///
/// # Errors
/// Always.
pub(crate) fn join(_pid: u32) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, NotPossible(())))
}

/// Refuses to be an emulator.
pub fn main(_args: impl Iterator<Item = OsString>) -> ExitCode {
    // Nobody is left to hear when the stream is closed.
    let _ = writeln!(io::stderr(), "{}", NotPossible(()));
    ExitCode::FAILURE
}
