//! CPU quotas and limits of memory, which control groups set to a process, and of which containers and
//! services are made (<https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files>,
//! <https://docs.kernel.org/scheduler/sched-bwc.html>).

use std::{
    collections::BTreeSet,
    fs,
    path::{Component, Path, PathBuf},
};

use nix::sys::resource::{Resource, getrlimit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::environment;
use crate::{AddUp, whole};

/// The smallest CPU quota over some processes, and what quotas took from them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuQuota {
    /// CPU seconds a second.
    pub cores: f64,
    /// How often a quota was used up in the run.
    pub throttled_periods: u64,
    /// How long throttling kept tasks from running, summed over CPUs.
    pub throttled_ns: u64,
}

impl CpuQuota {
    /// Capacity of some cores under the quota, in thousandths of a core.
    pub fn millicores_of(self, cores: u64) -> u64 {
        cores.saturating_mul(1_000).min(whole(self.cores * 1e3))
    }
}

/// Cores that each process can keep busy: the cores that it is pinned to, or its threads, whichever are
/// fewer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsableCores {
    /// Cores of the relay, if the run started it.
    pub relay: Option<u64>,
    /// Cores of the clients.
    pub clients: u64,
    /// Thousandths of a core that a CPU quota leaves the relay, if that is less.
    pub relay_millicores: Option<u64>,
    /// Thousandths of a core that a CPU quota leaves the clients, if that is less. Both may share one quota.
    pub clients_millicores: Option<u64>,
}

impl UsableCores {
    /// These cores, of which a quota may leave less.
    pub fn within(self, relay: Option<CpuQuota>, clients: Option<CpuQuota>) -> UsableCores {
        let left = |cores: u64, quota: CpuQuota| {
            let left = quota.millicores_of(cores);
            (left < cores.saturating_mul(1_000)).then_some(left)
        };
        UsableCores {
            relay_millicores: self.relay.zip(relay).and_then(|(cores, quota)| left(cores, quota)),
            clients_millicores: clients.and_then(|quota| left(self.clients, quota)),
            ..self
        }
    }

    /// CPU time that the relay can use in so much time, where that is known.
    pub fn relay_capacity_ns(self, elapsed_ns: u64) -> Option<u64> {
        Some(capacity_ns(self.relay?, self.relay_millicores, elapsed_ns))
    }

    /// CPU time that the clients can use in so much time.
    pub fn clients_capacity_ns(self, elapsed_ns: u64) -> u64 {
        capacity_ns(self.clients, self.clients_millicores, elapsed_ns)
    }
}

impl AddUp for UsableCores {
    fn add_up(&mut self, other: &Self) {
        // An agent without a quota has all of its cores.
        let millicores = |one: &UsableCores| one.clients_millicores.unwrap_or(one.clients * 1_000);
        let limited = self.clients_millicores.or(other.clients_millicores);
        self.clients_millicores = limited.map(|_| millicores(self) + millicores(other));
        self.clients += other.clients;
    }
}

/// CPU time of these cores in so much time, of which a quota may leave less. Bounded, as agents
/// say what they like of themselves.
pub(crate) fn capacity_ns(cores: u64, millicores: Option<u64>, elapsed_ns: u64) -> u64 {
    match millicores {
        Some(millicores) => {
            let ns = u128::from(millicores) * u128::from(elapsed_ns) / 1_000;
            u64::try_from(ns).unwrap_or(u64::MAX)
        }
        None => cores.saturating_mul(elapsed_ns),
    }
}

/// The control groups of some processes, as they were when it was made.
#[derive(Debug, Clone)]
pub struct QuotaMeter {
    groups: BTreeSet<PathBuf>,
    before: Throttled,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Throttled {
    periods: u64,
    ns: u64,
}

impl QuotaMeter {
    /// Finds the groups of this process, up to the root that it sees.
    pub fn of_this_process() -> QuotaMeter {
        QuotaMeter::under(Path::new("/"), &["self".to_owned()])
    }

    /// Finds those of other processes.
    pub fn of_processes(pids: &[u32]) -> QuotaMeter {
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        QuotaMeter::under(Path::new("/"), &pids)
    }

    fn under(root: &Path, pids: &[String]) -> QuotaMeter {
        let groups: BTreeSet<PathBuf> = pids.iter().flat_map(|pid| groups_of(root, pid, "cpu")).collect();
        QuotaMeter { before: throttled(&groups), groups }
    }

    /// The smallest quota of all groups, with what they took since this was made; `None` without a
    /// quota.
    pub fn read(&self) -> Option<CpuQuota> {
        let cores = self.groups.iter().filter_map(|group| cores(group)).reduce(f64::min)?;
        let now = throttled(&self.groups);
        Some(CpuQuota {
            cores,
            throttled_periods: now.periods.saturating_sub(self.before.periods),
            throttled_ns: now.ns.saturating_sub(self.before.ns),
        })
    }
}

/// The folders of a process's groups that may limit what a controller gives it, each up to the root
/// of its hierarchy. In a container that root is its own group; some folders may not exist.
fn groups_of(root: &Path, pid: &str, controller: &str) -> Vec<PathBuf> {
    let own = fs::read_to_string(root.join(format!("proc/{pid}/cgroup"))).unwrap_or_default();
    let mut groups = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let path = Path::new(path.trim_start_matches('/'));
        let mounts: &[&str] = match controllers {
            "" => &["", "unified"],
            names if names.split(',').any(|name| name == controller) => &[controller],
            _ => continue,
        };
        // A group of another namespace is written with `..`, and is not to be seen.
        if path.components().all(|one| matches!(one, Component::Normal(_))) {
            let mounts = mounts.iter().map(|mount| root.join("sys/fs/cgroup").join(mount));
            groups.extend(mounts.flat_map(|at| path.ancestors().map(move |group| at.join(group))));
        }
    }
    groups
}

/// The memory that this process may have: the machine's, or less by a control group (cgroups(7)) or the
/// limit of its address space; `None` if the system reports none.
pub fn memory_bytes() -> Option<u64> {
    let address_space = getrlimit(Resource::RLIMIT_AS).ok().map(|(soft, _)| soft);
    environment::memory_bytes().into_iter().chain(group_bytes(Path::new("/"))).chain(address_space).min()
}

/// The least memory that a control group of this process leaves it.
fn group_bytes(root: &Path) -> Option<u64> {
    let read = |group: PathBuf| {
        let v2 = fs::read_to_string(group.join("memory.max"));
        v2.or_else(|_| fs::read_to_string(group.join("memory.limit_in_bytes"))).ok()
    };
    // `max` stands for no limit.
    let limits = groups_of(root, "self", "memory").into_iter().filter_map(read);
    limits.filter_map(|text| text.trim().parse().ok()).min()
}

/// The quota of one group: `cpu.max` of version 2, `cpu.cfs_quota_us` of version 1.
fn cores(group: &Path) -> Option<f64> {
    let read = |file: &str| fs::read_to_string(group.join(file)).ok();
    let (quota, period) = match read("cpu.max") {
        Some(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.to_owned(), period.to_owned())
        }
        None => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
    };
    // "max" and -1 are no quota.
    let (quota, period): (u64, u64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

/// Time that the quotas of these groups took so far. Of two nested groups, the inner one uses up nothing
/// while the outer one has nothing left, so times add up.
fn throttled(groups: &BTreeSet<PathBuf>) -> Throttled {
    let mut sum = Throttled::default();
    for stat in groups.iter().filter_map(|group| fs::read_to_string(group.join("cpu.stat")).ok()) {
        let number = |name: &str| {
            let value = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            value.trim().parse::<u64>().ok()
        };
        sum.periods = sum.periods.saturating_add(number("nr_throttled").unwrap_or(0));
        let ns = number("throttled_usec").map(|us| us.saturating_mul(1_000));
        sum.ns = sum.ns.saturating_add(ns.or_else(|| number("throttled_time")).unwrap_or(0));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system with these files below its folder of control groups.
    struct System(tempfile::TempDir);

    impl System {
        fn with(own: &str, files: &[(&str, &str)]) -> System {
            let system = System(tempfile::tempdir().unwrap());
            system.write("../../../proc/self/cgroup", own);
            files.iter().for_each(|(file, text)| system.write(file, text));
            system
        }

        fn write(&self, file: &str, text: &str) {
            let groups = self.0.path().join("sys/fs/cgroup");
            fs::create_dir_all(&groups).unwrap();
            let file = groups.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }

        fn meter(&self) -> QuotaMeter {
            QuotaMeter::under(self.0.path(), &["self".to_owned()])
        }

        fn cores(&self) -> Option<f64> {
            self.meter().read().map(|quota| quota.cores)
        }
    }

    #[test]
    fn the_smallest_quota_from_the_own_group_to_the_root_counts_in_either_version() {
        let nested = ["400000 100000\n", "50000 100000\n", "max 100000\n"];
        /// Files and their content.
        type Files = [(&'static str, &'static str)];
        let cases: [(&str, &Files, Option<f64>); 9] = [
            (
                "0::/a/b/c\n",
                &[("a/cpu.max", nested[0]), ("a/b/cpu.max", nested[1]), ("a/b/c/cpu.max", nested[2])],
                Some(0.5),
            ),
            ("0::/a/b\n", &[("a/cpu.max", nested[0]), ("a/b/cpu.max", "25000 100000\n")], Some(0.25)),
            ("0::/a/b\n", &[("a/cpu.max", "300000 100000"), ("a/other/cpu.max", "1000 100000")], Some(3.0)),
            (
                "4:cpu,cpuacct:/a/b\n3:cpuset:/c\n",
                &[
                    ("cpu/a/cpu.cfs_quota_us", "150000\n"),
                    ("cpu/a/cpu.cfs_period_us", "100000\n"),
                    ("cpu/a/b/cpu.cfs_quota_us", "-1\n"),
                    ("cpu/a/b/cpu.cfs_period_us", "100000\n"),
                    ("cpuset/c/cpu.cfs_quota_us", "1000\n"),
                    ("cpuset/c/cpu.cfs_period_us", "100000\n"),
                ],
                Some(1.5),
            ),
            // Version 2 beside version 1.
            ("3:cpuset:/c\n0::/d\n", &[("unified/d/cpu.max", "100000 200000\n")], Some(0.5)),
            // A container sees its own group at the root, and none of another namespace.
            (
                "4:cpu:/docker/id\n",
                &[("cpu/cpu.cfs_quota_us", "50000"), ("cpu/cpu.cfs_period_us", "100000")],
                Some(0.5),
            ),
            ("0::/../id\n", &[("id/cpu.max", "50000 100000")], None),
            ("0::/docker/id/../other\n", &[("docker/cpu.max", "50000 100000")], None),
            ("", &[("cpu.max", "50000 100000")], None),
        ];
        for (own, files, cores) in cases {
            assert_eq!(System::with(own, files).cores(), cores, "{own}");
        }
        for text in ["", "max", "50000", "x 100000", "50000 0", "0 100000", "-1 100000", "1e9 1"] {
            let stat = ("a/cpu.stat", "nr_throttled x\nthrottled_usec\n");
            let system = System::with("0::/a\n7\n\n:\n", &[("a/cpu.max", text), stat]);
            assert_eq!(system.cores(), None, "{text}");
        }
    }

    #[test]
    fn the_least_limit_of_memory_counts_whichever_version_has_it() {
        for (own, files, bytes) in [
            ("0::/a/b\n", &[("a/b/memory.max", "max\n")][..], None),
            ("0::/a/b\n", &[("a/b/memory.max", "max\n"), ("a/memory.max", "4096\n")], Some(4096)),
            (
                "4:memory:/job\n",
                &[
                    ("memory/job/memory.limit_in_bytes", "9223372036854771712\n"),
                    ("memory/memory.limit_in_bytes", "1024\n"),
                ],
                Some(1024),
            ),
        ] {
            assert_eq!(group_bytes(System::with(own, files).0.path()), bytes, "{files:?}");
        }
    }

    #[test]
    fn what_was_taken_since_is_summed_over_groups() {
        let system = System::with(
            "0::/a/b\n",
            &[
                ("a/cpu.max", "50000 100000"),
                ("a/cpu.stat", "usage_usec 9\nnr_periods 7\nnr_throttled 3\nthrottled_usec 40\n"),
                ("a/b/cpu.stat", "nr_periods 2\nnr_throttled 1\nthrottled_time 5\n"),
            ],
        );
        let meter = system.meter();
        let quota = CpuQuota { cores: 0.5, ..CpuQuota::default() };
        assert_eq!(meter.read(), Some(quota));
        system.write("a/cpu.stat", "nr_throttled 5\nthrottled_usec 140\n");
        system.write("a/b/cpu.stat", "nr_throttled 1\nthrottled_time 25\n");
        let taken = CpuQuota { throttled_periods: 2, throttled_ns: 100_020, ..quota };
        assert_eq!(meter.read(), Some(taken));
        // A group that went took what it took.
        fs::remove_dir_all(system.0.path().join("sys/fs/cgroup/a/b")).unwrap();
        assert_eq!(meter.read().unwrap().throttled_periods, 1);
    }

    #[test]
    fn cores_are_those_that_the_quota_leaves() {
        let quota = |cores| CpuQuota { cores, ..CpuQuota::default() };
        assert_eq!((quota(0.5).millicores_of(2), quota(4.0).millicores_of(2)), (500, 2_000));
        assert_eq!(quota(f64::INFINITY).millicores_of(u64::MAX), u64::MAX);
    }
}
