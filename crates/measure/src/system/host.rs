//! What a host did to a run between its start and its end, as the kernel counts it.

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::ExitStatus,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    cores::{self, PinnedCores},
    cpu::cpu_pressure_percent,
};

/// The host of a run. What the system does not report is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostRecord {
    /// Finished handshakes that the kernel dropped because a listener's accept queue was full
    /// (`ListenOverflows`), in the network namespace of a relay whose process is known.
    pub listen_overflows: Option<u64>,
    /// Time that the hypervisor gave to other guests (steal, proc_stat(5)) ÷ time, of the CPUs that
    /// relay and clients may use.
    pub steal: Option<f64>,
    /// CPUs of the relay, each with a CPU of the clients that is a thread of the same core.
    #[serde(default)]
    pub siblings: Vec<[u32; 2]>,
    /// The cores of relay and clients at the start and at the end, where they differ.
    pub repinned: Option<[PinnedCores; 2]>,
    /// Whether the kernel reports CPU pressure.
    pub reports_pressure: bool,
}

/// The kernel's counters at the start of a run.
#[derive(Debug)]
pub struct HostMeter {
    relay: Vec<u32>,
    cores: Option<PinnedCores>,
    netstat: Option<PathBuf>,
    overflows: Option<u64>,
    ticks: Option<Ticks>,
}

impl HostMeter {
    /// Reads the counters of this host, and of the network namespace of the relay's processes.
    pub fn start(relay: &[u32]) -> HostMeter {
        // Another relay's queues are on a machine that nobody reads.
        let netstat = relay.first().map(|pid| PathBuf::from(format!("/proc/{pid}/net/netstat")));
        let cores = cores::of_both(relay);
        HostMeter {
            overflows: netstat.as_deref().and_then(overflows),
            ticks: Ticks::read(cores.as_ref()),
            relay: relay.to_vec(),
            cores,
            netstat,
        }
    }

    /// Reads the counters again, while the relay lives.
    pub fn read(&self) -> HostRecord {
        let overflows = self.overflows.zip(self.netstat.as_deref().and_then(overflows));
        let ticks = self.ticks.zip(Ticks::read(self.cores.as_ref()));
        let now = cores::of_both(&self.relay);
        let repinned = self.cores.clone().zip(now).filter(|(before, now)| before != now);
        HostRecord {
            listen_overflows: overflows.map(|(before, now)| now.saturating_sub(before)),
            steal: ticks.and_then(|(before, now)| now.stolen_since(before)),
            siblings: self.cores.as_ref().map(cores::siblings_of_both).unwrap_or_default(),
            repinned: repinned.map(|(before, now)| [before, now]),
            reports_pressure: cpu_pressure_percent().is_some(),
        }
    }
}

/// `ListenOverflows` of `TcpExt` in `/proc/net/netstat`.
fn overflows(file: &Path) -> Option<u64> {
    overflows_in(&fs::read_to_string(file).ok()?)
}

/// Names stand in one line, their values in the next.
fn overflows_in(netstat: &str) -> Option<u64> {
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let (mut names, mut values) = (lines.next()?.split_whitespace(), lines.next()?.split_whitespace());
    values.nth(names.position(|name| name == "ListenOverflows")?)?.parse().ok()
}

/// Ticks of some CPUs in `/proc/stat` (proc_stat(5)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    fn read(cores: Option<&PinnedCores>) -> Option<Ticks> {
        let of_both = cores.map(|cores| [&*cores.relay, &*cores.clients].concat());
        let cpus = of_both.or_else(|| cores::allowed().ok()).unwrap_or_default();
        Ticks::parse(&fs::read_to_string("/proc/stat").ok()?, &cpus)
    }

    /// Ticks of these CPUs, or of all if none is named.
    fn parse(stat: &str, cpus: &[u32]) -> Option<Ticks> {
        let mut sum = None;
        for line in stat.lines() {
            let Some((cpu, ticks)) = line.strip_prefix("cpu").and_then(|line| line.split_once(' ')) else {
                continue;
            };
            if !cpu.parse().is_ok_and(|cpu: u32| cpus.is_empty() || cpus.contains(&cpu)) {
                continue;
            }
            // Guests' time, which follows, is in user time already.
            let ticks: Vec<u64> =
                ticks.split_whitespace().take(8).map_while(|ticks| ticks.parse().ok()).collect();
            let sum: &mut Ticks = sum.get_or_insert_default();
            sum.stolen = sum.stolen.saturating_add(*ticks.get(7)?);
            sum.all = ticks.iter().fold(sum.all, |all, ticks| all.saturating_add(*ticks));
        }
        sum
    }

    fn stolen_since(self, earlier: Ticks) -> Option<f64> {
        let all = self.all.checked_sub(earlier.all).filter(|all| *all > 0)?;
        Some(self.stolen.saturating_sub(earlier.stolen) as f64 / all as f64)
    }
}

/// Processes that the kernel has killed for memory by a moment, in every control group.
#[derive(Debug, Clone, Copy)]
pub struct MemoryKills(Option<u64>);

impl MemoryKills {
    /// Counts until now.
    pub fn so_far() -> MemoryKills {
        let count = |vmstat: String| {
            vmstat.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
        };
        MemoryKills(fs::read_to_string("/proc/vmstat").ok().and_then(count))
    }

    /// How a process ended, in words, which name a kill for memory since.
    pub fn how(self, status: ExitStatus) -> String {
        self.how_until(MemoryKills::so_far(), status)
    }

    fn how_until(self, now: MemoryKills, status: ExitStatus) -> String {
        // A shell passes a signal of its child on as an exit code.
        let is_kill = status.signal() == Some(SIGKILL) || status.code() == Some(128 + SIGKILL);
        let counts = self.0.zip(now.0);
        if is_kill && counts.is_some_and(|(before, now)| now > before) {
            return format!(
                "{status}, out of memory: the kernel has killed a process for memory meanwhile (oom_kill), so raise the \
                 memory limit of its control group, or give the host more"
            );
        }
        status.to_string()
    }
}

const SIGKILL: i32 = 9;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::unistd::Pid;

    use super::*;
    use crate::system::platform;

    #[test]
    fn counters_are_read_as_the_kernel_writes_them() {
        let netstat = "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 1 7 9\nIpExt: InNoRoutes\nIpExt: 0\n";
        assert_eq!(overflows_in(netstat), Some(7));
        for other in ["", "TcpExt: ListenOverflows", "TcpExt: \nTcpExt: \n"] {
            assert_eq!(overflows_in(other), None, "{other}");
        }
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 4 5 6 7 8 1 1\ncpu1 10 0 0 0 0 0 0 20 0 0\nintr 5\n";
        assert_eq!(Ticks::parse(stat, &[0]), Some(Ticks { all: 36, stolen: 8 }));
        let all = Ticks::parse(stat, &[]).unwrap();
        assert_eq!(all, Ticks { all: 66, stolen: 28 });
        assert_eq!(Ticks { all: 166, stolen: 88 }.stolen_since(all), Some(0.6));
        assert_eq!((all.stolen_since(all), Ticks::parse(stat, &[7])), (None, None));
        assert_eq!(Ticks::parse("cpu0 1 2 3\n", &[]), None, "a kernel without steal");
        let killed = ExitStatus::from_raw(SIGKILL);
        assert_eq!(MemoryKills(Some(7)).how_until(MemoryKills(Some(7)), killed), "signal: 9 (SIGKILL)");
        for killed in [SIGKILL, (128 + SIGKILL) << 8].map(ExitStatus::from_raw) {
            let said = MemoryKills(Some(7)).how_until(MemoryKills(Some(8)), killed);
            assert!(said.contains("out of memory") && said.contains("raise the memory limit"), "{said}");
        }
        let exited = MemoryKills(Some(7)).how_until(MemoryKills(Some(8)), ExitStatus::from_raw(1 << 8));
        assert_eq!(exited, "exit status: 1");
    }

    #[test]
    fn cores_that_the_kernel_takes_away_meanwhile_are_noticed() {
        let mut relay = Command::new("sleep").arg("60").spawn().unwrap();
        let meter = HostMeter::start(&[relay.id()]);
        let unchanged = meter.read().repinned;
        let all = meter.cores.clone().unwrap().relay;
        platform::keep_to(Pid::from_raw(i32::try_from(relay.id()).unwrap()), &all[..1]).unwrap();
        let changed = meter.read().repinned;
        relay.kill().unwrap();
        relay.wait().unwrap();
        assert_eq!(unchanged, None);
        let now = changed.map(|[before, now]| (before.relay, now.relay));
        assert_eq!(now, (all.len() > 1).then(|| (all.clone(), all[..1].to_vec())));
    }
}
