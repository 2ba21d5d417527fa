//! With whom a run without --url plays, and what both speak.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use measure::RunRecord;

use crate::{common::Relay, few::few_events, ran::Ran, setup::Setup};

fn setup() -> Setup {
    Setup::built_in("note-stream", Some(few_events()))
}

/// Plays a few notes with these flags; its output, and the record if there is one.
fn play(setup: &Setup, flags: &[&str]) -> (Ran, Option<RunRecord>) {
    (setup.run(&[&["--rate", "50", "--seconds", "0.5"], flags].concat()), setup.record_if_any())
}

fn first_line(output: &Ran) -> String {
    output.said.lines().next().unwrap_or_default().to_owned()
}

/// The address of a relay as `--local-relay` takes it.
fn address(relay: &Relay) -> &str {
    relay.url.strip_prefix("ws://").unwrap()
}

/// Answers every request by this document, until nobody asks any more.
fn answers(listener: TcpListener, document: &'static str, times: usize) {
    thread::spawn(move || {
        for stream in listener.incoming().take(times) {
            let mut stream: TcpStream = stream.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).unwrap_or(0) == 0 {
                    break;
                }
                head.push(byte[0]);
            }
            let length = document.len();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{document}"
            )
            .ok();
        }
    });
}

#[test]
fn a_relay_sim_that_listens_is_used_and_insists_on_its_format() {
    let setup = setup();
    let relay = Relay::start(&["--format", "proto-binary"]);
    // The second run needs events that the relay has not seen.
    for _ in 0..2 {
        let (output, record) = play(&setup, &["--local-relay", address(&relay)]);
        let (line, record) = (first_line(&output), record.unwrap());
        let expected = format!(
            "relay-sim {} at {} · proto-binary, no compression (the relay insists)",
            env!("CARGO_PKG_VERSION"),
            relay.url
        );
        assert_eq!(line, expected);
        assert_eq!((&*record.cell.format, &*record.cell.compression), ("proto-binary", "none"));
        assert_eq!(record.agreement.token.as_deref(), Some("nostr.proto-binary.v1"));
        assert!(record.counts.deliveries > 0, "{record:?}");
        record.counts.balanced().unwrap();
        assert!(!record.relay.as_ref().is_some_and(|relay| relay.own), "{:?}", record.relay);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_relay_sim_of_this_host_is_measured_without_its_process_id() {
    // Its process has the name of its program's file.
    let setup = setup();
    let file = setup.path("").join("relay-sim");
    std::fs::copy(env!("CARGO_BIN_EXE_client-sim"), &file).unwrap();
    let relay = Relay::started_by(std::process::Command::new(file), &["--format", "dannypack"]);
    for flags in [["--local-relay", address(&relay)], ["--url", &relay.url]] {
        let (output, record) = play(&setup, &flags);
        let record = record.unwrap_or_else(|| panic!("{output:?}"));
        assert_eq!(record.cell.format, "dannypack");
        assert_eq!(record.relay.and_then(|relay| relay.pid), Some(relay.child.id()), "{flags:?}");
        assert!(record.relay_cpu.is_some_and(|cpu| cpu.total_ns > 0), "{flags:?}");
    }
}

#[test]
fn what_is_left_open_is_the_clients_first_offer_and_flags_insist() {
    let setup = setup();
    let relay = Relay::start(&[]);
    for (flags, format, compression, why) in [
        (&[][..], "cbor-schemaless", "zstd-dict", "the client's first offer"),
        (&["--format", "json"], "json", "zstd-dict", "the client's first offer"),
        (&["--compression", "deflate"], "cbor-schemaless", "deflate", "the client's first offer"),
        (&["--format", "notepack", "--compression", "none"], "notepack", "none", "as asked"),
    ] {
        let flags = [&["--local-relay", address(&relay)], flags].concat();
        let (output, record) = play(&setup, &flags);
        let record = record.unwrap_or_else(|| panic!("{output:?}"));
        assert_eq!((&*record.cell.format, &*record.cell.compression), (format, compression), "{flags:?}");
        assert!(first_line(&output).ends_with(&format!("({why})")), "{flags:?}: {}", first_line(&output));
        record.counts.balanced().unwrap();
    }
    let relay = Relay::start(&["--format", "proto-binary", "--compression", "zstd"]);
    let (_, record) = play(&setup, &["--url", &relay.url]);
    assert_eq!(record.unwrap().agreement.token.as_deref(), Some("nostr.proto-binary.v1+zstd"));
    let flags = ["--local-relay", address(&relay), "--format", "dannypack"];
    let (output, record) = play(&setup, &flags);
    output.ended(1).saying(&["does not speak dannypack: it agreed on json"]);
    assert!(record.is_none());
}

#[test]
fn without_a_relay_sim_a_run_starts_its_own() {
    let setup = setup();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let own = format!("own relay-sim {} · json, no compression", env!("CARGO_PKG_VERSION"));
    for nowhere in [&free, "none"] {
        let (output, record) = play(&setup, &["--local-relay", nowhere]);
        assert_eq!(first_line(&output), own);
        assert!(record.unwrap().relay.unwrap().own);
    }
    // What only a relay of its own takes.
    let relay = Relay::start(&[]);
    let flags = ["--local-relay", address(&relay), "--verify", "none"];
    assert_eq!(first_line(&play(&setup, &flags).0), own);
}

#[test]
fn a_foreign_program_at_the_address_is_left_alone_and_named() {
    let setup = setup();
    for (document, who) in
        [(r#"{"software":"strfry","version":"1.0"}"#, "strfry 1.0"), ("<html>", "no relay by NIP-11")]
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        answers(listener, document, 8);
        let (output, record) = play(&setup, &["--local-relay", &address]);
        let line = first_line(&output);
        assert!(line.starts_with("own relay-sim ") && line.contains(who), "{line}");
        assert!(line.ends_with(&format!("at ws://{address} is left alone)")), "{line}");
        assert!(record.unwrap().relay.unwrap().own);
    }
}

#[test]
fn a_relay_sim_that_is_gone_when_clients_connect_is_named() {
    let setup = setup();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // The first connection only looks whether anything listens.
    answers(listener, r#"{"software":"relay-sim","version":"0"}"#, 2);
    let (output, record) = play(&setup, &["--local-relay", &address]);
    output.ended(1).saying(&[&format!("cannot connect to ws://{address}")]);
    assert!(record.is_none());
}

#[cfg(target_os = "linux")]
#[test]
fn of_two_runs_at_once_one_has_the_relay_and_the_other_its_own() {
    let setup = setup();
    let relay = Relay::start(&["--format", "proto-binary"]);
    let long = ["--rate", "50", "--seconds", "600", "--local-relay", address(&relay)];
    let mut first = setup.command(&long).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(first.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    let (second, record) = play(&setup, &["--local-relay", address(&relay)]);
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(line.ends_with("(the relay insists)\n"), "{line}");
    let line = first_line(&second);
    assert!(line.starts_with("own ") && line.ends_with("is in use by another client-sim)"), "{line}");
    record.unwrap().counts.balanced().unwrap();
}
