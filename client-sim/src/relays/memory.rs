//! Resident memory of both processes (`/proc/PID/status`, proc(5)).

use std::fs;

use measure::{MemoryRecord, Processes};

/// A process's resident memory, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resident {
    pub(crate) now_bytes: u64,
    pub(crate) peak_bytes: u64,
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
    Some(Resident { now_bytes: kib("VmRSS:")? * 1024, peak_bytes: kib("VmHWM:")? * 1024 })
}

/// The same of several processes with all that they started, of which shared pages count in each;
/// `None` when one that was named is gone, or for none. Their peaks may not have come together.
pub(crate) fn resident_of(pids: &[u32]) -> Option<Resident> {
    let all = (!pids.is_empty()).then(|| Processes::from_pids(pids).ok())??.pids();
    let sum = |sum: Resident, one: Resident| Resident {
        now_bytes: sum.now_bytes + one.now_bytes,
        peak_bytes: sum.peak_bytes + one.peak_bytes,
    };
    all.into_iter().filter_map(resident).reduce(sum)
}

/// Resident memory of both processes before their connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    client_bytes: u64,
    relay_bytes: Option<u64>,
}

/// Reads both processes before any of the run's connections exists.
pub(crate) fn before(relay_pids: &[u32]) -> Option<Before> {
    let relay_bytes = resident_of(relay_pids).map(|resident| resident.now_bytes);
    Some(Before { client_bytes: resident(std::process::id())?.now_bytes, relay_bytes })
}

/// Reads both processes again when `connections` are open.
pub(crate) fn after(before: Before, relay_pids: &[u32], connections: usize) -> Option<MemoryRecord> {
    let relay = resident_of(relay_pids);
    Some(MemoryRecord {
        connections: connections as u64,
        client_before_bytes: before.client_bytes,
        client_after_bytes: resident(std::process::id())?.now_bytes,
        relay_before_bytes: before.relay_bytes,
        relay_after_bytes: relay.map(|resident| resident.now_bytes),
        relay_peak_bytes: relay.map(|resident| resident.peak_bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_its_peak_is_no_less() {
        let own = resident(std::process::id()).unwrap();
        assert!(own.now_bytes > 100_000 && own.peak_bytes >= own.now_bytes, "{own:?}");
        assert!(parse("Name:\tx\nVmRSS:\t 12 kB\n").is_none(), "no peak");
    }
}
