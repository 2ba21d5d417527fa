//! Whose CPU time and memory a record has (`--relay-pid`), and what quotas took of it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use measure::{QuotaMeter, RunRecord};

use crate::{
    common::{Relay, program},
    few::few_events,
    ran::Ran,
    setup::Setup,
};

fn setup() -> Setup {
    Setup::built_in("note-stream", Some(few_events()))
}

/// Plays a short plan with these flags.
fn play(setup: &Setup, relay: &Relay, flags: &[&str]) -> Ran {
    setup.run(&[&["--rate", "100", "--seconds", "1", "--wide", "--url", &relay.url], flags].concat())
}

/// The record of a run that measured these processes, and what it said.
fn measured(relay: &Relay, pids: &str) -> (RunRecord, String) {
    let setup = setup();
    let said = play(&setup, relay, &["--relay-pid", pids]).said;
    (setup.record_if_any().unwrap_or_else(|| panic!("{said}")), said)
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
    let (record, said) = measured(&relay, &pid(&relay));
    let process = record.relay.as_ref().unwrap();
    assert_eq!((process.processes, &process.unproven), (Some(2), &None), "{said}");
    assert!(cost(&record) > 1.0, "{:?}", record.relay_cpu);
    assert!(
        record.memory.unwrap().relay_after_bytes.unwrap() > 1 << 20,
        "that of a shell: {:?}",
        record.memory
    );
    // Naming its child as well counts nothing twice.
    let child = fs::read_to_string(format!("/proc/{0}/task/{0}/children", pid(&relay)));
    let Ok(child) = child else { return };
    let process = measured(&relay, &format!("{},{}", pid(&relay), child.trim())).0.relay.unwrap();
    assert_eq!((process.processes, process.more_pids.len()), (Some(2), 1));
}

#[test]
fn a_record_has_what_a_relay_writes_to_disks_and_what_its_folder_takes_up() {
    // No file system in memory, as /tmp may be.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = folder.path().display().to_string();
    let setup = setup();
    let relay = Relay::start(&["--store", &store]);
    let (pid_of_relay, none) = (pid(&relay), setup.path("plan.toml").display().to_string());
    let with_folder = ["--relay-pid", &pid_of_relay, "--relay-dir", &store];
    for (flags, is_told) in [(&with_folder[..], true), (&with_folder[..2], false)] {
        let ran = play(&setup, &relay, flags);
        let process = setup.record_if_any().unwrap_or_else(|| panic!("{ran}")).relay.unwrap();
        let (written, stored) = (process.written_bytes.unwrap(), process.stored_bytes);
        assert!(written > 20_000 && stored.is_none_or(|stored| stored > 20_000), "{written} {stored:?}");
        assert_eq!(stored.is_some(), is_told, "{ran}");
        assert!(ran.out.contains("disk B/event") && ran.out.contains("stored MiB") == is_told, "{ran}");
    }
    let in_memory = Relay::start(&[]);
    let process = measured(&in_memory, &pid(&in_memory)).0.relay.unwrap();
    assert!(process.written_bytes.unwrap() < 20_000, "{:?}", process.written_bytes);
    let no_folder = ["--relay-pid", &pid_of_relay, "--relay-dir", &none];
    play(&setup, &relay, &no_folder).ended(2).saying(&["there is no such folder"]);
    assert_eq!(setup.record_if_any(), None);
}

#[test]
fn a_record_names_a_relay_as_its_document_does_and_one_without_as_unknown() {
    let relay = Relay::start(&[]);
    let version = env!("CARGO_PKG_VERSION");
    for (answers, names) in [
        (None, ("relay-sim", version)),
        (Some("{}"), ("unknown", "unknown")),
        (Some(r#"{"info": {"name": "mine", "version": "7"}}"#), ("unknown", "7")),
    ] {
        let (setup, pid) = (setup(), pid(&relay));
        setup.write("doctor.json", answers.unwrap_or_default());
        let file = setup.path("doctor.json").display().to_string();
        let doctor = ["--doctor", &*file];
        let doctor = if answers.is_some() { &doctor[..] } else { &[] };
        play(&setup, &relay, &[&["--relay-pid", &pid], doctor].concat());
        let process = setup.record().relay.unwrap();
        assert_eq!((&*process.software, &*process.version, process.own), (names.0, names.1, false));
    }
}

#[test]
fn a_process_that_is_no_relay_is_refused_before_anything_is_sent() {
    let relay = Relay::start(&[]);
    let mut sleep = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    let own = std::process::id();
    for (pids, why) in [
        (sleep.id().to_string(), "(sleep) has no socket, so it is not a relay; process"),
        (own.to_string(), "runs the clients, too: name the relay's own process"),
        (format!("{},{own}", pid(&relay)), "runs the clients, too"),
        ("4194305".to_owned(), "there is no process 4194305"),
        (format!("{},0", pid(&relay)), "there is no process 0"),
    ] {
        let setup = setup();
        play(&setup, &relay, &["--relay-pid", &pids]).ended(2).saying(&["--relay-pid: ", why]);
        assert_eq!(setup.record_if_any(), None, "{pids}");
    }
    sleep.kill().unwrap();
    sleep.wait().unwrap();
}

#[test]
fn another_relay_of_this_machine_is_taken_as_a_doubt_and_an_idle_one_as_none() {
    let (relay, other) = (Relay::start(&[]), Relay::start(&[]));
    let (record, said) = measured(&relay, &pid(&other));
    let doubt = record.relay.as_ref().unwrap().unproven.clone().unwrap();
    assert!(said.contains(&doubt) && record.validity.to_string().contains(&doubt), "{said}");
    let reasons = record.validity.to_string();
    assert!(reasons.contains("is --relay-pid the relay?"), "{reasons}");
    // Both together hold the socket at the relay's address.
    let (record, said) = measured(&relay, &format!("{},{}", pid(&other), pid(&relay)));
    assert!(cost(&record) > 1.0 && record.relay.unwrap().unproven.is_none(), "{said}");
}

/// A control group with a quota, and one in it without a quota of its own.
struct Group(PathBuf);

impl Group {
    /// `quota_us` of each 20 ms.
    fn make(name: &str, quota_us: u32) -> Group {
        let name = format!("quota-test-{}-{name}", std::process::id());
        let v2 = Path::new("/sys/fs/cgroup");
        if fs::read_to_string(v2.join("cgroup.controllers")).is_ok_and(|all| all.contains("cpu ")) {
            // Groups below the root have it already on systems that use it.
            let _ = fs::write(v2.join("cgroup.subtree_control"), "+cpu");
            let group = Group(v2.join(name));
            fs::create_dir_all(group.inner()).unwrap();
            fs::write(group.0.join("cpu.max"), format!("{quota_us} 20000")).unwrap();
            return group;
        }
        let group = Group(v2.join("cpu").join(name));
        fs::create_dir_all(group.inner()).unwrap();
        fs::write(group.0.join("cpu.cfs_period_us"), "20000").unwrap();
        fs::write(group.0.join("cpu.cfs_quota_us"), quota_us.to_string()).unwrap();
        group
    }

    fn inner(&self) -> PathBuf {
        self.0.join("inner")
    }

    /// The program, in the inner group.
    fn program(&self) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(self.inner());
        command.arg(program().get_program());
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It stays while one of its processes does.
        for _ in 0..100 {
            if fs::remove_dir(self.inner()).and_then(|()| fs::remove_dir(&self.0)).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The quota in which this test itself runs.
fn outside() -> Option<f64> {
    QuotaMeter::of_this_process().read().map(|quota| quota.cores)
}

#[test]
#[ignore = "needs a control group that it may make below /sys/fs/cgroup"]
fn a_relay_in_a_cpu_quota_of_its_own_is_named_as_what_was_throttled() {
    // Less than a relay gets on a busy machine.
    let group = Group::make("relay", 2_000);
    let relay = Relay::started_by(group.program(), &[]);
    let (setup, pid) = (setup(), pid(&relay));
    setup.run(&["--rate", "3000", "--seconds", "1", "--url", &relay.url, "--relay-pid", &pid]);
    let record = setup.record();
    assert_eq!(record.environment.cpu_quota.map(|quota| quota.cores), outside());
    let quota = record.relay.unwrap().cpu_quota.unwrap();
    assert!((quota.cores - 0.1).abs() < 1e-9, "{quota:?}");
    let reasons = record.validity.to_string();
    assert!(reasons.contains("the relay has a CPU quota of 0.10 cores"), "{reasons}");
}
