//! Facts about processes and cores that only Linux reports; `elsewhere.rs` replaces them on other systems.

use std::{io, path::PathBuf};

use nix::{
    sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity},
    time::{ClockId, clock_getcpuclockid},
    unistd::Pid,
};

/// Why figures are missing in every record of this system; `None` where none is.
pub const UNKNOWN_HERE: Option<&str> = None;

/// The program that this process runs, for starting it again: the same build also after its file
/// was replaced. Another program resolves this path to its own file.
///
/// # Errors
/// None on this system.
pub fn own_program() -> io::Result<PathBuf> {
    Ok(PathBuf::from("/proc/self/exe"))
}

/// The CPU clock of another process.
pub(crate) fn clock_of(pid: Pid) -> nix::Result<ClockId> {
    clock_getcpuclockid(pid)
}

/// The cores that a thread may use.
pub(crate) fn allowed_cores(thread: Pid) -> io::Result<Vec<u32>> {
    let allowed = sched_getaffinity(thread)?;
    let cores = (0..CpuSet::count()).filter(|&core| allowed.is_set(core).unwrap_or(false));
    Ok(cores.filter_map(|core| u32::try_from(core).ok()).collect())
}

/// The core on which the calling thread runs.
pub(crate) fn this_core() -> io::Result<u32> {
    u32::try_from(sched_getcpu()?).map_err(io::Error::other)
}

/// Pins a thread, and what it starts later, to these cores.
pub(crate) fn keep_to(thread: Pid, cores: &[u32]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cores.iter().try_for_each(|&core| set.set(core as usize))?;
    Ok(sched_setaffinity(thread, &set)?)
}
