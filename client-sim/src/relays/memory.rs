//! Memory of the processes (`/proc/PID/status`, proc_pid_status(5)): what is their own, and the files
//! that they have mapped, which the kernel can take back.

use std::fs;

use measure::{MemoryRecord, Processes};

/// A process's resident memory, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resident {
    /// Anonymous memory (`RssAnon`), and memory shared with related processes (`RssShmem`).
    pub(crate) own_bytes: u64,
    /// Mapped files (`RssFile`).
    pub(crate) file_bytes: u64,
}

/// Reads `/proc/PID/status`; `None` when the process is gone.
pub(crate) fn resident(pid: u32) -> Option<Resident> {
    parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn parse(status: &str) -> Option<Resident> {
    let kib = |name: &str| {
        let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
        rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    // A kernel that does not tell them apart counts all as its own.
    let own = kib("RssAnon:").map(|own| own + kib("RssShmem:").unwrap_or(0)).or_else(|| kib("VmRSS:"))?;
    Some(Resident { own_bytes: own * 1024, file_bytes: kib("RssFile:").unwrap_or(0) * 1024 })
}

/// The same of several processes with all that they started, of which shared pages count in each;
/// `None` when one that was named is gone, or for none.
pub(crate) fn resident_of(pids: &[u32]) -> Option<Resident> {
    let all = (!pids.is_empty()).then(|| Processes::from_pids(pids).ok())??.pids();
    let sum = |sum: Resident, one: Resident| Resident {
        own_bytes: sum.own_bytes + one.own_bytes,
        file_bytes: sum.file_bytes + one.file_bytes,
    };
    all.into_iter().filter_map(resident).reduce(sum)
}

/// The record of all processes before any of the run's connections. The gateway, where there is one, is
/// among the relay's processes, and read by itself, too.
pub(crate) fn before(relay_pids: &[u32], gateway_pid: Option<u32>) -> Option<MemoryRecord> {
    Some(MemoryRecord {
        client_before_bytes: resident(std::process::id())?.own_bytes,
        relay_before_bytes: resident_of(relay_pids).map(|resident| resident.own_bytes),
        gateway_before_bytes: gateway_pid.and_then(resident).map(|resident| resident.own_bytes),
        ..MemoryRecord::default()
    })
}

/// The same with what they have once so many connections are open.
pub(crate) fn opened(
    before: MemoryRecord,
    relay_pids: &[u32],
    gateway_pid: Option<u32>,
    connections: usize,
) -> Option<MemoryRecord> {
    let relay = resident_of(relay_pids).map(|resident| resident.own_bytes);
    Some(MemoryRecord {
        connections: connections as u64,
        client_after_bytes: resident(std::process::id())?.own_bytes,
        relay_after_bytes: relay,
        relay_peak_bytes: relay.max(before.relay_before_bytes),
        gateway_after_bytes: gateway_pid.and_then(resident).map(|resident| resident.own_bytes),
        ..before
    })
}

/// Reads the relay's process once more, at the end of the run. What is unknown then stays unknown.
pub(crate) fn at_end(memory: MemoryRecord, relay_pids: &[u32]) -> MemoryRecord {
    let relay = resident_of(relay_pids);
    let most = relay.zip(memory.relay_peak_bytes).map(|(relay, most)| relay.own_bytes.max(most));
    MemoryRecord { relay_peak_bytes: most, relay_file_bytes: relay.map(|relay| relay.file_bytes), ..memory }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_is_a_process_own_without_the_files_that_it_has_mapped() {
        let own = resident(std::process::id()).unwrap();
        assert!(own.own_bytes > 100_000 && own.file_bytes > 100_000, "{own:?}");
        let strfry = "VmHWM:\t 96256 kB\nVmRSS:\t 96256 kB\nRssAnon:\t 21504 kB\nRssFile:\t 74752 kB\n";
        let read = parse(strfry).unwrap();
        assert_eq!((read.own_bytes, read.file_bytes), (21 << 20, 73 << 20));
        let all = parse("Name:\tx\nVmRSS:\t 12 kB\n").unwrap();
        assert_eq!((all.own_bytes, all.file_bytes), (12 << 10, 0), "a kernel that does not tell them apart");
    }
}
