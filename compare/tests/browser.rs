//! The real program with a real browser: pages are measured, a broken decoder and a killed browser
//! are told of. And with devices, which are a browser or play one.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{
    fs,
    io::Read,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use corpus::Corpus;
use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use report::{ResultFile, Role, comparisons, result::Part};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_tungstenite::tungstenite::{self, Message};

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

/// A page for runs in which no browser opens it.
const NO_SCRIPT: [&str; 2] = ["--page", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page")];

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
#[ignore = "needs chromium or google-chrome, network namespaces and /dev/net/tun"]
fn a_browser_over_a_link_waits_for_the_bytes_that_the_link_carries() {
    let out = TempDir::new().unwrap();
    let file = few_events(out.path());
    let args = ["--link", "down=8mbit,up=8mbit,rtt=40ms", "--formats", "dannypack", "--rounds", "1"];
    let batches = ["--compressions", "none", "--batching", "on", "--corpus", file.to_str().unwrap()];
    let run = compare(out.path(), &[&args[..], &batches].concat());
    let (table, progress) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    // A busy machine may make every block of a row count for nothing (3).
    assert!(matches!(run.status.code(), Some(0 | 3)), "{:?}\n{progress}", run.status);
    assert!(table.contains("emulated link") && !table.contains("main µs"), "{table}");
    let result = result_in(out.path());
    let browser = result.browser.as_ref().unwrap();
    let json_bytes = browser.events.iter().find(|set| set.name == "mixed").unwrap().json_bytes;
    for cell in &browser.cells {
        assert_eq!(cell.part, Part::EndToEnd);
        for block in &cell.blocks {
            let (warm, bytes) = (block.warm.as_ref().unwrap(), block.link_bytes.unwrap());
            assert_eq!(warm.events, 200);
            let is_json = cell.format == "json";
            assert_eq!(bytes > json_bytes, is_json, "{}: {bytes} of {json_bytes}", cell.id);
            // 8 Mbit/s carry a byte in a microsecond, behind a round trip.
            let least_ns = 40_000_000 + (bytes - 30_000) * 1_000;
            assert!(warm.wall_ns > least_ns, "{}: {} ns for {bytes} bytes", cell.id, warm.wall_ns);
        }
    }
    assert_eq!(processes(out.path()), []);
}

#[test]
fn a_browser_over_a_link_is_measured_end_to_end_alone() {
    let out = TempDir::new().unwrap();
    for (args, says) in [
        (&["--link", "slow-4g", "--part", "decode"][..], "only the part end-to-end"),
        (&["--link", "slow-4g", "--serve"], "cannot be used with"),
        (&["--link", "5g-in-a-tunnel"], "--link"),
    ] {
        let run = compare(out.path(), args);
        let told = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{told}");
        assert!(told.contains(says), "{told}");
    }
}

#[test]
#[ignore = "needs chromium or google-chrome"]
fn a_browser_with_a_broken_decoder_is_not_measured_and_the_event_is_named() {
    let out = TempDir::new().unwrap();
    let file = few_events(out.path());
    let page = out.path().join("page");
    fs::create_dir(&page).unwrap();
    for (name, more) in [("page.js", "\nbench.plant('dannypack:tuned');"), ("rows.json", "")] {
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../web/browser/dist").join(name);
        fs::write(page.join(name), fs::read_to_string(built).unwrap() + more).unwrap();
    }
    let args = ["--formats", "dannypack", "--part", "decode", "--page", page.to_str().unwrap(), "--corpus"];
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

fn interrupt(child: &Child) {
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
}

#[test]
#[ignore = "needs chromium or google-chrome"]
fn a_browser_that_is_killed_ends_the_run_and_what_was_measured_is_kept() {
    let out = TempDir::new().unwrap();
    let child = running(out.path());
    let first = processes(out.path()).into_iter().find(|(is_first, _)| *is_first).unwrap().1;
    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
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
    interrupt(&child);
    let run = child.wait_with_output().unwrap();
    assert_eq!(run.status.code(), Some(130), "{}", String::from_utf8_lossy(&run.stderr));
    assert!(blocks_in(out.path()) >= 2);
    assert_eq!(processes(out.path()), []);
}

#[test]
fn without_chromium_the_way_to_get_it_is_told() {
    let out = TempDir::new().unwrap();
    let run = command(out.path(), &NO_SCRIPT).env("PATH", out.path()).output().unwrap();
    let told = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(2), "{told}");
    assert!(told.contains("apt-get install chromium"), "{told}");
}

#[test]
fn a_program_that_is_no_browser_is_told_of() {
    let out = TempDir::new().unwrap();
    let args = ["--chromium", "/bin/false", "--formats", "json", "--part", "decode"];
    let run = compare(out.path(), &[&NO_SCRIPT[..], &args].concat());
    let told = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(1), "{told}");
    assert!(told.contains("/bin/false did not start: it ended with"), "{told}");
}

#[test]
fn a_format_that_the_page_cannot_read_is_refused_with_those_that_it_can() {
    let out = TempDir::new().unwrap();
    let run = compare(out.path(), &[&NO_SCRIPT[..], &["--serve", "--formats", "tlv"]].concat());
    let told = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(2), "{told}");
    assert!(told.contains("no decoder of \"tlv\"") && told.contains("dannypack"), "{told}");
}

#[test]
fn without_the_page_the_command_that_builds_it_is_told() {
    let out = TempDir::new().unwrap();
    let none = r#"{"libraries": {}, "decoders": [], "tasks": []}"#;
    for (rows, says) in
        [(None, "No such file"), (Some("[]"), "invalid"), (Some(none), "first row is not json")]
    {
        rows.iter().for_each(|rows| fs::write(out.path().join("rows.json"), rows).unwrap());
        let run = compare(out.path(), &["--serve", "--page", out.path().to_str().unwrap()]);
        let told = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{told}");
        assert!(told.contains(says) && told.contains("npm run build` in web/browser"), "{told}");
    }
}

/// Starts `compare browser --serve` with few events; the address that it prints.
fn serving(out: &Path, args: &[&str]) -> (Child, String) {
    let file = few_events(out);
    let few = ["--corpus", file.to_str().unwrap(), "--events", "lists", "--step-ms", "20", "--serve"];
    let mut child =
        command(out, &[args, &few].concat()).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let told = told_until(&mut child, "on the device");
    let (_, url) = told.split_once("Open ").unwrap();
    let url = url.split(' ').next().unwrap().to_owned();
    assert!(url.starts_with("http://127.0.0.1:") && url.ends_with('/'), "{url}");
    (child, url)
}

/// The same for a device that is no browser.
fn scripted(out: &Path, args: &[&str]) -> (Child, String) {
    serving(out, &[&NO_SCRIPT[..], args].concat())
}

/// A page's answer to a call, but for the time that it takes.
fn page(asked: &Value) -> Value {
    let expression = asked["argument"].as_str().unwrap();
    let value = match (asked["deed"].as_str().unwrap(), expression.split('(').next().unwrap()) {
        ("close", _) => json!({ "hidden": false }),
        ("run", "bench.about") => {
            json!({ "has_to_hex": true, "isolated": false, "user_agent": "A <b>Phone/1.0", "clock_ms": 0.1 })
        }
        ("run", "bench.prepare") => json!(20),
        ("run", "bench.cold") => json!({ "events": 100, "milliseconds": 5.0 }),
        ("run", "bench.warm") => json!({ "events": 1_000, "milliseconds": 20.0 }),
        ("run", "bench.connect") => {
            return json!({ "id": asked["id"], "error": "Error: no connection to ws://127.0.0.1" });
        }
        ("open", _) | ("run", "bench.check") => Value::Null,
        (deed, expression) => panic!("{deed} {expression}"),
    };
    json!({ "id": asked["id"], "value": value })
}

/// A device that is no browser: answers until there is no answer, or the connection ends. What it
/// was shown, and the words at the end.
fn play(url: &str, mut answer: impl FnMut(&Value) -> Option<String>) -> (Vec<Value>, String) {
    let url = format!("{}device", url.replacen("http", "ws", 1));
    let (mut socket, _) = tungstenite::connect(url).unwrap();
    let mut shown = Vec::new();
    loop {
        match socket.read() {
            Ok(Message::Text(text)) => {
                let asked: Value = serde_json::from_str(&text).unwrap();
                if let Some(progress) = asked.get("show") {
                    shown.push(progress.clone());
                } else if let Some(text) = answer(&asked) {
                    // Who was answered before may have ended the connection.
                    let _ = socket.send(Message::text(text));
                } else {
                    return (shown, String::new());
                }
            }
            Ok(Message::Close(frame)) => {
                return (shown, frame.map_or_else(String::new, |frame| frame.reason.to_string()));
            }
            Ok(_) => {}
            Err(_) => return (shown, String::new()),
        }
    }
}

#[test]
fn a_device_is_measured_by_its_clock_and_without_a_way_to_the_relay() {
    let out = TempDir::new().unwrap();
    let (child, url) = scripted(out.path(), &["--formats", "json", "--part", "decode,live", "--rounds", "1"]);
    let (shown, words) = play(&url, |asked| Some(page(asked).to_string()));
    let run = child.wait_with_output().unwrap();
    let (table, told) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert_eq!(run.status.code(), Some(0), "{told}");
    assert!(words.starts_with("Done"), "{words:?}");
    // Anchor, three rows and the anchor.
    assert_eq!(shown.len(), 5, "{shown:?}");
    assert_eq!((&shown[4]["done"], &shown[4]["of"]), (&json!(4), &json!(5)));
    assert!(shown[4]["now"].as_str().unwrap().contains("decode:lists:json"), "{}", shown[4]);
    let before = "decode:lists:json:bytes: 20.00 µs an event by the page's clock";
    assert!(shown[4]["last"].as_str().unwrap().contains(before), "{}", shown[4]);
    assert!(table.contains("wall clock only (A ?b?Phone/1.0)") && table.contains("wall µs/event"), "{table}");
    assert!(told.contains("not measured: the parts over WebSockets"), "{told}");
    let browser = result_in(out.path()).browser.unwrap();
    assert_eq!((browser.software.client.as_str(), browser.software.clock_ns), ("device", Some(100_000)));
    assert_eq!((browser.not_measured.len(), browser.cells.len()), (1, 4));
    for block in browser.cells.iter().flat_map(|cell| &cell.blocks) {
        let (cold, warm) = (block.cold.as_ref().unwrap(), block.warm.as_ref().unwrap());
        assert_eq!((cold.wall_ns, warm.wall_ns), (5_000_000, 20_000_000));
        assert_eq!((warm.main_ns, warm.renderer_ns, warm.network_ns, warm.inside_ns), (0, 0, 0, 0));
        assert!(block.why.is_empty() && block.heap_bytes.is_none(), "{block:?}");
    }
}

#[test]
fn a_device_that_answers_nonsense_or_leaves_ends_the_run_and_what_was_measured_is_kept() {
    let another = |asked: &Value| Some(json!({ "id": asked["id"].as_u64().unwrap() + 1 }).to_string());
    let slow = |asked: &Value| {
        let step = json!({ "events": 1_000, "milliseconds": 1e9 });
        Some(json!({ "id": asked["id"], "value": step }).to_string())
    };
    let odd = |asked: &Value| Some(json!({ "id": asked["id"], "value": { "events": -1 } }).to_string());
    let many = |_: &Value| Some("x".repeat(1 << 16));
    let gone = |_: &Value| None;
    for (answer, expected) in [
        (&another as &dyn Fn(&Value) -> Option<String>, "the device's answer is refused: it answers call"),
        (&slow, "the device's answer is refused: a step of 1000000000 ms in a call of"),
        (&odd, "it returned something else than a step"),
        (&many, "the device's answer is refused: Space limit exceeded"),
        (&gone, "the device left"),
    ] {
        let out = TempDir::new().unwrap();
        let (child, url) = scripted(out.path(), &["--formats", "json", "--part", "decode", "--rounds", "50"]);
        let mut warm = 0;
        play(&url, |asked| {
            // Two of each block, the first of them not counted.
            warm += u32::from(asked["argument"].as_str().unwrap().starts_with("bench.warm"));
            if warm < 6 { Some(page(asked).to_string()) } else { answer(asked) }
        });
        let run = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(1), "{told}");
        assert!(told.contains(expected), "{expected:?} is not in\n{told}");
        assert_eq!(blocks_in(out.path()), 2, "{expected}");
    }
}

#[test]
fn a_device_whose_decoder_differs_is_not_measured() {
    let out = TempDir::new().unwrap();
    let (child, url) = scripted(out.path(), &["--formats", "json", "--part", "decode"]);
    play(&url, |asked| {
        let is_check = asked["argument"].as_str().unwrap().starts_with("bench.check");
        let differs = json!({ "id": asked["id"], "value": { "id": "ab", "found": "\u{1b}[2J" } });
        Some(if is_check { differs.to_string() } else { page(asked).to_string() })
    });
    let run = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(4), "{told}");
    assert!(told.contains("json reads event ab otherwise than JSON.parse does: ??2J"), "{told}");
}

#[test]
fn a_page_is_not_served_at_all_addresses_or_at_that_of_another_machine() {
    let out = TempDir::new().unwrap();
    // RFC 5737: an address of documentation, which no machine has.
    for (address, code, expected) in [
        ("0.0.0.0", 2, "expected one IPv4 address of this machine"),
        ("192.0.2.1", 1, "cannot serve the page at 192.0.2.1:0"),
    ] {
        let run = compare(out.path(), &[&NO_SCRIPT[..], &["--format", "json", "--serve", address]].concat());
        let told = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(code), "{told}");
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
#[ignore = "needs chromium or google-chrome"]
fn a_browser_as_a_device_decodes_and_receives_by_wall_clock() {
    let out = TempDir::new().unwrap();
    let args = ["--formats", "json,dannypack", "--part", "decode,live", "--rounds", "1"];
    let over_sockets = ["--compressions", "zstd", "--batching", "on"];
    let (child, url) = serving(out.path(), &[&args[..], &over_sockets].concat());
    let programs = ["chromium", "chromium-browser", "google-chrome"];
    let device = programs.iter().find_map(|program| {
        let mut device = Command::new(program);
        // The port keeps a headless browser running; nothing connects to it.
        device.args(["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]);
        device.arg(format!("--user-data-dir={}", out.path().join("device").display())).arg(&url);
        device.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().ok()
    });
    let mut device = device.expect("a browser on PATH");
    let run = child.wait_with_output().unwrap();
    killpg(Pid::from_raw(device.id().try_into().unwrap()), Signal::SIGKILL).unwrap();
    device.wait().unwrap();
    let (table, told) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    // On a busy machine a step may be too short for its clock (3).
    assert!(matches!(run.status.code(), Some(0 | 3)), "{:?}\n{told}", run.status);
    assert!(table.contains("wall clock only") && table.contains("dannypack:tuned"), "{table}");
    let browser = result_in(out.path()).browser.unwrap();
    assert!(browser.software.user_agent.contains("Chrome/"), "{:?}", browser.software);
    assert!(browser.software.client == "device" && browser.not_measured.is_empty());
    for cell in &browser.cells {
        assert!(!cell.blocks.is_empty(), "{}", cell.id);
        for block in &cell.blocks {
            let warm = block.warm.as_ref().unwrap();
            assert!(warm.events > 0 && warm.wall_ns > 0 && warm.main_ns == 0, "{warm:?}");
            assert_eq!(warm.messages > 0, cell.part == Part::Live, "{}", cell.id);
            assert_eq!(cell.input_bytes > Some(0), cell.part == Part::Decode, "{}", cell.id);
        }
    }
    wait_until("no process is left", || processes(&out.path().join("device")).is_empty());
}
