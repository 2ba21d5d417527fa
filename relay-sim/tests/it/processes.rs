//! The program itself: what it announces, how it stops, how it fails.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    process::{Child, ChildStdout, Command, Output, Stdio},
};

use codecs::Format;
use serde_json::Value;
use wire::{Compression, Connection, Offer, WireLimits};

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relay-sim"));
    command.env_remove("RUST_LOG").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = program().args(args).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// A relay that announced itself, its URL, and the rest of its stdout.
pub(crate) fn announced(args: &[&str]) -> (Child, String, BufReader<ChildStdout>) {
    announced_by(program(), args)
}

/// The same, started by a command that takes relay-sim's arguments.
pub(crate) fn announced_by(mut command: Command, args: &[&str]) -> (Child, String, BufReader<ChildStdout>) {
    command.env_remove("RUST_LOG").stderr(Stdio::null());
    announced_and_logging(command, args)
}

/// The same, with the log that the command says.
fn announced_and_logging(mut command: Command, args: &[&str]) -> (Child, String, BufReader<ChildStdout>) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.args(["--announce", "--listen", "127.0.0.1:0"]).args(args).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["pid"], child.id());
    (child, line["listening"].as_str().unwrap().to_owned(), stdout)
}

/// A connection in JSON that sent a REQ for each subscription.
async fn requested(url: &str, subscriptions: &[&str]) -> Connection {
    let offer = Offer { batched: false, formats: vec![Format::JSON], compression: Compression::None };
    let mut conn = wire::connect(url, &offer, &WireLimits::default()).await.unwrap();
    for name in subscriptions {
        conn.feed(format!(r#"["REQ","{name}",{{}}]"#).into()).await.unwrap();
    }
    conn.flush().await.unwrap();
    conn
}

#[test]
fn a_child_announces_itself_and_stops_with_its_parents_stdin() {
    for threads in ["1", "2"] {
        let (mut child, url, mut stdout) =
            announced(&["--format", "json", "--verify", "none", "--threads", threads]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut conn = requested(&url, &["a"]).await;
            let answer = conn.next().await.unwrap().unwrap();
            assert_eq!(answer.payload, r#"["EOSE","a"]"#);
            // Whoever started it may ask for totals meanwhile.
            writeln!(child.stdin.as_mut().unwrap(), "nonsense\ntotals").unwrap();
            let mut totals = String::new();
            stdout.read_line(&mut totals).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&totals).unwrap()["requests"], 1);
            drop(child.stdin.take());
            assert!(conn.next().await.is_none(), "closed in order");
        });
        let mut totals = String::new();
        stdout.read_to_string(&mut totals).unwrap();
        let totals: Value = serde_json::from_str(&totals).unwrap();
        assert_eq!((&totals["connections"], &totals["requests"]), (&1.into(), &1.into()));
        assert_eq!(totals["traffic"]["received"]["messages"], 1);
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn a_relay_whose_log_nobody_reads_serves_on() {
    let (reader, log) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = program();
    command.env("RUST_LOG", "trace").stderr(log);
    let (mut child, url, mut stdout) = announced_and_logging(command, &["--format", "json"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut conn = requested(&url, &["a"]).await;
        assert_eq!(conn.next().await.unwrap().unwrap().payload, r#"["EOSE","a"]"#);
    });
    drop(child.stdin.take());
    let mut totals = String::new();
    stdout.read_to_string(&mut totals).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&totals).unwrap()["requests"], 1);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn sigterm_stops_in_order() {
    let (mut child, _url, mut stdout) = announced(&[]);
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let mut totals = String::new();
    stdout.read_to_string(&mut totals).unwrap();
    assert!(serde_json::from_str::<Value>(&totals).unwrap()["connections"].is_u64());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_port_in_use_is_named_with_a_way_out() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("day.jsonl.zst");
    let (code, stderr) = run(&["--listen", &address, "--record", file.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains(&address) && stderr.contains("--listen 127.0.0.1:PORT"), "{stderr}");
    assert!(!file.exists(), "a relay that does not start records nothing");
    // Whatever the log leaves out.
    let silent = program().env("RUST_LOG", "off").args(["--listen", &address]).output().unwrap();
    let said = String::from_utf8(silent.stderr).unwrap();
    assert!(said.starts_with("relay-sim: another program listens on") && said.contains(&address), "{said}");
}

#[test]
fn a_corpus_that_cannot_be_read_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("absent.jsonl");
    let (code, stderr) = run(&["--corpus", path.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("absent.jsonl"), "{stderr}");
}

#[test]
fn hits_of_faults_of_the_process_are_counted() {
    let faults = ["stall=1ms@0s", "burn=1us", "delay=1ms"];
    let flags: Vec<&str> = faults.iter().flat_map(|fault| ["--fault", fault]).collect();
    let (mut child, url, mut stdout) = announced(&[&["--verify", "none"][..], &flags].concat());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut conn = requested(&url, &[]).await;
        let (id, sig) = ("ab".repeat(32), "ab".repeat(64));
        let event = format!(
            r#"{{"id":"{id}","pubkey":"{id}","created_at":1700000000,"kind":1,"tags":[],"content":"","sig":"{sig}"}}"#
        );
        conn.feed(format!(r#"["EVENT",{event}]"#).into()).await.unwrap();
        for name in ["a", "b"] {
            conn.feed(format!(r#"["REQ","{name}",{{}}]"#).into()).await.unwrap();
        }
        conn.flush().await.unwrap();
        while conn.next().await.unwrap().unwrap().payload != r#"["EOSE","b"]"# {}
    });
    drop(child.stdin.take());
    let mut totals = String::new();
    stdout.read_to_string(&mut totals).unwrap();
    let totals: Value = serde_json::from_str(&totals).unwrap();
    let hits: Vec<u64> =
        totals["hits"].as_array().unwrap().iter().map(|hits| hits.as_u64().unwrap()).collect();
    // One stall, an event for each of two subscriptions, and bytes that came late, in any pieces.
    assert!(hits[..2] == [1, 2] && hits[2] > 0, "{totals}");
    child.wait().unwrap();
}
