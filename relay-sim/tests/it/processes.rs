//! The program itself: what it announces, how it stops, how it fails.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    process::{Child, ChildStdout, Command, Output, Stdio},
};

use codecs::Filter;
use serde_json::Value;

use crate::common::{Client, note};

/// A relay that announced itself, its URL, and the rest of its stdout.
pub(crate) type Program = (Child, String, BufReader<ChildStdout>);

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relay-sim"));
    command.env_remove("RUST_LOG").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = program().args(args).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

pub(crate) fn announced(args: &[&str]) -> Program {
    announced_by(program(), args)
}

/// The same, started by a command that takes relay-sim's arguments.
pub(crate) fn announced_by(mut command: Command, args: &[&str]) -> Program {
    command.env_remove("RUST_LOG").stderr(Stdio::null());
    announced_and_logging(command, args)
}

/// The same, with the log that the command says.
fn announced_and_logging(mut command: Command, args: &[&str]) -> Program {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.args(["--announce", "--listen", "127.0.0.1:0"]).args(args).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["pid"], child.id());
    (child, line["listening"].as_str().unwrap().to_owned(), stdout)
}

/// Waits for the end of a relay whose standard input ends, or which got a signal. Returns its totals.
pub(crate) fn stop(mut child: Child, mut stdout: BufReader<ChildStdout>) -> Value {
    drop(child.stdin.take());
    let mut totals = String::new();
    stdout.read_to_string(&mut totals).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    serde_json::from_str(&totals).unwrap()
}

#[tokio::test]
async fn a_child_announces_itself_and_stops_with_its_parents_stdin() {
    for threads in ["1", "2"] {
        let (mut child, url, mut stdout) =
            announced(&["--format", "json", "--verify", "none", "--threads", threads]);
        let mut client = Client::json(&url).await;
        client.request("a", vec![Filter::default()]).await;
        client.expect(r#"["EOSE","a"]"#).await;
        // Whoever started it may ask for totals meanwhile.
        writeln!(child.stdin.as_mut().unwrap(), "nonsense\ntotals").unwrap();
        let mut totals = String::new();
        stdout.read_line(&mut totals).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&totals).unwrap()["requests"], 1);
        drop(child.stdin.take());
        assert!(client.hear().await.unwrap_err().is_none(), "closed in order");
        let totals = stop(child, stdout);
        assert_eq!((&totals["connections"], &totals["requests"]), (&1.into(), &1.into()));
        assert_eq!(totals["traffic"]["received"]["messages"], 1);
    }
}

#[tokio::test]
async fn a_relay_whose_log_nobody_reads_serves_on() {
    let (reader, log) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = program();
    command.env("RUST_LOG", "trace").stderr(log);
    let (child, url, stdout) = announced_and_logging(command, &["--format", "json"]);
    let mut client = Client::json(&url).await;
    client.request("a", vec![Filter::default()]).await;
    client.expect(r#"["EOSE","a"]"#).await;
    assert_eq!(stop(child, stdout)["requests"], 1);
}

#[test]
fn sigterm_stops_in_order() {
    let (child, _url, stdout) = announced(&[]);
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(stop(child, stdout)["connections"].is_u64());
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

#[tokio::test]
async fn hits_of_faults_of_the_process_are_counted() {
    let faults = ["stall=1ms@0s", "burn=1us", "delay=1ms"];
    let flags: Vec<&str> = faults.iter().flat_map(|fault| ["--fault", fault]).collect();
    let (child, url, stdout) = announced(&flags);
    let mut client = Client::json(&url).await;
    client.publish(&note(1, 1)).await;
    for name in ["a", "b"] {
        client.request(name, vec![Filter::default()]).await;
    }
    while client.hear().await.unwrap() != r#"["EOSE","b"]"# {}
    let totals = stop(child, stdout);
    let hits: Vec<u64> =
        totals["hits"].as_array().unwrap().iter().map(|hits| hits.as_u64().unwrap()).collect();
    // One stall, an event for each of two subscriptions, and bytes that came late, in any pieces.
    assert!(hits[..2] == [1, 2] && hits[2] > 0, "{totals}");
}
