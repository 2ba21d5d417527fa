//! Chromium's processes: found, started headless for one page with a profile of its own, their clocks
//! read, ended.

use std::{
    env, fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{self, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
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

use crate::usage::last_words;

/// Programs that are looked for on PATH, in this order.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Time for its processes to end.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// Time for a thread that has answered to sleep, so that the kernel has counted it.
const SETTLES_WITHIN: Duration = Duration::from_millis(3);

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

/// CPU in nanoseconds: of a renderer's main thread; of all its threads and of the network process.
pub(crate) type Cpu = [u64; 2];

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
    /// The clocks of its renderers, of which it keeps some in stock, and of its network process.
    clocks: Option<(Vec<(u32, CpuClock)>, CpuClock)>,
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
        let tail = last_words(&self.profile.path().join("stderr.txt"));
        if tail.is_empty() { how } else { format!("{how}; it wrote:{tail}") }
    }

    /// Reads the clocks of the processes that there are at the first mark, for each renderer.
    pub(crate) async fn read(&mut self) -> Result<Vec<Cpu>> {
        time::sleep(SETTLES_WITHIN).await;
        if self.clocks.is_none() {
            self.clocks = self.clocks();
        }
        let (renderers, network) =
            self.clocks.as_ref().context("Chromium has no renderer or network process")?;
        let network = network.read().context("cannot read the CPU time of Chromium's network process")?;
        // One that has ended is not the page's.
        let read = |(pid, clock): &(u32, CpuClock)| {
            Some([main_thread_ns(*pid).ok()?, clock.read().ok()?.total_ns + network.total_ns])
        };
        Ok(renderers.iter().map(|renderer| read(renderer).unwrap_or_default()).collect())
    }

    fn clocks(&self) -> Option<(Vec<(u32, CpuClock)>, CpuClock)> {
        let profile = self.profile.path().to_string_lossy();
        let (mut renderers, mut network) = (Vec::new(), None);
        for entry in fs::read_dir("/proc").ok()?.flatten() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(pid) = pid.filter(|_| line.contains(&*profile)) else { continue };
            // One that ends meanwhile is nobody's.
            match CpuClock::of_process(pid) {
                Ok(clock) if line.contains("--type=renderer") => renderers.push((pid, clock)),
                Ok(clock) if line.contains("--utility-sub-type=network.") => network = Some(clock),
                _ => {}
            }
        }
        network.filter(|_| !renderers.is_empty()).map(|network| (renderers, network))
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // One that has ended needs nothing.
        let _ = killpg(self.group, Signal::SIGKILL);
        // The profile's folder is removed when nobody writes into it any longer.
        let deadline = Instant::now() + ENDS_WITHIN;
        let mut is_there =
            || matches!(self.child.try_wait(), Ok(None)) || fs::remove_dir_all(self.profile.path()).is_err();
        while is_there() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// CPU between the last two marks, less what the marks before it cost at least. The page's renderer is
/// the one whose main thread worked most.
pub(crate) fn spent(marks: &[Vec<Cpu>]) -> Option<Cpu> {
    let [.., first, second, begin, end] = marks else { return None };
    let spent = |renderer: usize, of: usize| {
        let since = |before: &[Cpu], after: &[Cpu]| after[renderer][of].saturating_sub(before[renderer][of]);
        since(begin, end).saturating_sub(since(first, second).min(since(second, begin)))
    };
    (0..end.len()).map(|renderer| [spent(renderer, 0), spent(renderer, 1)]).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_of_the_renderer_that_worked_without_the_cost_of_its_marks() {
        let marks = [[9, 9], [0, 0], [3, 7], [5, 11], [105, 171]].map(|worked| vec![[900, 900], worked]);
        assert_eq!(spent(&marks), Some([98, 156]));
        assert_eq!(spent(&marks[1..]), spent(&marks));
        assert_eq!(spent(&marks[2..]), None);
    }
}
