//! The real program with a real browser: pages are measured, a broken decoder and a killed browser
//! are told of.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use compare::{ResultFile, Role, report::comparisons, result::Part};
use corpus::Corpus;
use tempfile::TempDir;

/// Few events, so that comparing all of them takes no time, with some lists among them.
fn few_events(out: &Path) -> PathBuf {
    let file = out.join("few.jsonl");
    let events = Corpus::bundled().events;
    let (lists, others): (Vec<_>, Vec<_>) = events.into_iter().partition(|event| event.tags.len() >= 20);
    let few: Vec<_> = lists.into_iter().take(20).chain(others.into_iter().take(180)).collect();
    corpus::write(&file, &few).unwrap();
    file
}

fn command(out: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command.env_remove("RUST_LOG");
    // Chromium's profile is made there, so its processes are known by it.
    command.args(["browser", "--out"]).arg(out).args(args).env("TMPDIR", out);
    command
}

fn compare(out: &Path, args: &[&str]) -> Output {
    command(out, args).output().unwrap()
}

fn result_in(out: &Path) -> ResultFile {
    let folder = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
    let is_result = |folder: &std::path::PathBuf| folder.to_string_lossy().contains("-browser-");
    ResultFile::read(&folder.into_iter().find(is_result).unwrap()).unwrap()
}

fn blocks_in(out: &Path) -> usize {
    result_in(out).browser.unwrap().cells.iter().map(|cell| cell.blocks.len()).sum()
}

/// Processes whose command line names the folder, but for `compare` itself: whether each is the
/// browser's first, and its id.
fn processes(folder: &Path) -> Vec<(bool, i32)> {
    let profile = format!("--user-data-dir={}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let path = entry.unwrap().path();
        let Ok(line) = fs::read(path.join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).into_owned();
        if let Some(pid) =
            path.file_name().unwrap().to_string_lossy().parse().ok().filter(|_| line.contains(&profile))
        {
            found.push((!line.contains("--type="), pid));
        }
    }
    found
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} within a minute");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "needs chromium or google-chrome"]
fn a_browser_is_measured_from_the_page_to_the_table() {
    let out = TempDir::new().unwrap();
    let args = ["--formats", "json,dannypack", "--rounds", "1", "--step-ms", "20", "--events", "lists"];
    let over_sockets = ["--compressions", "deflate", "--batching", "on", "--corpus"];
    let file = few_events(out.path());
    let run = compare(out.path(), &[&args[..], &over_sockets, &[file.to_str().unwrap()]].concat());
    let (table, progress) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    // A busy machine may make every block of a row count for nothing (3).
    assert!(matches!(run.status.code(), Some(0 | 3)), "{:?}\n{progress}", run.status);
    assert!(table.contains("dannypack:tuned") && table.contains("json-control"), "{table}");
    assert!(progress.contains("decoders read every event as JSON.parse does"), "{progress}");
    let result = result_in(out.path());
    let browser = result.browser.as_ref().unwrap();
    assert!(browser.software.product.contains("Chrome/"), "{:?}", browser.software);
    assert!(browser.libraries.contains_key("cbor-x"));
    assert_eq!(browser.events[0].events, 200, "{:?}", browser.events);
    for cell in &browser.cells {
        let over_sockets = matches!(cell.part, Part::EndToEnd | Part::Live);
        assert!(!cell.blocks.is_empty(), "{}", cell.id);
        for block in &cell.blocks {
            let warm = block.warm.as_ref().unwrap();
            assert!(warm.events > 0 && warm.main_ns > 0, "{warm:?}");
            // Both clocks have an empty step of their own subtracted.
            assert!(warm.renderer_ns + 2_000_000 > warm.main_ns, "{warm:?}");
            assert_eq!(block.cold.is_some(), !over_sockets, "{}", cell.id);
            assert_eq!(warm.messages > 0, over_sockets, "{}", cell.id);
            assert!(block.heap_bytes > Some(100_000) && block.peak_bytes > Some(10_000_000), "{block:?}");
            // A batch of many in one message, else one event and EOSE.
            if cell.part == Part::EndToEnd {
                assert_eq!(warm.messages < warm.events / 4, cell.batched, "{}: {warm:?}", cell.id);
            }
        }
    }
    let anchors = browser.cells.iter().filter(|cell| cell.role == Role::Anchor).count();
    assert_eq!(anchors, 4, "decoding lists, end to end, live, in proportion");
    assert!(comparisons(&result).len() > 20);
    assert_eq!(processes(out.path()), []);
}

#[test]
#[ignore = "needs chromium or google-chrome"]
fn a_browser_with_a_broken_decoder_is_not_measured_and_the_event_is_named() {
    let out = TempDir::new().unwrap();
    let file = few_events(out.path());
    let args = ["--formats", "dannypack", "--part", "decode", "--plant", "dannypack:tuned", "--corpus"];
    let run = compare(out.path(), &[&args[..], &[file.to_str().unwrap()]].concat());
    let told = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(4), "{told}");
    let (_, said) = told.split_once("dannypack:tuned reads event ").unwrap();
    let id: String = said.chars().take_while(char::is_ascii_hexdigit).collect();
    assert!(id.len() == 64 && said.contains("otherwise than JSON.parse"), "{told}");
    assert_eq!(processes(out.path()), []);
}

/// Starts a run that lasts, and waits until pages are measured.
fn running(out: &Path) -> Child {
    let file = few_events(out);
    let args = ["--formats", "json", "--part", "decode", "--rounds", "50", "--step-ms", "50", "--corpus"];
    let mut child = command(out, &[&args[..], &[file.to_str().unwrap()]].concat())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let mut told = String::new();
    let mut byte = [0; 1];
    while !told.contains("block 2/") {
        assert_eq!(stderr.read(&mut byte).unwrap(), 1, "{told}");
        told.push(char::from(byte[0]));
    }
    child.stderr = Some(stderr);
    child
}

#[test]
#[ignore = "needs chromium or google-chrome"]
fn a_browser_that_is_killed_ends_the_run_and_what_was_measured_is_kept() {
    let out = TempDir::new().unwrap();
    let child = running(out.path());
    let first = processes(out.path()).into_iter().find(|(is_first, _)| *is_first).unwrap().1;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(first), nix::sys::signal::Signal::SIGKILL).unwrap();
    let run = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(1), "{told}");
    assert!(told.contains("error: Chromium ended in the middle of a block: signal 9 ended it"), "{told}");
    assert!(blocks_in(out.path()) >= 2);
    wait_until("no process is left", || processes(out.path()).is_empty());
}

#[test]
#[ignore = "needs chromium or google-chrome"]
fn a_browser_ends_on_ctrl_c_and_what_was_measured_is_kept() {
    let out = TempDir::new().unwrap();
    let child = running(out.path());
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let run = child.wait_with_output().unwrap();
    assert_eq!(run.status.code(), Some(130), "{}", String::from_utf8_lossy(&run.stderr));
    assert!(blocks_in(out.path()) >= 2);
    assert_eq!(processes(out.path()), []);
}

#[test]
fn without_chromium_the_way_to_get_it_is_told() {
    let out = TempDir::new().unwrap();
    let run = command(out.path(), &[]).env("PATH", out.path()).output().unwrap();
    let told = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(2), "{told}");
    assert!(told.contains("apt-get install chromium"), "{told}");
}

#[test]
fn a_program_that_is_no_browser_is_told_of() {
    let out = TempDir::new().unwrap();
    let run = compare(out.path(), &["--chromium", "/bin/false", "--formats", "json", "--part", "decode"]);
    let told = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(1), "{told}");
    assert!(told.contains("/bin/false did not start: it ended with"), "{told}");
}

#[test]
fn a_format_that_the_page_cannot_read_is_refused_with_those_that_it_can() {
    let out = TempDir::new().unwrap();
    let run = compare(out.path(), &["--formats", "tlv"]);
    let told = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(2), "{told}");
    assert!(told.contains("no decoder of \"tlv\"") && told.contains("notepack"), "{told}");
}
