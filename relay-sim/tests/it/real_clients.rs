//! Programs that know nothing of this project talk to the relay. See `docs/real-clients.md`.
//!
//! They need Node with nostr-tools and ws on NODE_PATH, or websockets in the first python3 on PATH, as `.ci/run` sets
//! them up; where these are not installed the tests say so and pass. Nothing is downloaded here.

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use codecs::VerifyLevel;
use corpus::Corpus;
use tokio::{io::AsyncWriteExt, process::Command};

use crate::common::{TestRelay, event_json};

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
async fn nostr_tools_is_served_unmodified() {
    let probe = "require.resolve('nostr-tools/relay'); require.resolve('ws')";
    if !succeeds(Command::new("node").args(["-e", probe])).await {
        eprintln!("skipped: node, nostr-tools and ws are not found by NODE_PATH");
        return;
    }
    let relay = TestRelay::start(|config| config.auth = true).await;
    check(&Command::new("node").arg(script("nostr_tools.cjs")).arg(&relay.url).output().await.unwrap());
    let totals = relay.stop().await;
    assert_eq!((totals.connections, totals.events_accepted, totals.events_rejected), (2, 3, 2));
    assert_eq!((totals.malformed, totals.unsupported), (0, 0));
}

#[tokio::test]
async fn python_websockets_exchanges_compressed_messages() {
    if !succeeds(Command::new("python3").args(["-c", "import websockets.asyncio.client"])).await {
        eprintln!("skipped: the first python3 on PATH has no websockets");
        return;
    }
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
    let (sent, received) = (totals.traffic.sent, totals.traffic.received);
    assert!(sent.wire_bytes < sent.payload_bytes * 9 / 10, "{sent:?} is compressed");
    assert!(received.wire_bytes < received.payload_bytes * 9 / 10, "{received:?} is compressed");
    assert_eq!(totals.malformed, 0);
}
