//! The program: its help, its refusals and its end.

use std::{
    io::{BufRead, BufReader},
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
    command.args(args).env("COLUMNS", "100").env_remove("RUST_LOG");
    command
}

#[test]
fn short_help_fills_one_screen_at_most_and_mistakes_are_named() {
    let help = program(&["-h"]).output().unwrap();
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(help.status.success() && text.lines().count() <= 50, "{text}");
    for (args, code, why) in [
        (&["--relay", "ws://192.0.2.1"][..], 1, "--relay-is-public"),
        (&["--relay", "http://127.0.0.1"], 2, "ws://"),
        (&["--trust", "10.0.0.0/64"], 2, "10.0.0.0/8"),
        (&["--compression", "gzip"], 2, "deflate-shared"),
        (&["--cert", "cert.pem"], 2, "--key"),
        (&["--dictionary", "no/such/file"], 1, "no/such/file"),
    ] {
        let output = program(&[&["--listen", "127.0.0.1:0"], args].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(why), "{args:?}: {said}");
    }
}

#[test]
fn a_start_that_fails_leaves_no_recording_behind() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("day.jsonl.zst");
    for (args, why) in [
        (["--listen", &address, "--metrics-listen", "127.0.0.1:0"], address.as_str()),
        (["--listen", "127.0.0.1:0", "--metrics-listen", &address], address.as_str()),
        (["--listen", "127.0.0.1:0", "--dictionary", "no/such/file"], "no/such/file"),
    ] {
        let output = program(&args).arg("--record").arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(why), "{said}");
        assert!(!file.exists(), "{args:?}");
    }
}

#[test]
fn a_program_that_starts_it_hears_where_it_is_and_ends_it_by_its_input() {
    let start = |relay: &str| {
        let mut command = program(&["--announce", "--listen", "127.0.0.1:0", "--relay", relay]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut child = start("ws://127.0.0.1:1");
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(said["pid"], child.id());
    let address = said["listening"].as_str().and_then(|url| url.strip_prefix("ws://")).unwrap();
    TcpStream::connect(address).unwrap();
    drop(child.stdin.take());
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");

    let refused = start("ws://192.0.2.1").wait_with_output().unwrap();
    let said: serde_json::Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert!(said["failed"].as_str().unwrap().contains("--relay-is-public"), "{said}");
    assert_eq!(refused.status.code(), Some(1));
}

#[test]
fn sigterm_ends_it_in_order() {
    let mut child = program(&["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"])
        .args(["--compression", "none", "--max-connections", "4294967295"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut told = |what| lines.find_map(|line| line.ok().filter(|line| line.contains(what))).unwrap();
    assert!(told("descriptors").contains("LimitNOFILE"));
    assert!(told("listening").contains("ws://127.0.0.1:"));
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
    // Reads on, so that the program is not held up.
    lines.for_each(drop);
    assert!(child.wait().unwrap().success());
}
