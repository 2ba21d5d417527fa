//! Programs that know nothing of this project talk to the relay. See `docs/real-clients.md`.
//!
//! Each needs a foreign tool, which its `ignore` names and `.ci/run` installs: Node with
//! nostr-tools and ws on NODE_PATH, websockets and nostr-sdk in the first python3 on PATH, Go
//! with the modules of `tests/clients/go`, Chromium. Nothing is downloaded here.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use codecs::VerifyLevel;
use corpus::Corpus;
use relay_sim::Totals;
use tokio::{io::AsyncWriteExt, process::Command, time::timeout};

use crate::common::{PATIENCE, TestRelay, event_json, signed};

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

async fn succeeds(command: &mut Command) -> bool {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().await;
    status.is_ok_and(|status| status.success())
}

fn check(Output { status, stdout, stderr }: &Output) {
    let (stdout, stderr) = (String::from_utf8_lossy(stdout), String::from_utf8_lossy(stderr));
    assert!(status.success(), "{stdout}{stderr}");
    eprint!("{stdout}");
}

#[tokio::test]
#[ignore = "needs node with nostr-tools and ws"]
async fn nostr_tools_is_served_unmodified() {
    let relay = TestRelay::start(|config| config.auth = true).await;
    check(&Command::new("node").arg(script("nostr_tools.cjs")).arg(&relay.url).output().await.unwrap());
    let totals = relay.stop().await;
    assert_eq!((totals.connections, totals.events_accepted, totals.events_rejected), (2, 3, 3));
    assert_eq!((totals.malformed, totals.unsupported), (2, 0));
}

#[tokio::test]
#[ignore = "needs go with the modules of tests/clients/go"]
async fn go_nostr_is_served_unmodified() {
    let folder = tempfile::tempdir().unwrap();
    let client = built_by_go(".", folder.path()).await;
    let relay = TestRelay::start(|config| config.auth = true).await;
    check(&Command::new(client).arg(&relay.url).output().await.unwrap());
    let totals = relay.stop().await;
    assert_eq!((totals.connections, totals.events_accepted, totals.events_rejected), (2, 3, 2));
    check_compressed(&totals);
}

/// The program of a package of `tests/clients/go`.
async fn built_by_go(package: &str, folder: &Path) -> PathBuf {
    let client = folder.join("client");
    let mut build = Command::new("go");
    // Without a proxy and without a toolchain of its own choice, go downloads nothing.
    build.envs([("GOPROXY", "off"), ("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0")]);
    build.current_dir(script("go")).args(["build", "-mod=readonly", "-o"]).arg(&client).arg(package);
    check(&build.output().await.unwrap());
    client
}

/// Runs a program that finds relay-sim on PATH.
async fn beside_relay_sim(command: &mut Command) -> Output {
    let programs = Path::new(env!("CARGO_BIN_EXE_relay-sim")).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(programs.to_owned()).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(paths).unwrap()).kill_on_drop(true);
    timeout(3 * PATIENCE, command.output()).await.expect("the program ends").unwrap()
}

/// Runs an example of docs/test-relay.md.
async fn check_example(command: &mut Command) {
    check(&beside_relay_sim(command).await);
}

#[tokio::test]
#[ignore = "needs node with nostr-tools and ws"]
async fn nostr_tools_is_tested_against_a_relay_that_misbehaves() {
    check_example(Command::new("node").arg(script("test_relay.cjs"))).await;
}

#[tokio::test]
#[ignore = "needs go with the modules of tests/clients/go"]
async fn go_nostr_is_tested_against_a_relay_that_misbehaves() {
    let folder = tempfile::tempdir().unwrap();
    check_example(&mut Command::new(built_by_go("./misbehaving", folder.path()).await)).await;
}

/// Runs go-nostr's own tests against a relay-sim with these faults.
async fn own_tests_of_go_nostr(faults: &[&str]) -> Output {
    let mut command = Command::new(script("own_tests"));
    command.arg("go-nostr").args(faults);
    // As when it is built: nothing is downloaded.
    command.envs([("GOPROXY", "off"), ("GOTOOLCHAIN", "local")]);
    beside_relay_sim(&mut command).await
}

/// Whether `go test -v` says that a test ended so.
fn says(output: &Output, how: &str, test: &str) -> bool {
    let line = format!("--- {how}: {test} ");
    String::from_utf8_lossy(&output.stdout).lines().any(|said| said.starts_with(&line))
}

#[tokio::test]
#[ignore = "needs go with the modules of tests/clients/go, and of go-nostr's own tests"]
async fn go_nostr_passes_its_own_tests_and_fails_one_by_a_fault() {
    let tests = ["TestSubscribeBasic", "TestNestedSubscriptions", "TestEOSEMadness"];
    let whole = own_tests_of_go_nostr(&[]).await;
    check(&whole);
    for test in tests {
        assert!(says(&whole, "PASS", test), "{test} was not run: {whole:?}");
    }
    // An event that comes twice is given to its caller twice.
    let twice = own_tests_of_go_nostr(&["double=100%"]).await;
    assert!(!twice.status.success() && says(&twice, "FAIL", "TestSubscribeBasic"), "{twice:?}");
    let refused = own_tests_of_go_nostr(&["no-such-fault"]).await;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("relay-sim does not start with the faults no-such-fault"), "{said}");
}

#[tokio::test]
#[ignore = "needs python3 with nostr-sdk"]
async fn nostr_sdk_is_tested_against_a_relay_that_misbehaves() {
    check_example(Command::new("python3").arg(script("test_relay.py"))).await;
}

#[tokio::test]
#[ignore = "needs chromium or google-chrome"]
async fn the_websocket_of_a_browser_exchanges_compressed_messages() {
    let browser = installed_browser().await.expect("a browser on PATH");
    let relay = TestRelay::start(|config| config.verify = VerifyLevel::Full).await;
    // Repetitive enough to show in the relay's counts.
    let event = signed(1, 1_700_000_000, Vec::new(), "a browser's \"words\" – ümlauts too. ".repeat(100));
    let page = fs::read_to_string(script("browser.html")).unwrap();
    let page = page.replace("RELAY_URL", &relay.url).replace("EVENT_JSON", &event_json(&event));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    fs::write(&file, page).unwrap();
    let mut run = Command::new(browser);
    run.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--timeout=15000"])
        .arg("--dump-dom")
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .kill_on_drop(true);
    let output = timeout(2 * PATIENCE, run.output()).await.expect("the browser ends").unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let outcome = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next());
    assert_eq!(outcome, Some("passed: altered, live, stored"), "{}", String::from_utf8_lossy(&output.stderr));
    let totals = relay.stop().await;
    assert_eq!((totals.connections, totals.events_accepted, totals.events_rejected), (2, 1, 1));
    check_compressed(&totals);
}

async fn installed_browser() -> Option<&'static str> {
    for name in ["chromium", "chromium-browser", "google-chrome"] {
        if succeeds(Command::new(name).arg("--version")).await {
            return Some(name);
        }
    }
    None
}

/// Both directions carried less than was said, by far, and nothing that the relay could not read.
fn check_compressed(totals: &Totals) {
    let (sent, received) = (totals.traffic.sent, totals.traffic.received);
    assert!(sent.wire_bytes < sent.payload_bytes * 9 / 10, "{sent:?} is compressed");
    assert!(received.wire_bytes < received.payload_bytes * 9 / 10, "{received:?} is compressed");
    assert_eq!((totals.malformed, totals.unsupported), (0, 0));
}

#[tokio::test]
#[ignore = "needs python3 with websockets"]
async fn python_websockets_exchanges_compressed_messages() {
    // Kinds that are kept side by side, so that all of them come back.
    let corpus = Corpus::bundled();
    let events = corpus.events.iter().filter(|event| [1, 6, 7].contains(&event.kind)).take(50);
    let lines: String = events.map(|event| event_json(event) + "\n").collect();
    let relay = TestRelay::start(|config| config.verify = VerifyLevel::Full).await;
    let mut child = Command::new("python3")
        .arg(script("websockets_deflate.py"))
        .arg(&relay.url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(lines.as_bytes()).await.unwrap();
    drop(stdin);
    check(&child.wait_with_output().await.unwrap());
    let totals = relay.stop().await;
    check_compressed(&totals);
}
