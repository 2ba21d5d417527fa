//! Tests of runs over emulated access links, with real processes and the kernel's own TCP.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use measure::{RunRecord, Status};
use nix::sys::signal::Signal;

use crate::{
    common::program,
    ran::{Ran, Runs, send},
    setup::Setup,
};

/// Each of ten clients requests stored events at once and stays for the live ones.
const SMALL: &str = r#"
question = "Does it work?"
learn = "Whether it works."
seconds = 1.0

[[publish]]
connections = 2
arrival = { shape = "poisson", rate_per_s = 20 }
kinds = [1, 7]

[[subscribe]]
connections = 3

[[subscribe.filter]]
kinds = [1, 7]

[[request]]
connections = 10
arrival = { shape = "spread", over_ms = 200 }
connect = "per-session"

[[request.step]]
kinds = [1]
authors = 200
known = 100
limit = 100
"#;

/// States what the host carries, which is not what most tests are about: a busy host carries
/// little, and links are never faster than they should be.
const CAPACITY: &str = "--link-capacity";

fn setup(scenario: &str) -> Setup {
    Setup::new(scenario, |_| ())
}

fn flags<'a>(extra: &[&'a str]) -> Vec<&'a str> {
    let capacity = if extra.contains(&CAPACITY) { &[][..] } else { &[CAPACITY, "1000000"] };
    [&["--wide"][..], capacity, extra].concat()
}

fn run(setup: &Setup, extra: &[&str]) -> (Ran, RunRecord) {
    (setup.run(&flags(extra)).measured(), setup.record())
}

#[test]
fn links_are_listed_with_their_sources_and_what_this_host_needs() {
    let text = program().arg("links").ran().ended(0).out;
    for says in ["slow-4g", "down=1.6mbit,up=750kbit,rtt=150ms", "Lighthouse", "WebPageTest", "an assumption"]
    {
        assert!(text.contains(says), "{text}");
    }
    assert!(
        text.contains("This host can emulate links") || text.contains("cannot emulate links: "),
        "{text}"
    );
}

#[test]
fn a_link_that_does_not_exist_is_answered_with_those_that_do() {
    let setup = setup(SMALL);
    let no_relay = ["--link", "wifi", "--url", "ws://127.0.0.1:1"];
    for (extra, says) in
        [(&["--link", "5g"][..], "known: datacenter wifi"), (&no_relay, "cannot be used with")]
    {
        setup.run(&flags(extra)).ended(2).saying(&[says]);
    }
}

#[test]
#[ignore = "needs network namespaces and /dev/net/tun"]
fn a_scenario_balances_and_takes_its_time_over_a_link() {
    let setup = setup(SMALL);
    let (output, record) = run(&setup, &["--link", "down=9mbit,up=9mbit,rtt=80ms", "--congestion", "reno"]);
    record.counts.balanced().unwrap();
    assert_eq!(record.status, Status::Complete);
    assert_eq!(record.cell.link, "down=9mbit:up=9mbit:rtt=80ms");
    let link = record.link.as_ref().unwrap();
    assert_eq!((link.unbalanced.as_deref(), link.congestion.as_str()), (None, "reno"));
    assert!(link.parameters.contains("down 9mbit, 40ms one way"), "{}", link.parameters);
    let wire = (record.traffic.to_client.wire_bytes, record.traffic.to_relay.wire_bytes);
    let crossed = (link.down.forwarded_bytes, link.up.forwarded_bytes);
    assert!(crossed.0 > wire.0 && crossed.1 > wire.1, "packets have headers: {crossed:?} {wire:?}");
    assert!(wire.0 > 10_000, "{wire:?}");
    // A link is never faster than it should be: a request takes a round trip, and a session a
    // handshake of TCP and one of WebSocket before that.
    let quickest = |metric: &str| record.latency[metric].min_ns();
    assert!(quickest("eose") >= 79_000_000, "{}", quickest("eose"));
    assert!(quickest("session") >= 239_000_000, "{}", quickest("session"));
    assert!(quickest("response") >= 79_000_000, "{}", quickest("response"));
    let text = output.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("Each user has an access link") && text.contains("CPU times are left out"),
        "{text}"
    );
    assert!(record.first_delivery.is_none(), "no CPU times of a run over links");
}

#[test]
#[ignore = "needs network namespaces and /dev/net/tun"]
fn a_gateway_stands_at_the_relays_end_of_a_link() {
    let setup = setup(SMALL);
    let (_, record) = run(&setup, &["--link", "wifi", "--via", "gateway", "--compression", "zstd-dict"]);
    record.counts.balanced().unwrap();
    let link = record.link.as_ref().unwrap();
    assert_eq!((link.unbalanced.as_deref(), &*record.cell.via), (None, "gateway"));
    // What the gateway reads of the relay crosses no link.
    let traffic = record.traffic.to_client;
    let crossed = link.down.forwarded_bytes;
    assert!(traffic.wire_bytes < crossed && crossed < traffic.payload_bytes, "{crossed}: {traffic:?}");
}

/// Half of the readers on a fast link and half on a slow one; publishers have none.
fn halves() -> Setup {
    let publishers = SMALL.split("[[subscribe]]").next().unwrap();
    let reads = SMALL.split("connections = 10").nth(1).unwrap();
    let half =
        |name, link| format!("[[request]]\nname = \"{name}\"\nlink = \"{link}\"\nconnections = 4{reads}\n");
    setup(&[publishers, &half("fast", "wifi"), &half("slow", "slow-4g")].concat())
}

#[test]
#[ignore = "needs network namespaces and /dev/net/tun"]
fn each_population_has_its_own_round_trip_and_bytes_over_a_link() {
    let setup = halves();
    let (output, record) = run(&setup, &[]);
    record.counts.balanced().unwrap();
    assert_eq!((record.cell.link.as_str(), &record.status), ("none", &Status::Complete));
    let quickest = |metric: &str| record.latency[metric].min_ns();
    // Three round trips: TCP, WebSocket, the request. A link is never faster than it should be.
    assert!(quickest("session.slow") >= 449_000_000, "{}", quickest("session.slow"));
    assert!(quickest("session.fast") >= 89_000_000, "{}", quickest("session.fast"));
    let link = record.link.as_ref().unwrap();
    assert_eq!(link.unbalanced, None);
    let names: Vec<_> = link.parts.iter().map(|part| (part.link.as_str(), part.connections)).collect();
    assert_eq!(names, [("wifi", 4), ("slow-4g", 4)]);
    let of = |link: Option<&str>| {
        let mut of = record.populations.iter().filter(move |one| one.link.as_deref() == link);
        of.next().unwrap().to_client.wire_bytes
    };
    for part in &link.parts {
        assert!(part.down.forwarded_bytes > of(Some(&part.link)), "packets have headers: {part:?}");
    }
    assert!(of(Some("none")) > 0, "publishers have no link");
    let parts: u64 = link.parts.iter().map(|part| part.down.forwarded_bytes).sum();
    assert!(parts < link.down.forwarded_bytes, "what publishers get crosses no link");
    let text = output.out;
    assert!(text.lines().any(|line| line.contains(" slow ") && line.contains(" slow-4g ")), "{text}");
}

#[test]
fn links_of_populations_need_a_relay_of_our_own() {
    let setup = halves();
    setup.run(&flags(&["--url", "ws://127.0.0.1:1"])).ended(2).saying(&["leave out --url"]);
}

#[test]
#[ignore = "needs network namespaces and /dev/net/tun"]
fn more_packets_than_the_host_emulates_are_refused_before_the_run_over_a_link() {
    let setup = setup(SMALL);
    let many = ["--set", "request.connections=400", "--set", "request.step.0.limit=500"];
    let extra = [&["--link", "datacenter", CAPACITY, "3000"][..], &many[..]].concat();
    let refused = setup.run(&flags(&extra)).ended(6);
    refused.saying(&["this host emulates 3000 on time", "packets would be late"]);
    assert!(!setup.path("record.json").exists(), "nothing ran");
}

#[test]
#[ignore = "needs network namespaces and /dev/net/tun"]
fn what_is_lost_is_sent_again_over_a_link() {
    let setup = setup(SMALL);
    let (_, record) = run(&setup, &["--link", "wifi,loss=5%", "--seed", "7"]);
    record.counts.balanced().unwrap();
    let link = record.link.as_ref().unwrap();
    assert!(link.down.lost > 0 && link.down.retransmitted > Some(0), "{link:?}");
    assert_eq!(link.unbalanced, None);
}

/// The child of a process whose command line has this role.
fn child_with_role(parent: u32, role: &str) -> Option<u32> {
    let has_role = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(role.as_bytes())
    };
    measure::children(parent).into_iter().find(has_role)
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process runs: one that ended and was not waited for does not.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn start(setup: &Setup) -> (Child, [u32; 2]) {
    let mut child = setup
        .command(&flags(&["--link", "wifi", "--seconds", "60"]))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let find = |role| child_with_role(child.id(), role);
    wait_until("relay and emulator start", || find("role:relay").is_some() && find("role:link").is_some());
    let pids = ["role:relay", "role:link"].map(|role| find(role).unwrap());
    // Beyond the preparation, as far as can be told from outside.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(child.try_wait().unwrap(), None, "the run has ended too early");
    (child, pids)
}

#[test]
#[ignore = "needs network namespaces and /dev/net/tun"]
fn whichever_process_is_killed_none_is_left_over_a_link() {
    for victim in ["client", "relay", "emulator"] {
        let setup = setup(SMALL);
        let (mut child, [relay, emulator]) = start(&setup);
        let client = child.id();
        let pid = match victim {
            "client" => client,
            "relay" => relay,
            _ => emulator,
        };
        send(Signal::SIGKILL, pid);
        wait_until(victim, || child.try_wait().unwrap().is_some());
        wait_until(victim, || [client, relay, emulator].iter().all(|pid| !runs(*pid)));
        assert!(!child.wait().unwrap().success(), "{victim}");
    }
}

/// Runs a script in namespaces of its own.
fn inside(namespaces: &[&str], script: &str, setup: &Setup) -> Ran {
    let program = env!("CARGO_BIN_EXE_client-sim");
    let script = script.replace("PROGRAM", program).replace("FOLDER", &setup.path("").display().to_string());
    let mut command = Command::new("unshare");
    command.args(namespaces).args(["--mount", "sh", "-ec", &script]).stdin(Stdio::null()).ran()
}

#[test]
#[ignore = "needs user namespaces, and unshare and setpriv of util-linux"]
fn a_host_that_allows_no_namespaces_is_told_which_setting_over_a_link() {
    let setup = setup(SMALL);
    inside(
        &["--user", "--map-root-user"],
        "echo 0 > /proc/sys/user/max_user_namespaces
         exec setpriv --bounding-set=-all --inh-caps=-all PROGRAM --scenario FOLDER/plan.toml --link wifi",
        &setup,
    )
    .ended(6)
    .saying(&["sudo sysctl user.max_user_namespaces"]);
}

#[test]
#[ignore = "needs root, and unshare and setpriv of util-linux"]
fn a_user_without_privileges_plays_over_a_link() {
    let setup = setup(SMALL);
    fs::set_permissions(setup.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    // The device as udev makes it on most systems: open to everyone.
    let script = "mount -t tmpfs tmpfs /dev/net
         mknod -m 666 /dev/net/tun c 10 200
         cp PROGRAM FOLDER/program
         exec setpriv --reuid 65534 --regid 65534 --clear-groups FOLDER/program --scenario FOLDER/plan.toml \
         --link wifi --link-capacity 1000000 --record FOLDER/record.json";
    inside(&[], script, &setup).measured();
    let record = setup.record();
    record.counts.balanced().unwrap();
    assert_eq!(record.link.unwrap().unbalanced, None);
}
