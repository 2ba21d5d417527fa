//! What the kernel tells of a process or a thread in one line (proc_pid_stat(5)).

use std::{fs, path::Path};

use nix::unistd::{SysconfVar, sysconf};

use crate::CpuTime;

/// Fields of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    /// Whether it has a core or waits for one.
    pub(super) runnable: bool,
    pub(super) parent: u32,
    pub(super) user_ticks: u64,
    pub(super) system_ticks: u64,
    /// CPU time of the children that it has waited for, with that of theirs.
    pub(super) of_children: CpuTime,
    pub(super) started_ticks: u64,
}

impl Stat {
    /// Reads that of a process.
    pub(super) fn of_process(pid: u32) -> Option<Stat> {
        Stat::read(&Path::new("/proc").join(pid.to_string()))
    }

    /// Reads that of the process or the thread with this folder.
    pub(super) fn read(folder: &Path) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(folder.join("stat")).ok()?)
    }

    /// The name is in brackets and may hold anything.
    fn parse(stat: &str) -> Option<Stat> {
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
        let ns = |place: usize| Some(number(place)?.saturating_mul(tick_ns()));
        let (user_ns, system_ns) = (ns(13)?, ns(14)?);
        Some(Stat {
            runnable: fields.first() == Some(&"R"),
            parent: u32::try_from(number(1)?).ok()?,
            user_ticks: number(11)?,
            system_ticks: number(12)?,
            of_children: CpuTime {
                total_ns: user_ns.saturating_add(system_ns),
                user_ns: Some(user_ns),
                system_ns: Some(system_ns),
            },
            started_ticks: number(19)?,
        })
    }
}

pub(super) fn tick_ns() -> u64 {
    let ticks_per_s = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    1_000_000_000 / ticks_per_s.and_then(|ticks| u64::try_from(ticks).ok()).unwrap_or(100).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_behind_the_name_whatever_it_is() {
        let found =
            Stat::parse("7 (a) R (c)) S 1 7 7 0 -1 4194560 92 0 0 0 30 10 5 6 20 0 1 0 912 1 1").unwrap();
        assert_eq!((found.runnable, found.parent, found.started_ticks), (false, 1, 912));
        assert_eq!((found.user_ticks, found.system_ticks), (30, 10));
        assert_eq!(
            (found.of_children.total_ns, found.of_children.user_ns),
            (11 * tick_ns(), Some(5 * tick_ns()))
        );
        assert!(Stat::parse("7 (S) R 1 7 7 0 -1 4194560 92 0 0 0 30 10 5 6 20 0 1 0 912").unwrap().runnable);
        for damaged in ["", "7 (sleep) S", "7 (a) S x 7 7 0 -1 4194560 92 0 0 0 30 10 5 6 20 0 1 0 912"] {
            assert_eq!(Stat::parse(damaged), None);
        }
    }
}
