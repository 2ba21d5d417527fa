//! The memory that this machine gives a process.

use std::{
    fs,
    path::{Path, PathBuf},
};

use nix::sys::resource::{Resource, getrlimit};

/// The memory that this process may have: the machine's, or less where a control group (cgroups(7))
/// or the limit of its address space says so; `None` where the system tells none.
pub(crate) fn memory_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory_total(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group_bytes(&groups, Path::new("/sys/fs/cgroup"));
    let address_space = getrlimit(Resource::RLIMIT_AS).ok().map(|(soft, _)| soft);
    machine.into_iter().chain(group).chain(address_space).min()
}

/// `MemTotal` of `/proc/meminfo` (proc_meminfo(5)).
fn memory_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The least limit of the control groups of memory in `/proc/self/cgroup`, of either version. In a
/// container that file may have the host's path, and what is mounted begins at the container's
/// group: each ancestor is asked, too.
fn group_bytes(groups: &str, mounted: &Path) -> Option<u64> {
    let files = groups.lines().flat_map(|line| {
        let fields = line.split_once(':').and_then(|(_, fields)| fields.split_once(':'));
        let Some((controllers, path)) = fields else { return Vec::new() };
        let (root, file) = match controllers.split(',').find(|name| matches!(*name, "" | "memory")) {
            Some("") => (mounted.to_owned(), "memory.max"),
            Some(_) => (mounted.join("memory"), "memory.limit_in_bytes"),
            None => return Vec::new(),
        };
        let ancestors = Path::new(path.trim_start_matches('/')).ancestors();
        ancestors.map(|group| root.join(group).join(file)).collect::<Vec<PathBuf>>()
    });
    // `max` stands for no limit.
    let limits = files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok());
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_a_group_or_one_above_it_counts() {
        let mounted = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = mounted.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let of = |groups: &str| group_bytes(groups, mounted.path());
        assert_eq!(of("0::/a/b\n"), None, "nothing is mounted");
        write("a/b/memory.max", "max\n");
        assert_eq!(of("0::/a/b\n"), None);
        write("a/memory.max", "4096\n");
        assert_eq!((of("0::/a/b\n"), of("0::/\n")), (Some(4096), None));
        write("memory.max", "512\n");
        assert_eq!(of("0::/of/the/host\n"), Some(512), "a container's own");
        write("memory/job/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(of("4:memory:/job\n3:cpuset:/job\n"), Some(9_223_372_036_854_771_712));
        write("memory/memory.limit_in_bytes", "1024\n");
        assert_eq!((of("5:cpu,memory:/job\n"), of("5:cpu:/job\n"), of("nonsense")), (Some(1024), None, None));
        assert_eq!(memory_total("MemFree: 1 kB\nMemTotal:       24683520 kB\n"), Some(24_683_520 * 1024));
    }
}
