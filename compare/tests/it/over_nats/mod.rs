//! `compare run --agents` and `compare agent` as processes, over a real NATS server.

mod account;
mod events;
mod foreign;
mod losses;
#[path = "../../../../crates/agents/tests/over_nats/nats.rs"]
mod nats;
mod relay;
mod secure;
pub(crate) mod site;
mod watching;

use std::{fs, path::Path, process::Command, time::Duration};

use self::site::{Process, but, site};
use crate::ran::Runs;

#[test]
#[ignore = "needs nats-server"]
fn an_agent_refuses_what_its_command_line_does_not_allow_over_nats() {
    let site = site();
    // A population that does not keep to --rates, beside one that does.
    let bursts = "[[publish]]\nconnections = 5\narrival = { shape = \"burst\", period_ms = 200 }\n";
    let stream = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/note-stream.toml");
    let file = site.folder.path().join("bursts.toml");
    fs::write(&file, fs::read_to_string(stream).unwrap() + bursts).unwrap();
    for (flag, most, scenario) in [
        ("--max-rate", "49", "note-stream".as_ref()),
        ("--max-rate", "50", file.as_os_str()),
        ("--max-connections", "1", "note-stream".as_ref()),
    ] {
        let mut agent = site.agent(0, 1, &[flag, most]);
        but(&site.run(1, 1), "--scenario", scenario).ran().ended(5);
        let results = fs::read_dir(site.folder.path().join("results")).unwrap();
        assert_eq!(results.count(), 0, "nothing was measured");
        assert_eq!(agent.end(Duration::from_secs(5)), Some(5));
    }
}

#[test]
#[ignore = "needs nats-server"]
fn clocks_seconds_apart_start_within_the_bound_over_nats() {
    let site = site();
    let mut agents = [("0", "4"), ("1", "-4")].map(|(index, seconds)| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--time", "--fork", &format!("--monotonic={seconds}")]);
        let agent = site.compare("agent");
        command.arg(agent.get_program()).args(agent.get_args());
        command.args(["--index", index, "--of", "2", "--allow-target", &site.relay]);
        Process(command.current_dir(site.folder.path()).spawn().unwrap())
    });
    site.run(2, 1).ran().measured();
    for (cell, record) in site.records() {
        assert_eq!((record.agents.len(), record.counts.balanced()), (2, Ok(())), "{cell:#}");
        for agent in &record.agents {
            // Without an offset it would refuse its start, or begin seconds late.
            assert!(agent.started_late_ns < 1_000_000_000, "{agent:?}");
            let clock = agent.clock.unwrap();
            assert!(clock.start_bound_ns <= 5_000_000, "{clock:?}");
            // All are one clock, which does not drift from itself.
            assert!(clock.drift_ns.unsigned_abs() <= clock.drift_bound_ns, "{clock:?}");
        }
    }
    for agent in &mut agents {
        assert_eq!(agent.end(Duration::from_secs(5)), Some(0));
    }
}
