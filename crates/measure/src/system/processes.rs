//! CPU time of several processes, with everything that they started: relays that fork, are started
//! by a shell, or end workers while they are measured.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
    process,
};

use super::stat::{Stat, tick_ns};
use crate::{CpuClock, CpuTime, UNKNOWN_HERE};

/// Readings of a tree that changes while it is read, before one is taken as it is.
const ATTEMPTS: usize = 5;

/// A process; one that gets the id of an earlier process is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Process {
    pid: u32,
    started_ticks: u64,
}

/// CPU time of one process, and of the children that it has waited for.
#[derive(Debug, Clone, Copy)]
struct Spent {
    own: CpuTime,
    children: CpuTime,
}

const NOTHING: CpuTime = CpuTime { total_ns: 0, user_ns: Some(0), system_ns: Some(0) };

/// Processes of this machine, and all that they start. A started process that gets another parent still
/// counts, if a reading found it before.
#[derive(Debug, Clone)]
pub struct Processes {
    roots: Vec<Process>,
    known: BTreeSet<Process>,
}

/// One reading of [`Processes`].
#[derive(Debug, Clone, Default)]
pub struct ProcessesCpu(BTreeMap<Process, Spent>);

/// CPU time of [`Processes`] between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessesSpent {
    /// CPU time: exact for living processes, in ticks of 10 ms for ended ones.
    pub cpu: CpuTime,
    /// Processes at the second reading.
    pub processes: u64,
    /// True if `cpu` lacks the time of ended processes, because their parent ignores SIGCHLD (wait(2)).
    pub is_incomplete: bool,
}

impl Processes {
    /// Finds processes by their ids.
    ///
    /// # Errors
    /// When there is no such process, or this one is among what it started; on a system with
    /// [`UNKNOWN_HERE`] always.
    pub fn from_pids(pids: &[u32]) -> io::Result<Processes> {
        if let Some(reason) = UNKNOWN_HERE {
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        let table = Table::read();
        let above = table.with_parents(process::id());
        let root = |&pid: &u32| {
            CpuClock::of_process(pid).map_err(|_| refused(format!("there is no process {pid}")))?;
            if above.contains(&pid) {
                return Err(refused(format!(
                    "process {pid}{} runs the clients, too: name the relay's own process",
                    named(pid)
                )));
            }
            Ok(table.process(pid))
        };
        let roots: Vec<Process> = pids.iter().map(root).collect::<io::Result<_>>()?;
        Ok(Processes { known: roots.iter().copied().collect(), roots })
    }

    /// The ids of all processes that live now, those named first.
    pub fn pids(&self) -> Vec<u32> {
        let table = Table::read();
        let mut pids: Vec<u32> = self.roots.iter().map(|process| process.pid).collect();
        pids.extend(table.trees(&self.known).into_iter().map(|process| process.pid));
        let mut seen = BTreeSet::new();
        pids.retain(|pid| seen.insert(*pid));
        pids
    }

    /// Reads the CPU time of each process since its start. Known processes are read first, before the
    /// search for others takes time.
    ///
    /// # Errors
    /// When a process of [`Processes::from_pids`] has ended.
    pub fn read(&mut self) -> io::Result<ProcessesCpu> {
        let mut clocks = clocks(&self.known);
        for attempt in 1.. {
            let table = Table::read();
            let trees = table.trees(&self.known);
            let new = trees.difference(&self.known).copied().collect();
            self.known.extend(&trees);
            clocks.extend(self::clocks(&new));
            if attempt < ATTEMPTS && table.differs(&trees) {
                continue;
            }
            if let Some(gone) = self.roots.iter().find(|root| !trees.contains(root)) {
                return Err(io::Error::other(format!("process {} has ended", gone.pid)));
            }
            let spent = |process: &Process| {
                let own = *clocks.get(process)?;
                let children = table.0.get(&process.pid).map_or(NOTHING, |stat| stat.of_children);
                Some((*process, Spent { own, children }))
            };
            return Ok(ProcessesCpu(trees.iter().filter_map(spent).collect()));
        }
        unreachable!("the last attempt returns")
    }

    /// Bytes that all have written to disks since they started (`write_bytes`, proc_pid_io(5)): pages
    /// that they changed, without sockets, pipes and file systems in memory. `None` where the system
    /// does not tell, as of processes of other users, or one that was named has ended.
    pub fn written_bytes(&self) -> Option<u64> {
        let table = Table::read();
        let trees = table.trees(&self.known);
        let lives = self.roots.iter().all(|root| trees.contains(root));
        let written = || trees.iter().map(|process| written_bytes(process.pid)).sum::<Option<u64>>();
        lives.then(written).flatten()
    }
}

/// What one process has written, with its children that it has waited for. One that ended meanwhile
/// left that to its parent.
fn written_bytes(pid: u32) -> Option<u64> {
    let folder = Path::new("/proc").join(pid.to_string());
    match fs::read_to_string(folder.join("io")) {
        Ok(io) => io.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.trim().parse().ok()),
        Err(_) => (!folder.exists()).then_some(0),
    }
}

impl ProcessesCpu {
    /// CPU time since an earlier reading of the same processes.
    ///
    /// A process that ended in between left its whole time to its waiting parent, including the time
    /// before the earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &ProcessesCpu) -> ProcessesSpent {
        let mut own = NOTHING;
        let mut of_ended = NOTHING;
        for (process, now) in &self.0 {
            let before = earlier.0.get(process).copied().unwrap_or(Spent { own: NOTHING, children: NOTHING });
            own = own + now.own.since(before.own);
            of_ended = of_ended + now.children.since(before.children);
        }
        let ended = earlier.0.iter().filter(|(process, _)| !self.0.contains_key(process));
        let before_ended = ended.fold(NOTHING, |sum, (_, spent)| sum + spent.own + spent.children);
        ProcessesSpent {
            cpu: own + of_ended.since(before_ended),
            processes: self.0.len() as u64,
            // Both numbers of ticks are rounded down.
            is_incomplete: before_ended.total_ns > of_ended.total_ns + 2 * tick_ns(),
        }
    }
}

/// The ids of all processes that this one started and that live, with those that they started,
/// which may be none.
pub fn started_by(pid: u32) -> Vec<u32> {
    let table = Table::read();
    let root = table.process(pid);
    let started = table.trees(&BTreeSet::from([root])).into_iter().filter(|process| *process != root);
    started.map(|process| process.pid).collect()
}

/// The ids of the processes whose parent this one is.
pub fn children(pid: u32) -> Vec<u32> {
    let table = Table::read();
    table.0.iter().filter(|(_, stat)| stat.parent == pid).map(|(child, _)| *child).collect()
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// The name of a process in brackets, where the system tells.
fn named(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    name.map_or_else(|_| String::new(), |name| format!(" ({})", name.trim_end()))
}

/// CPU time of each process that lives, from its own clock.
fn clocks(processes: &BTreeSet<Process>) -> BTreeMap<Process, CpuTime> {
    let clock = |process: &Process| {
        let mut spent = CpuClock::of_process(process.pid).and_then(|clock| clock.read()).ok()?;
        // Too little for a tick: one idle process should not make the split of all unknown.
        if spent.user_ns.is_none() && spent.total_ns < 2 * tick_ns() {
            (spent.user_ns, spent.system_ns) = (Some(spent.total_ns), Some(0));
        }
        Some((*process, spent))
    };
    processes.iter().filter_map(clock).collect()
}

/// All processes that this one may see.
#[derive(Debug)]
struct Table(BTreeMap<u32, Stat>);

impl Table {
    fn read() -> Table {
        let processes = fs::read_dir("/proc").into_iter().flatten();
        let ids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        Table(ids.filter_map(|pid| Some((pid, Stat::of_process(pid)?))).collect())
    }

    /// The process with this id. Where /proc hides it, it is known by its id alone.
    fn process(&self, pid: u32) -> Process {
        Process { pid, started_ticks: self.0.get(&pid).map_or(0, |stat| stat.started_ticks) }
    }

    fn lives(&self, process: Process) -> bool {
        match self.0.get(&process.pid) {
            Some(stat) => stat.started_ticks == process.started_ticks,
            None => process.started_ticks == 0 && CpuClock::of_process(process.pid).is_ok(),
        }
    }

    /// A process, its parent, and so on.
    fn with_parents(&self, pid: u32) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        let mut next = Some(pid);
        while let Some(pid) = next.filter(|pid| *pid != 0 && found.insert(*pid)) {
            next = self.0.get(&pid).map(|stat| stat.parent);
        }
        found
    }

    /// Those of these processes that live, with all that they started.
    fn trees(&self, of: &BTreeSet<Process>) -> BTreeSet<Process> {
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        self.0.iter().for_each(|(pid, stat)| children.entry(stat.parent).or_default().push(*pid));
        let mut open: Vec<Process> = of.iter().copied().filter(|process| self.lives(*process)).collect();
        let mut found = BTreeSet::new();
        while let Some(process) = open.pop() {
            if found.insert(process) {
                let started = children.get(&process.pid).into_iter().flatten();
                open.extend(started.map(|pid| self.process(*pid)));
            }
        }
        found
    }

    /// Whether one of these processes has ended since, or has waited for a child.
    fn differs(&self, processes: &BTreeSet<Process>) -> bool {
        let lasting = |stat: Stat| (stat.parent, stat.started_ticks, stat.of_children);
        let differs = |pid: u32| self.0.get(&pid).copied().map(lasting) != Stat::of_process(pid).map(lasting);
        processes.iter().any(|process| differs(process.pid))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    };

    use nix::{
        sys::signal::{Signal, kill},
        unistd::Pid,
    };

    use super::*;

    const MS: u64 = 1_000_000;

    /// A shell whose script, and what it starts, prints lines and waits for lines (`read x <&3`).
    struct Shell {
        child: Child,
        input: ChildStdin,
        output: BufReader<ChildStdout>,
    }

    impl Shell {
        /// `burn` takes some 0.2 s of CPU time.
        fn start(script: &str) -> Shell {
            let burn = "burn() { i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; }";
            let script = format!("exec 3<&0; {burn}; step() {{ echo done; read x <&3; }}; {script}");
            let mut child = Command::new("sh");
            child.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = child.spawn().unwrap();
            let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            Shell { child, input, output: BufReader::new(output) }
        }

        fn says(&mut self) -> String {
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            line.trim().to_owned()
        }

        fn goes_on(&mut self) {
            self.input.write_all(b"\n").unwrap();
            assert_eq!(self.says(), "done");
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            // A process that it started ends with its input.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    #[test]
    fn what_children_spend_is_counted_while_they_live_and_after_they_ended() {
        for (script, processes) in [
            ("step; burn; step", 1),
            ("step; { burn; step; } & wait", 2),
            ("step; { { burn; step; } & wait; } & wait", 3),
            ("step; (burn); step", 1),
            ("step; ( (burn); : ); step", 1),
        ] {
            let mut shell = Shell::start(script);
            assert_eq!(shell.says(), "done");
            let mut all = Processes::from_pids(&[shell.child.id()]).unwrap();
            let before = all.read().unwrap();
            shell.goes_on();
            let spent = all.read().unwrap().since(&before);
            assert_eq!((spent.processes, spent.is_incomplete), (processes, false), "{script}");
            assert!(spent.cpu.total_ns > 30 * MS, "{script}: {spent:?}");
            let parts = spent.cpu.user_ns.unwrap() + spent.cpu.system_ns.unwrap();
            assert!(parts.abs_diff(spent.cpu.total_ns) < 50 * MS, "{script}: {spent:?}");
        }
    }

    #[test]
    fn what_children_write_to_a_disk_is_counted_while_they_live_and_after_they_ended() {
        // No file system in memory, as /tmp may be.
        let program = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        let write = |name: &str| format!("head -c 1000000 /dev/zero >{}", file(name));
        for script in
            [format!("step; {}; step", write("a")), format!("step; {{ {}; step; }} & wait", write("b"))]
        {
            let mut shell = Shell::start(&script);
            assert_eq!(shell.says(), "done");
            let all = Processes::from_pids(&[shell.child.id()]).unwrap();
            let before = all.written_bytes().unwrap();
            shell.goes_on();
            let written = all.written_bytes().unwrap() - before;
            assert!((1_000_000..1_200_000).contains(&written), "{script}: {written}");
            drop(shell);
            assert_eq!(all.written_bytes(), None, "of an ended one nobody knows");
        }
    }

    #[test]
    fn a_child_whose_parent_ends_stays() {
        let mut shell =
            Shell::start("{ sh -c 'echo $PPID'; { step; burn; step; } & wait; } & wait; sleep 600 & wait");
        let middle: i32 = shell.says().parse().unwrap();
        assert_eq!(shell.says(), "done");
        let mut all = Processes::from_pids(&[shell.child.id()]).unwrap();
        let before = all.read().unwrap();
        assert_eq!(before.0.len(), 3);
        kill(Pid::from_raw(middle), Signal::SIGKILL).unwrap();
        shell.goes_on();
        let spent = all.read().unwrap().since(&before);
        assert!(spent.cpu.total_ns > 30 * MS && !spent.is_incomplete, "{spent:?}");
        let sleep = all.pids().into_iter().find(|&pid| named(pid) == " (sleep)").unwrap();
        kill(Pid::from_raw(i32::try_from(sleep).unwrap()), Signal::SIGKILL).unwrap();
    }

    #[test]
    fn an_ended_child_whose_time_nobody_got_is_said() {
        let cpu = |ms: u64| CpuTime { total_ns: ms * MS, user_ns: Some(ms * MS), system_ns: Some(0) };
        let reading = |all: &[(u32, u64, u64)]| {
            let one = |&(pid, own, children): &(u32, u64, u64)| {
                let process = Process { pid, started_ticks: 1 };
                (process, Spent { own: cpu(own), children: cpu(children) })
            };
            ProcessesCpu(all.iter().map(one).collect())
        };
        let before = reading(&[(1, 10, 500), (2, 100, 40), (3, 60, 0)]);
        // Process 1 got the time of 2 and 3, who spent 50 ms more; then of none, and of 3 only.
        for (after, ms, is_incomplete) in [(750, 51, false), (500, 1, true), (560, 1, true)] {
            let spent = reading(&[(1, 11, after)]).since(&before);
            let expected = ProcessesSpent { cpu: cpu(ms), processes: 1, is_incomplete };
            assert_eq!(spent, expected, "{after}");
        }
        // Work that came meanwhile counts from its start, and with what it waited for.
        assert_eq!(reading(&[(1, 10, 500), (2, 100, 40), (3, 60, 0), (4, 7, 3)]).since(&before).cpu, cpu(10));
        // No id stands for two processes.
        let again = ProcessesCpu(
            [(Process { pid: 1, started_ticks: 2 }, Spent { own: cpu(30), children: cpu(0) })].into(),
        );
        assert_eq!(again.since(&reading(&[(1, 0, 0)])).cpu, cpu(30));
    }

    #[test]
    fn processes_that_are_none_or_run_this_one_are_refused() {
        let own = process::id();
        let parent = Table::read().0[&own].parent;
        for pid in [own, parent] {
            let error = Processes::from_pids(&[pid]).unwrap_err().to_string();
            let expected = format!("process {pid}{} runs the clients", named(pid));
            assert!(error.starts_with(&expected), "{error}");
        }
        for pid in [0, u32::MAX, u32::MAX / 2] {
            let error = Processes::from_pids(&[pid]).unwrap_err().to_string();
            assert_eq!(error, format!("there is no process {pid}"));
        }
    }

    #[test]
    fn a_process_that_was_named_and_ended_has_no_reading_and_is_counted_once() {
        let mut shell = Shell::start("step");
        assert_eq!(shell.says(), "done");
        let pid = shell.child.id();
        let mut all = Processes::from_pids(&[pid, pid]).unwrap();
        assert_eq!((all.pids(), all.read().unwrap().0.len()), (vec![pid], 1));
        shell.child.kill().unwrap();
        shell.child.wait().unwrap();
        assert!(all.read().unwrap_err().to_string().contains(&pid.to_string()));
    }
}
