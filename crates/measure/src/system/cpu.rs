//! CPU time of a process, and its waits for a core.

use std::{collections::BTreeMap, fs, io, ops::Add, time::Duration};

use nix::{
    errno::Errno,
    sys::resource::{UsageWho, getrusage},
    sys::time::{TimeVal, TimeValLike},
    time::{ClockId, clock_gettime},
    unistd::Pid,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{platform, stat::Stat};
use crate::AddUp;

/// PID_MAX_LIMIT of the kernel (proc_sys_kernel(5), `pid_max`).
const MOST_PROCESSES: i32 = 1 << 22;

/// CPU time in nanoseconds, summed over a process's threads, those that ended included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuTime {
    /// User and system together, from the process's CPU clock.
    pub total_ns: u64,
    /// In user mode: from getrusage (microseconds) for the own process, else the total divided as
    /// `/proc/PID/stat` divides it, which counts in ticks of 10 ms.
    pub user_ns: Option<u64>,
    /// In the kernel, from the same source. On loopback part of the receiver's network work is
    /// charged here to the sender.
    pub system_ns: Option<u64>,
}

impl CpuTime {
    /// CPU time since an earlier reading of the same clock.
    #[must_use]
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        let split = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        CpuTime {
            total_ns: self.total_ns.saturating_sub(earlier.total_ns),
            user_ns: split(self.user_ns, earlier.user_ns),
            system_ns: split(self.system_ns, earlier.system_ns),
        }
    }
}

crate::sums! { CpuTime { total_ns, user_ns, system_ns } }

impl Add for CpuTime {
    type Output = CpuTime;

    /// The split stays known when both sides know it.
    fn add(mut self, other: CpuTime) -> CpuTime {
        self.add_up(&other);
        self
    }
}

/// The CPU clock of one process: 0.2–0.4 µs a reading, nanoseconds, where /proc/PID/stat counts in
/// 10 ms ticks.
#[derive(Debug, Clone, Copy)]
pub struct CpuClock {
    clock: ClockId,
    /// Another process than this one.
    pid: Option<u32>,
}

impl CpuClock {
    /// The clock of this process, with the split into user and system.
    pub fn this_process() -> CpuClock {
        CpuClock { clock: ClockId::CLOCK_PROCESS_CPUTIME_ID, pid: None }
    }

    /// The clock of another process on this machine.
    ///
    /// # Errors
    /// When there is no such process, and on a system with [`crate::UNKNOWN_HERE`]; the text names
    /// the id.
    pub fn of_process(pid: u32) -> io::Result<CpuClock> {
        // Other ids would name the caller's own clock (0), or lose bits.
        let raw =
            i32::try_from(pid).ok().filter(|pid| (1..=MOST_PROCESSES).contains(pid)).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidInput, format!("{pid} is not a process id"))
            })?;
        let clock = platform::clock_of(Pid::from_raw(raw)).map_err(|errno| {
            io::Error::other(format!("cannot read the CPU clock of process {pid}: {errno}"))
        })?;
        Ok(CpuClock { clock, pid: Some(pid) })
    }

    /// CPU time of the process since it started.
    ///
    /// # Errors
    /// When the process has ended: its clock ends with it, so read it before.
    pub fn read(&self) -> io::Result<CpuTime> {
        let total = clock_gettime(self.clock).map_err(|errno| {
            io::Error::other(format!("cannot read a CPU clock (has the process ended?): {errno}"))
        })?;
        let total_ns = nanoseconds(total.tv_sec(), total.tv_nsec());
        if let Some(pid) = self.pid {
            let ticks = Stat::of_process(pid).map(|stat| (stat.user_ticks, stat.system_ticks));
            return Ok(split(total_ns, ticks));
        }
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        let ns = |time: TimeVal| u64::try_from(time.num_nanoseconds()).ok();
        Ok(CpuTime { total_ns, user_ns: ns(usage.user_time()), system_ns: ns(usage.system_time()) })
    }
}

/// Divides a total as the ticks do.
fn split(total_ns: u64, ticks: Option<(u64, u64)>) -> CpuTime {
    let user_ns = ticks.filter(|(user, system)| user + system > 0).and_then(|(user, system)| {
        u64::try_from(u128::from(total_ns) * u128::from(user) / u128::from(user + system)).ok()
    });
    CpuTime { total_ns, user_ns, system_ns: user_ns.map(|user_ns| total_ns - user_ns) }
}

fn nanoseconds(seconds: i64, rest: i64) -> u64 {
    u64::try_from(seconds).unwrap_or(0) * 1_000_000_000 + u64::try_from(rest).unwrap_or(0)
}

/// How long the living threads of this process were runnable without running, since each started.
/// Read it at both ends of a block while the same threads live; threads that ended are not in it.
///
/// # Errors
/// When the kernel keeps no `schedstat`.
pub fn runnable_wait_ns() -> io::Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir("/proc/self/task")? {
        match fs::read_to_string(task?.path().join("schedstat")) {
            Ok(text) => sum += schedstat_ns(&text, 1)?,
            // The thread ended between the listing and the reading.
            Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sum)
}

/// The living threads of a process, as the scheduler sees them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Threads {
    /// Whether one has a core or waits for one. The kernel counts a wait only at its end.
    pub runnable: bool,
    /// How long they had a core, since each started.
    pub ran: Duration,
}

impl Threads {
    /// Those of several processes together. A process that has ended, or a kernel without
    /// `schedstat`, adds none.
    pub fn from_pids(pids: &[u32]) -> Threads {
        let seen = tasks(pids).filter_map(|(task, ran)| {
            Some(Threads { runnable: Stat::read(&task.path())?.runnable, ran: Duration::from_nanos(ran) })
        });
        seen.fold(Threads::default(), |all, one| Threads {
            runnable: all.runnable || one.runnable,
            ran: all.ran.saturating_add(one.ran),
        })
    }
}

/// How long each living thread of some processes had a core since it started, by its id. None where
/// the kernel keeps no `schedstat`.
pub fn thread_times_ns(pids: &[u32]) -> BTreeMap<u32, u64> {
    let time = |(task, ran): (fs::DirEntry, u64)| Some((task.file_name().to_str()?.parse().ok()?, ran));
    tasks(pids).filter_map(time).collect()
}

/// The threads of some processes, each with how long it had a core.
fn tasks(pids: &[u32]) -> impl Iterator<Item = (fs::DirEntry, u64)> {
    let tasks = pids.iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok()).flatten();
    tasks.flatten().filter_map(|task| {
        let ran = schedstat_ns(&fs::read_to_string(task.path().join("schedstat")).ok()?, 0).ok()?;
        Some((task, ran))
    })
}

/// CPU time of a process's first thread, which runs the script of a browser's page. Exact while the
/// thread sleeps; of a running thread up to a tick of the scheduler old.
///
/// # Errors
/// When the process has ended, or the kernel keeps no `schedstat`.
pub fn main_thread_ns(pid: u32) -> io::Result<u64> {
    schedstat_ns(&fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat"))?, 0)
}

/// A field of a `schedstat` line: time on a CPU, then time on the run queue, in nanoseconds.
fn schedstat_ns(text: &str, field: usize) -> io::Result<u64> {
    text.split_whitespace().nth(field).and_then(|field| field.parse().ok()).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("expected three numbers in schedstat, found {text:?}"),
        )
    })
}

/// Share of the last ten seconds in which some task of the host waited for a CPU, in percent, where
/// the kernel reports it.
pub fn cpu_pressure_percent() -> Option<f64> {
    pressure_some_avg10(&fs::read_to_string("/proc/pressure/cpu").ok()?)
}

fn pressure_some_avg10(text: &str) -> Option<f64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.split_whitespace().find_map(|field| field.strip_prefix("avg10="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_that_computes_is_runnable_and_one_that_sleeps_is_not() {
        let mut computing = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let mut sleeping = Command::new("sleep").arg("60").spawn().unwrap();
        let ended = |threads: Threads| threads.runnable && threads.ran > Duration::from_millis(20);
        while !ended(Threads::from_pids(&[computing.id()])) {
            std::thread::sleep(Duration::from_millis(5));
        }
        while Threads::from_pids(&[sleeping.id()]).runnable {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(Threads::from_pids(&[sleeping.id(), computing.id()]).runnable);
        for child in [&mut computing, &mut sleeping] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(Threads::from_pids(&[computing.id()]), Threads::default());
    }

    #[test]
    fn the_own_clock_sees_work_and_its_split() {
        let clock = CpuClock::this_process();
        let before = clock.read().unwrap();
        let mut spent = CpuTime::default();
        while spent.total_ns < 200_000_000 {
            spent = clock.read().unwrap().since(before);
        }
        let split = spent.user_ns.unwrap() + spent.system_ns.unwrap();
        assert!(split.abs_diff(spent.total_ns) < 100_000_000, "{spent:?}");
    }

    #[test]
    fn another_process_has_a_clock_until_it_is_reaped() {
        let mut child = Command::new("sleep").arg("30").spawn().unwrap();
        let clock = CpuClock::of_process(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(clock.read().unwrap_err().to_string().contains("has the process ended"));
        let error = CpuClock::of_process(child.id()).unwrap_err().to_string();
        assert!(error.contains(&child.id().to_string()), "{error}");
        for none in [0, (1 << 22) + 1, i32::MAX as u32, u32::MAX] {
            assert!(CpuClock::of_process(none).is_err(), "{none}");
        }
    }

    #[test]
    fn the_first_thread_of_another_process_is_its_whole_time_where_it_has_no_other() {
        let work = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; read x";
        let mut child =
            Command::new("sh").args(["-c", work]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let clock = CpuClock::of_process(child.id()).unwrap();
        let asleep = || fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap().contains(") S ");
        while clock.read().unwrap().total_ns < 20_000_000 || !asleep() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        if let Ok(first) = main_thread_ns(child.id()) {
            let whole = clock.read().unwrap().total_ns;
            assert!(first.abs_diff(whole) < whole / 20, "{first} {whole}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(main_thread_ns(u32::MAX).is_err());
    }

    #[test]
    fn scheduler_files_are_read_as_the_kernel_writes_them() {
        let spent = split(1_000, Some((30, 10)));
        assert_eq!((spent.user_ns, spent.system_ns), (Some(750), Some(250)));
        assert_eq!(split(1_000, Some((0, 0))).user_ns, None);
        assert_eq!([0, 1].map(|field| schedstat_ns("911782 102191 2\n", field).unwrap()), [911_782, 102_191]);
        assert!(schedstat_ns("911782", 1).is_err());
        let text = "some avg10=12.75 avg60=1.16 avg300=1.18 total=15801913\nfull avg10=0.00 avg60=0.00\n";
        assert_eq!(pressure_some_avg10(text), Some(12.75));
        assert_eq!(pressure_some_avg10("full avg10=0.00"), None);
        // Kernels without CONFIG_SCHED_INFO have no such file.
        assert!(runnable_wait_ns().map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |_| true));
    }
}
