//! Chromium's processes: found, started headless for one page with a profile of its own, their clocks
//! read, ended.

use std::{
    env, fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{self, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use codecs::quoted_lines;
use measure::{CpuClock, main_thread_ns};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::{Pid, geteuid},
};
use program::UsageError;
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time,
};

/// Programs that are looked for on PATH, in this order.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Time for its processes to end.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// Time for a thread that has answered to sleep, so that the kernel has counted it.
const SETTLES_WITHIN: Duration = Duration::from_millis(3);
/// Bytes of its last words in an error.
const TAIL_BYTES: usize = 2_000;

/// Without these a page in the background is slowed down, and Chromium works on other things while
/// a step is timed; the last two let a page collect garbage and read its heap.
const FLAGS: [&str; 16] = [
    "--headless=new",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-sync",
    "--disable-crash-reporter",
    "--no-first-run",
    "--no-default-browser-check",
    "--js-flags=--expose-gc",
    "--enable-precise-memory-info",
];
/// Chromium refuses to start its sandbox as root.
const NO_SANDBOX: &str = "--no-sandbox";

/// The flags of this process's user.
pub(crate) fn flags() -> Vec<String> {
    let of_root = geteuid().is_root().then_some(NO_SANDBOX);
    FLAGS.into_iter().chain(of_root).map(str::to_owned).collect()
}

/// The browser to start: the one that was named, or the first on PATH.
pub(crate) fn find(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(file) = named {
        return Ok(file.to_owned());
    }
    let folders: Vec<PathBuf> = env::var_os("PATH").iter().flat_map(env::split_paths).collect();
    let mut files = NAMES.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let found = files.find(|file| file.is_file()).ok_or_else(|| {
        UsageError(anyhow!(
            "no Chromium or Chrome on PATH: `apt-get install chromium` (Debian) has one, or name it with --chromium FILE"
        ))
    })?;
    Ok(found)
}

/// Its name and version.
pub(crate) fn product(program: &Path) -> Result<String> {
    let started = || format!("{} did not start", program.display());
    let said = process::Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let said = said.with_context(started)?;
    ensure!(said.status.success(), "{}: it ended with {}", started(), said.status);
    let name = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    ensure!(!name.is_empty(), "{}: it states no version", started());
    Ok(name)
}

/// A browser with one page; it ends with all of its processes when this is dropped.
#[derive(Debug)]
pub(crate) struct Chromium {
    child: Child,
    /// The process group of all of its processes.
    group: Pid,
    profile: TempDir,
    clocks: Option<Clocks>,
}

/// The clocks of its renderers, of which it keeps some in stock, and of its network process.
#[derive(Debug)]
struct Clocks {
    renderers: Vec<(u32, CpuClock)>,
    network: CpuClock,
}

/// CPU until a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Of the main thread and of all threads of each renderer.
    pub(crate) renderers: Vec<[u64; 2]>,
    pub(crate) network_ns: u64,
}

/// CPU of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    /// Of the main thread of the page's renderer.
    pub(crate) main_ns: u64,
    /// Of all its threads and of the network process.
    pub(crate) all_ns: u64,
}

impl Chromium {
    /// Starts it with this page.
    pub(crate) fn start(program: &Path, url: &str) -> Result<Chromium> {
        let started = || format!("{} did not start", program.display());
        let profile = tempfile::TempDir::with_prefix("compare-").with_context(started)?;
        let stderr = fs::File::create(profile.path().join("stderr.txt")).with_context(started)?;
        let child = Command::new(program)
            .args(flags())
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            // Ctrl-C is for this program; and the group ends all of Chromium's processes at once.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(started)?;
        let group = child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw);
        let group = group.with_context(started)?;
        Ok(Chromium { child, group, profile, clocks: None })
    }

    /// Waits for its end, which is too early; says how it came.
    pub(crate) async fn ended(&mut self) -> String {
        let how = match self.child.wait().await {
            Ok(status) => match status.signal() {
                Some(signal) => format!("signal {signal} ended it"),
                None => format!("it ended with {status}"),
            },
            Err(error) => error.to_string(),
        };
        let words = fs::read(self.profile.path().join("stderr.txt")).unwrap_or_default();
        let tail = quoted_lines(&String::from_utf8_lossy(&words[words.len().saturating_sub(TAIL_BYTES)..]));
        if tail.is_empty() { how } else { format!("{how}; it wrote:{tail}") }
    }

    /// Reads the clocks of the processes that there are at the first mark.
    pub(crate) async fn read(&mut self) -> Result<Reading> {
        time::sleep(SETTLES_WITHIN).await;
        let clocks = match &mut self.clocks {
            Some(clocks) => clocks,
            none => none.insert(Clocks::of_group(self.group)?),
        };
        // One that has ended is not the page's.
        let of_renderer =
            |(pid, clock): &(u32, CpuClock)| Some([main_thread_ns(*pid).ok()?, clock.read().ok()?.total_ns]);
        let renderers = clocks.renderers.iter().map(|one| of_renderer(one).unwrap_or_default()).collect();
        let network =
            clocks.network.read().context("cannot read the CPU time of Chromium's network process")?;
        Ok(Reading { renderers, network_ns: network.total_ns })
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // One that has ended needs nothing.
        let _ = killpg(self.group, Signal::SIGKILL);
        // The profile's folder is removed when nobody writes into it any longer.
        let deadline = Instant::now() + ENDS_WITHIN;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        while fs::remove_dir_all(self.profile.path()).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Clocks {
    fn of_group(group: Pid) -> Result<Clocks> {
        let (mut renderers, mut network) = (Vec::new(), None);
        for entry in fs::read_dir("/proc").context("cannot read /proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            // One that ends meanwhile is nobody's.
            let (Some(of), Ok(line)) = (group_of(pid), fs::read(entry.path().join("cmdline"))) else {
                continue;
            };
            if of != group {
                continue;
            }
            let (line, clock) = (String::from_utf8_lossy(&line), CpuClock::of_process(pid));
            match clock {
                Ok(clock) if line.contains("--type=renderer") => renderers.push((pid, clock)),
                Ok(clock) if line.contains("--utility-sub-type=network.") => network = Some(clock),
                _ => {}
            }
        }
        match network {
            Some(network) if !renderers.is_empty() => Ok(Clocks { renderers, network }),
            _ => bail!("Chromium has no renderer or no network process whose CPU time can be read"),
        }
    }
}

/// The process group of a process (proc_pid_stat(5)).
fn group_of(pid: u32) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let group = stat.rsplit_once(')')?.1.split_whitespace().nth(2)?;
    group.parse().ok().map(Pid::from_raw)
}

/// CPU between the last two marks, less what the marks before it cost at least. The page's renderer is
/// the one whose main thread worked most.
pub(crate) fn spent(marks: &[Reading]) -> Option<Spent> {
    let since = |before: &Reading, after: &Reading, renderer: usize| {
        let of = |which: usize| {
            let [before, after] = [before, after].map(|reading| reading.renderers.get(renderer).copied());
            after.unwrap_or_default()[which].saturating_sub(before.unwrap_or_default()[which])
        };
        let network_ns = after.network_ns.saturating_sub(before.network_ns);
        Spent { main_ns: of(0), all_ns: of(1) + network_ns }
    };
    let [.., first, second, begin, end] = marks else { return None };
    let renderer = (0..end.renderers.len()).max_by_key(|one| since(begin, end, *one).main_ns)?;
    let empty = [since(first, second, renderer), since(second, begin, renderer)];
    let least = |of: fn(&Spent) -> u64| empty.iter().map(of).min().unwrap_or(0);
    let step = since(begin, end, renderer);
    Some(Spent {
        main_ns: step.main_ns.saturating_sub(least(|spent| spent.main_ns)),
        all_ns: step.all_ns.saturating_sub(least(|spent| spent.all_ns)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_of_the_renderer_that_worked_without_the_cost_of_its_marks() {
        let reading = |idle: u64, main: u64, all: u64, network_ns| Reading {
            renderers: vec![[idle, idle], [main, all]],
            network_ns,
        };
        let marks =
            [reading(900, 0, 0, 0), reading(900, 3, 5, 2), reading(900, 5, 8, 3), reading(901, 105, 158, 13)];
        assert_eq!(spent(&marks), Some(Spent { main_ns: 98, all_ns: 156 }));
        assert_eq!(spent(&marks[1..]), None);
        let later: Vec<Reading> = [reading(0, 0, 0, 0)].into_iter().chain(marks.clone()).collect();
        assert_eq!(spent(&later), spent(&marks));
    }
}
