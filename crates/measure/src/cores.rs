//! Pins relay and clients to separate cores: two processes that share cores measure the scheduler
//! too.

use std::io;

use crate::{PinnedCores, system};
use nix::unistd::Pid;

/// The calling thread. Threads and processes that it starts later inherit its cores
/// (sched_setaffinity(2)).
const SELF: Pid = Pid::from_raw(0);

/// Halves the cores that this process may use: the first half for the relay, the rest and an odd
/// one for the clients. `None` when there is a single core, and on a system that pins nothing.
///
/// # Errors
/// When the kernel does not report the allowed cores.
pub fn halves() -> io::Result<Option<PinnedCores>> {
    let cores = allowed()?;
    let (relay, clients) = cores.split_at(cores.len() / 2);
    Ok((!relay.is_empty()).then(|| PinnedCores { relay: relay.to_vec(), clients: clients.to_vec() }))
}

/// The cores that the calling thread may use.
///
/// # Errors
/// When the kernel does not report them.
pub fn allowed() -> io::Result<Vec<u32>> {
    system::allowed_cores(SELF)
}

/// The separate cores of a relay's processes and of this one, where somebody pinned both.
pub fn apart(relay: &[u32]) -> Option<PinnedCores> {
    let of = |pid: &u32| system::allowed_cores(Pid::from_raw(i32::try_from(*pid).ok()?)).ok();
    let clients = allowed().ok()?;
    let mut relay: Vec<u32> = relay.iter().map(of).collect::<Option<Vec<_>>>()?.concat();
    relay.sort_unstable();
    relay.dedup();
    let is_apart = !relay.is_empty() && relay.iter().all(|core| !clients.contains(core));
    is_apart.then_some(PinnedCores { relay, clients })
}

/// Pins as [`keep_to`] does, to the core on which the calling thread runs.
///
/// # Errors
/// When the kernel refuses.
pub fn keep_to_this() -> io::Result<()> {
    keep_to(&[system::this_core()?])
}

/// Pins the calling thread, and the threads and processes that it starts later, to these cores.
///
/// # Errors
/// When the kernel refuses.
pub fn keep_to(cores: &[u32]) -> io::Result<()> {
    system::keep_to(SELF, cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_start_later_keep_to_the_same_cores() {
        // A thread of its own, so that no other test is pinned.
        std::thread::spawn(|| {
            let Some(halves) = halves().unwrap() else {
                let cores = std::thread::available_parallelism().unwrap().get();
                assert_eq!(cores, 1, "cores to divide");
                return;
            };
            assert!(halves.relay.iter().all(|core| !halves.clients.contains(core)), "{halves:?}");
            keep_to(&halves.clients).unwrap();
            let (count, rest) = std::thread::spawn(|| {
                (std::thread::available_parallelism().unwrap().get(), super::halves().unwrap())
            })
            .join()
            .unwrap();
            assert_eq!(count, halves.clients.len());
            assert_eq!(rest.is_none(), count == 1);
        })
        .join()
        .unwrap();
    }
}
