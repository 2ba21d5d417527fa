//! The program: its help, its refusals and its end.

use std::{
    io::{BufRead, BufReader},
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
fn sigterm_ends_it_in_order() {
    let mut child =
        program(&["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--compression", "none"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let listening = lines.find_map(|line| line.ok().filter(|line| line.contains("listening")));
    assert!(listening.unwrap().contains("ws://127.0.0.1:"));
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
    // Reads on, so that the program is not held up.
    lines.for_each(drop);
    assert!(child.wait().unwrap().success());
}
