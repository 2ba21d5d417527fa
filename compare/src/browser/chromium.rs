//! Chromium's process: found, started headless with a profile of its own, spoken to, ended.

use std::{
    env, fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use codecs::quoted_lines;
use nix::{
    sys::signal::{Signal, killpg},
    unistd::{Pid, geteuid},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time,
};

use super::{cdp::Cdp, error::BrowserError};

/// Programs that are looked for on PATH, in this order.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Time to start.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// Time to end when it is asked to.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// Bytes of its last words in an error.
const TAIL_BYTES: usize = 2_000;

/// Without these a page in the background is slowed down, and Chromium works on other things while
/// a step is timed.
const FLAGS: [&str; 15] = [
    "--headless",
    "--remote-debugging-port=0",
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
];
/// Chromium refuses to start its sandbox as root.
const NO_SANDBOX: &str = "--no-sandbox";

/// A browser; it ends with all of its processes when this is dropped.
#[derive(Debug)]
pub(crate) struct Chromium {
    child: Child,
    /// The process group of all of its processes.
    group: Pid,
    profile: TempDir,
    cdp: Cdp,
    /// The flags that it was started with, without folders.
    pub(crate) flags: Vec<String>,
}

/// The browser to start: the one that was named, or the first on PATH.
pub(crate) fn find(named: Option<&Path>) -> Result<PathBuf, BrowserError> {
    if let Some(file) = named {
        return Ok(file.to_owned());
    }
    let folders: Vec<PathBuf> = env::var_os("PATH").iter().flat_map(env::split_paths).collect();
    let files = NAMES.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    files.into_iter().find(|file| file.is_file()).ok_or(BrowserError::NotInstalled)
}

impl Chromium {
    /// Starts it and connects.
    pub(crate) async fn start(program: &Path) -> Result<Chromium, BrowserError> {
        let not_started =
            |why: String| BrowserError::NotStarted { program: program.display().to_string(), why };
        let profile =
            tempfile::TempDir::with_prefix("compare-").map_err(|error| not_started(error.to_string()))?;
        let log = profile.path().join("stderr.txt");
        let stderr = fs::File::create(&log).map_err(|error| not_started(error.to_string()))?;
        let mut flags: Vec<String> = FLAGS.map(str::to_owned).to_vec();
        flags.extend(geteuid().is_root().then(|| NO_SANDBOX.to_owned()));
        let mut child = Command::new(program)
            .args(&flags)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            // Ctrl-C is for this program; and the group ends all of Chromium's processes at once.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| not_started(error.to_string()))?;
        let group = child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw);
        let group = group.ok_or_else(|| not_started("it has no process id".to_owned()))?;
        match address(&mut child, profile.path()).await {
            Ok(url) => match Cdp::connect(&url).await {
                Ok(cdp) => Ok(Chromium { child, group, profile, cdp, flags }),
                Err(error) => {
                    end(group);
                    Err(not_started(error.to_string()))
                }
            },
            Err(why) => {
                end(group);
                let words = fs::read(&log).unwrap_or_default();
                let tail = &words[words.len().saturating_sub(TAIL_BYTES)..];
                let tail = quoted_lines(&String::from_utf8_lossy(tail));
                Err(not_started(format!("{why}; it wrote:{tail}")))
            }
        }
    }

    /// Whether the renderer runs in Chromium's sandbox.
    pub(crate) fn is_sandboxed(&self) -> bool {
        !self.flags.iter().any(|flag| flag == NO_SANDBOX)
    }

    /// Calls a method of the browser itself.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Result<Value, BrowserError> {
        match self.cdp.call(None, method, params).await {
            Err(BrowserError::Ended(why)) => Err(self.ended(why).await),
            other => other,
        }
    }

    /// Calls a method of an attached page.
    pub(crate) async fn call_page(
        &mut self,
        session: &str,
        method: &str,
        params: Value,
    ) -> Result<Value, BrowserError> {
        match self.cdp.call(Some(session), method, params).await {
            Err(BrowserError::Ended(why)) => Err(self.ended(why).await),
            other => other,
        }
    }

    /// Says how the process ended, where the connection only says that it did.
    async fn ended(&mut self, why: String) -> BrowserError {
        match time::timeout(Duration::from_secs(1), self.child.wait()).await {
            Ok(Ok(status)) => BrowserError::Ended(match status.signal() {
                Some(signal) => format!("signal {signal} ended it"),
                None => format!("it ended with {status}"),
            }),
            _ => BrowserError::Ended(why),
        }
    }

    /// Ids of its renderers and of its network process.
    pub(crate) async fn processes(&mut self) -> Result<Processes, BrowserError> {
        let info = self.call("SystemInfo.getProcessInfo", json!({})).await?;
        let mut found = Processes::default();
        for process in info["processInfo"].as_array().into_iter().flatten() {
            let Some(pid) = process["id"].as_u64().and_then(|pid| u32::try_from(pid).ok()) else { continue };
            if process["type"] == "renderer" {
                found.renderers.push(pid);
            } else if is_network(pid) {
                found.network = Some(pid);
            }
        }
        Ok(found)
    }

    /// Ends it and waits until it has ended.
    pub(crate) async fn stop(mut self) {
        // One that does not answer is killed.
        let _ = time::timeout(ENDS_WITHIN, self.cdp.call(None, "Browser.close", json!({}))).await;
        let _ = time::timeout(ENDS_WITHIN, self.child.wait()).await;
        end(self.group);
        let _ = time::timeout(ENDS_WITHIN, self.child.wait()).await;
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        end(self.group);
        // The profile's folder is removed when nobody writes into it any longer.
        let deadline = Instant::now() + ENDS_WITHIN;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = fs::remove_dir_all(self.profile.path());
    }
}

/// Processes that are measured.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    pub(crate) renderers: Vec<u32>,
    pub(crate) network: Option<u32>,
}

/// Where it can be spoken to, from the file that it writes when it listens.
async fn address(child: &mut Child, profile: &Path) -> Result<String, String> {
    let file = profile.join("DevToolsActivePort");
    let deadline = Instant::now() + STARTS_WITHIN;
    while Instant::now() < deadline {
        if let Ok(text) = fs::read_to_string(&file)
            && let Some((port, path)) = text.trim_end().split_once('\n')
        {
            return Ok(format!("ws://127.0.0.1:{port}{path}"));
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("it ended with {status}"));
        }
        time::sleep(Duration::from_millis(20)).await;
    }
    Err(format!("it did not listen within {} s", STARTS_WITHIN.as_secs()))
}

/// Ends a process group; one that has ended needs nothing.
fn end(group: Pid) {
    let _ = killpg(group, Signal::SIGKILL);
}

/// Whether a process is the network service, by its command line.
fn is_network(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains("--utility-sub-type=network.")
}
