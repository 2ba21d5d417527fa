//! Whose CPU time and memory a record has: `--relay-pid`.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod common;

use std::process::{Command, Stdio};

use common::{Relay, program};
use measure::RunRecord;

/// Plays a short plan. Returns the exit code and what was written, and the record.
fn play(relay: &Relay, pids: &str) -> (Option<i32>, String, Option<RunRecord>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("record.json");
    let mut client = program();
    client.args(["--scenario", "note-stream", "--rate", "100", "--seconds", "1", "--url", &relay.url]);
    let output = client.args(["--relay-pid", pids, "--record"]).arg(&file).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), said, RunRecord::read(&file).ok())
}

fn pid(relay: &Relay) -> String {
    relay.child.id().to_string()
}

/// CPU time of the relay in microseconds an envelope.
fn cost(record: &RunRecord) -> f64 {
    record.relay_cpu.unwrap().total_ns as f64 / record.counts.envelopes() as f64 / 1e3
}

#[test]
fn a_relay_behind_the_shell_that_started_it_has_its_cpu_time_and_memory() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$@\"; :", "sh"]).arg(program().get_program());
    let relay = Relay::started_by(shell, &[]);
    let (_, said, record) = play(&relay, &pid(&relay));
    let record = record.unwrap_or_else(|| panic!("{said}"));
    let process = record.relay.as_ref().unwrap();
    assert_eq!((process.processes, &process.unproven), (Some(2), &None), "{said}");
    assert!(cost(&record) > 1.0, "{:?}", record.relay_cpu);
    assert!(
        record.memory.unwrap().relay_after_bytes.unwrap() > 8 << 20,
        "that of a shell: {:?}",
        record.memory
    );
    // Naming its child as well counts nothing twice.
    let child = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", pid(&relay)));
    let Ok(child) = child else { return };
    let (_, said, record) = play(&relay, &format!("{},{}", pid(&relay), child.trim()));
    let process = record.unwrap_or_else(|| panic!("{said}")).relay.unwrap();
    assert_eq!((process.processes, process.more_pids.len()), (Some(2), 1));
}

#[test]
fn a_process_that_is_no_relay_is_refused_before_anything_is_sent() {
    let relay = Relay::start(&[]);
    let mut sleep = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    let own = std::process::id();
    for (pids, why) in [
        (sleep.id().to_string(), "(sleep) listens at nothing, so it is no relay; process"),
        (own.to_string(), "runs the clients, too: name the relay's own process"),
        (format!("{},{own}", pid(&relay)), "runs the clients, too"),
        ("4194305".to_owned(), "there is no process 4194305"),
        (format!("{},0", pid(&relay)), "there is no process 0"),
    ] {
        let (code, said, record) = play(&relay, &pids);
        assert!(code == Some(2) && record.is_none(), "{pids}: {code:?} {said}");
        assert!(said.contains("--relay-pid: ") && said.contains(why), "{pids}: {said}");
    }
    sleep.kill().unwrap();
    sleep.wait().unwrap();
}

#[test]
fn another_relay_of_this_machine_is_taken_as_a_doubt_and_an_idle_one_as_none() {
    let (relay, other) = (Relay::start(&[]), Relay::start(&[]));
    let (_, said, record) = play(&relay, &pid(&other));
    let record = record.unwrap_or_else(|| panic!("{said}"));
    let doubt = record.relay.as_ref().unwrap().unproven.clone().unwrap();
    assert!(said.contains(&doubt) && record.validity.reasons.contains(&doubt), "{said}");
    let reasons = record.validity.reasons.join("\n");
    assert!(reasons.contains("is --relay-pid the relay?"), "{reasons}");
    // Both together hold the socket at the relay's address.
    let (_, said, record) = play(&relay, &format!("{},{}", pid(&other), pid(&relay)));
    let record = record.unwrap_or_else(|| panic!("{said}"));
    assert!(cost(&record) > 1.0 && record.relay.unwrap().unproven.is_none(), "{said}");
}
