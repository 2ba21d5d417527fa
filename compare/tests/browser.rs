//! The real program with a real browser: pages are measured, a broken decoder and a killed browser
//! are told of.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

#[path = "../../client-sim/tests/common/ran.rs"]
mod ran;

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use corpus::Corpus;
use nix::sys::signal::Signal;
use ran::{Ran, Runs, send};
use report::{ResultFile, Role, comparisons};
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

fn compare(out: &Path, args: &[&str]) -> Ran {
    command(out, args).ran()
}

/// A page for runs in which no browser opens it.
const NO_SCRIPT: [&str; 2] = ["--page", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page")];

fn result_in(out: &Path) -> ResultFile {
    let folder = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
    let is_result = |folder: &std::path::PathBuf| folder.to_string_lossy().contains("-browser-");
    ResultFile::read(&folder.into_iter().find(is_result).unwrap()).unwrap()
}

fn blocks_in(out: &Path) -> usize {
    let result = result_in(out);
    let blocks = result.cells.iter().flat_map(|cell| &cell.blocks);
    blocks.filter(|block| block.record.is_some()).count()
}

/// Processes whose command line names the folder, but for `compare` itself: whether each is the
/// browser's first, and its id.
fn processes(folder: &Path) -> Vec<(bool, u32)> {
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
    let args = ["--formats", "json,dannypack", "--rounds", "1", "--step-ms", "100", "--events", "lists"];
    let over_sockets = ["--compressions", "deflate", "--batching", "on", "--corpus"];
    let file = few_events(out.path());
    let run = compare(out.path(), &[&args[..], &over_sockets, &[file.to_str().unwrap()]].concat());
    let Ran { out: table, said: progress, .. } = run.measured();
    assert!(table.contains("dannypack:tuned") && table.contains("json-control"), "{table}");
    assert!(progress.contains("decoders read every event as JSON.parse does"), "{progress}");
    let result = result_in(out.path());
    let browser = result.config.browser.as_ref().unwrap();
    assert!(browser.product.contains("Chrom"), "{browser:?}");
    assert!(browser.libraries.contains_key("cbor-x"));
    assert_eq!(browser.events["all"], 200, "{:?}", browser.events);
    for cell in &result.cells {
        let over_sockets = cell.cell.scenario == "end-to-end";
        assert!(!cell.blocks.is_empty(), "{}", cell.id);
        for block in &cell.blocks {
            let record = block.record.as_ref().unwrap();
            let (page, events) = (record.page.as_ref().unwrap(), record.counts.deliveries);
            let main_ns = page.main_ns.unwrap();
            assert!(events > 0 && main_ns > 0, "{record:?}");
            // Both clocks have the marks subtracted.
            assert!(record.client_cpu.total_ns + 2_000_000 > main_ns, "{record:?}");
            // A page that computes has a core for itself, and no more of it than time passed.
            assert!(main_ns < page.wall_ns + 20_000_000, "{}: {page:?}", cell.id);
            assert!(page.first.is_none() || !over_sockets, "{}", cell.id);
            assert!(page.first.is_none_or(|first| first.ns > 0), "{}", cell.id);
            let messages = record.traffic.to_client.messages;
            assert_eq!(messages > 0, over_sockets, "{}", cell.id);
            let is_task = ["verify", "render"].iter().any(|task| cell.id.starts_with(task));
            let decodes = !over_sockets && !is_task;
            assert_eq!(record.traffic.wire_bytes() > 0, decodes, "{}", cell.id);
            assert!(page.heap_bytes > Some(100_000), "{page:?}");
            // A batch of many in one message, else one event and EOSE.
            if cell.cell.scenario == "end-to-end" {
                assert_eq!(messages < events / 4, cell.cell.batching != "none", "{}: {record:?}", cell.id);
            }
        }
    }
    let anchors = result.cells.iter().filter(|cell| cell.role == Role::Anchor).count();
    assert_eq!(anchors, 3, "decoding lists, end to end, in proportion");
    assert!(comparisons(&result).len() > 20);
    assert_eq!(processes(out.path()), []);
}

#[test]
#[ignore = "needs chromium or google-chrome, network namespaces and /dev/net/tun"]
fn a_browser_over_a_link_waits_for_the_bytes_that_the_link_carries() {
    let out = TempDir::new().unwrap();
    let file = few_events(out.path());
    let args = ["--link", "down=8mbit,up=8mbit,rtt=40ms", "--formats", "dannypack", "--rounds", "1"];
    let batches = ["--compressions", "none", "--batching", "on", "--corpus", file.to_str().unwrap()];
    let run = compare(out.path(), &[&args[..], &batches].concat());
    let table = run.measured().out;
    // A busy machine may make every block of a row count for nothing (3).
    assert!(table.contains("IP B/event") && !table.contains("main µs"), "{table}");
    let result = result_in(out.path());
    let json = fs::read_to_string(&file).unwrap();
    for cell in &result.cells {
        for block in &cell.blocks {
            let record = block.record.as_ref().unwrap();
            assert_eq!(record.counts.deliveries, 200);
            let bytes = record.link.as_ref().unwrap().down.forwarded_bytes;
            let is_json = cell.cell.format == "json";
            assert_eq!(bytes > json.len() as u64, is_json, "{}: {bytes} of {}", cell.id, json.len());
            // 8 Mbit/s carry a byte in a microsecond, behind a round trip.
            let least_ns = 40_000_000 + (bytes - 30_000) * 1_000;
            let wall_ns = record.page.as_ref().unwrap().wall_ns;
            assert!(wall_ns > least_ns, "{}: {wall_ns} ns for {bytes} bytes", cell.id);
        }
    }
    assert_eq!(processes(out.path()), []);
}

#[test]
#[ignore = "needs chromium or google-chrome"]
fn a_browser_with_a_broken_decoder_is_not_measured_and_the_event_is_named() {
    let out = TempDir::new().unwrap();
    let file = few_events(out.path());
    let page = out.path().join("page");
    fs::create_dir(&page).unwrap();
    for (name, more) in [("page.js", "\nUint8Array.prototype.toHex = () => 'ab';"), ("rows.json", "")] {
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../web/browser/dist").join(name);
        fs::write(page.join(name), fs::read_to_string(built).unwrap() + more).unwrap();
    }
    let args = ["--formats", "dannypack", "--part", "decode", "--page", page.to_str().unwrap(), "--corpus"];
    let run = compare(out.path(), &[&args[..], &[file.to_str().unwrap()]].concat());
    let told = run.ended(4).said;
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
    told_until(&mut child, "block 2/");
    child
}

/// Lines of a running program until it has told this.
fn told_until(child: &mut Child, what: &str) -> String {
    let stderr = child.stderr.as_mut().unwrap();
    let mut told = String::new();
    let mut byte = [0; 1];
    while !told.contains(what) {
        assert_eq!(stderr.read(&mut byte).unwrap(), 1, "{told}");
        told.push(char::from(byte[0]));
    }
    told
}

#[test]
#[ignore = "needs chromium or google-chrome"]
fn a_browser_that_is_killed_fails_its_block_and_the_run_goes_on_until_ctrl_c() {
    let out = TempDir::new().unwrap();
    let mut child = running(out.path());
    let first = || processes(out.path()).into_iter().find(|(is_first, _)| *is_first);
    wait_until("a browser runs", || first().is_some());
    send(Signal::SIGKILL, first().unwrap().1);
    let told = told_until(&mut child, "block 5/");
    assert!(told.contains("Chromium ended in the middle of a block: signal 9 ended it"), "{told}");
    send(Signal::SIGINT, child.id());
    child.ran().ended(130);
    assert!(blocks_in(out.path()) >= 3);
    wait_until("no process is left", || processes(out.path()).is_empty());
}

#[test]
fn what_cannot_be_measured_is_refused_with_the_reason() {
    let out = TempDir::new().unwrap();
    for (args, code, says) in [
        (&["--link", "slow-4g", "--part", "decode"][..], 2, "only the part end-to-end"),
        (&["--link", "5g-in-a-tunnel"], 2, "--link"),
        (
            &["--formats", "tlv", "--chromium", "/bin/false"],
            2,
            "no decoder of \"tlv\"; known: json cbor-packed",
        ),
        (&["--formats", "json", "--chromium", "/bin/false"], 1, "/bin/false did not start: it ended with"),
        // Without Chromium.
        (&["--formats", "json"], 2, "apt-get install chromium"),
    ] {
        command(out.path(), &[&NO_SCRIPT[..], args].concat())
            .env("PATH", out.path())
            .ran()
            .ended(code)
            .saying(&[says]);
    }
}

#[test]
fn without_the_page_the_command_that_builds_it_is_told() {
    let out = TempDir::new().unwrap();
    let none = r#"{"libraries": {}, "decoders": [], "tasks": []}"#;
    for (rows, says) in
        [(None, "No such file"), (Some("[]"), "invalid"), (Some(none), "first row is not json")]
    {
        rows.iter().for_each(|rows| fs::write(out.path().join("rows.json"), rows).unwrap());
        compare(out.path(), &["--page", out.path().to_str().unwrap()])
            .ended(2)
            .saying(&[says, "npm run build` in web/browser"]);
    }
}
