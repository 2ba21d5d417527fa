//! Pins relay and clients to separate cores: two processes that share cores measure the scheduler
//! too.

use std::{fs, io};

use nix::unistd::Pid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::platform;

/// The calling thread. Threads and processes that it starts later inherit its cores
/// (sched_setaffinity(2)).
const SELF: Pid = Pid::from_raw(0);

/// Which cores the two processes of a run kept to, by the kernel's numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PinnedCores {
    /// Cores of the relay.
    pub relay: Vec<u32>,
    /// Cores of the clients.
    pub clients: Vec<u32>,
}

/// Halves the cores that this process may use: the first half for the relay, the rest and an odd
/// one for the clients. Sibling threads of a core stay together, unless there is one core alone.
/// `None` when there is a single CPU, and on a system that pins nothing.
///
/// # Errors
/// When the kernel does not report the allowed cores.
pub fn halves() -> io::Result<Option<PinnedCores>> {
    let (mut left, mut cores) = (allowed()?, Vec::new());
    while let Some(first) = left.first().copied() {
        let siblings = siblings(first);
        let (core, rest) = left.into_iter().partition(|cpu| *cpu == first || siblings.contains(cpu));
        cores.push(core);
        left = rest;
    }
    if let [only] = &cores[..] {
        cores = only.chunks(1).map(<[u32]>::to_vec).collect();
    }
    let (relay, clients) = cores.split_at(cores.len() / 2);
    Ok((!relay.is_empty()).then(|| PinnedCores { relay: relay.concat(), clients: clients.concat() }))
}

/// The CPUs that are threads of the core of this one; none where the system does not report them.
fn siblings(cpu: u32) -> Vec<u32> {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    fs::read_to_string(file).map(|list| cpu_list(&list)).unwrap_or_default()
}

/// CPUs as the kernel lists them: `0-1,4`.
fn cpu_list(list: &str) -> Vec<u32> {
    let span = |span: &str| {
        let (first, last) = span.split_once('-').unwrap_or((span, span));
        Some(first.parse::<u32>().ok()?..=last.parse().ok()?)
    };
    // A core has few threads, whatever the file claims.
    list.trim().split(',').filter_map(span).flatten().take(1 << 10).collect()
}

/// CPUs of the relay, each with a CPU of the clients that is a thread of the same core; none where
/// both may use the same CPUs.
pub(crate) fn siblings_of_both(cores: &PinnedCores) -> Vec<[u32; 2]> {
    let PinnedCores { relay, clients } = cores;
    if relay.iter().any(|cpu| clients.contains(cpu)) {
        return Vec::new();
    }
    let pairs = |cpu: &u32| {
        let (cpu, siblings) = (*cpu, siblings(*cpu));
        clients.iter().filter(move |other| siblings.contains(other)).map(move |other| [cpu, *other])
    };
    relay.iter().flat_map(pairs).collect()
}

/// The cores that the calling thread may use.
///
/// # Errors
/// When the kernel does not report them.
pub fn allowed() -> io::Result<Vec<u32>> {
    platform::allowed_cores(SELF)
}

/// The separate cores of a relay's processes and of this one, where somebody pinned both.
pub fn apart(relay: &[u32]) -> Option<PinnedCores> {
    of_both(relay).filter(|cores| cores.relay.iter().all(|core| !cores.clients.contains(core)))
}

/// The cores that a relay's processes and this one may use, where the processes are known.
pub(crate) fn of_both(relay: &[u32]) -> Option<PinnedCores> {
    let of = |pid: &u32| platform::allowed_cores(Pid::from_raw(i32::try_from(*pid).ok()?)).ok();
    let clients = allowed().ok()?;
    let mut relay: Vec<u32> = relay.iter().map(of).collect::<Option<Vec<_>>>()?.concat();
    relay.sort_unstable();
    relay.dedup();
    (!relay.is_empty()).then_some(PinnedCores { relay, clients })
}

/// Pins as [`keep_to`] does, to the core on which the calling thread runs.
///
/// # Errors
/// When the kernel refuses.
pub fn keep_to_this() -> io::Result<()> {
    keep_to(&[platform::this_core()?])
}

/// Pins the calling thread, and the threads and processes that it starts later, to these cores.
///
/// # Errors
/// When the kernel refuses.
pub fn keep_to(cores: &[u32]) -> io::Result<()> {
    platform::keep_to(SELF, cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read_as_the_kernel_writes_them() {
        assert_eq!(cpu_list("0-1\n"), [0, 1]);
        assert_eq!(cpu_list("0,4-6"), [0, 4, 5, 6]);
        assert_eq!(cpu_list("0-4294967295").len(), 1 << 10);
        for none in ["", "\n", "a", "1-", "-1"] {
            assert_eq!(cpu_list(none), [0; 0], "{none}");
        }
    }

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
