//! A relay in Python spoils a known number of deliveries; the ledger must count each one exactly,
//! as the fault that it is.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use measure::{Counts, Exit, RunRecord};

/// The number of deliveries that the relay spoils.
const SPOILED: u64 = 7;

/// The relay's process, which ends with its standard input, and its URL.
struct Relay(Child, String);

impl Relay {
    fn start(fault: &str) -> Relay {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/lying_relay.py");
        let mut child = Command::new("python3")
            .arg(script)
            .args([fault, &SPOILED.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        assert!(url.starts_with("ws://"), "the relay needs python3 with websockets: {url:?}");
        Relay(child, url.trim().to_owned())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn play(fault: &str) -> (Option<i32>, Counts) {
    let relay = Relay::start(fault);
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record.json");
    let output = Command::new(env!("CARGO_BIN_EXE_client-sim"))
        .args(["--scenario", "note-stream", "--seconds", "1", "--rate", "100", "--drain-seconds", "2"])
        .args(["--quiet", "--url", &relay.1, "--record"])
        .arg(&record)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let record = RunRecord::read(&record).unwrap_or_else(|error| panic!("{error}: {text}"));
    (output.status.code(), record.counts)
}

#[test]
#[ignore = "needs python3 with websockets"]
fn deliveries_that_a_python_relay_spoils_are_counted_exactly() {
    for fault in ["none", "lose", "double", "alter", "invent", "misroute"] {
        let (code, counts) = play(fault);
        let found = [
            counts.deliveries_lost,
            counts.deliveries_duplicated,
            counts.deliveries_altered,
            counts.deliveries_invented,
            counts.deliveries_misrouted,
        ];
        let n = SPOILED;
        let expected = match fault {
            "lose" => [n, 0, 0, 0, 0],
            "double" => [0, n, 0, 0, 0],
            // An altered or misrouted delivery is a lost one too.
            "alter" => [n, 0, n, 0, 0],
            "invent" => [0, 0, 0, n, 0],
            "misroute" => [n, 0, 0, 0, n],
            _ => [0; 5],
        };
        assert_eq!(
            (found, counts.deliveries_unexpected, counts.answers_unexpected),
            (expected, 0, 0),
            "{fault}"
        );
        assert_eq!(counts.deliveries + counts.deliveries_lost, 800, "{fault}: 100 notes to 8 subscribers");
        assert_eq!(Exit::Unbalanced.is(code), fault != "none", "{fault} ended with {code:?}");
    }
}
