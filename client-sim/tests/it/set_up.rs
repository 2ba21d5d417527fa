//! Set-up before the clock starts: client-sim asks the relay, has it store events, and connects.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use measure::{RunRecord, Status};
use nix::sys::signal::Signal;
use tokio::time;
use wire::{CloseCode, Connection};

use crate::{
    between::Between,
    common::{Relay, program},
    events::write_few,
    ran::{Ran, Runs, send},
    setup::Setup,
};

/// How a relay takes connections.
#[derive(Debug, Clone, Copy)]
struct Manners {
    /// How long a handshake takes, one after the other.
    handshake: Duration,
    /// How often it pings, and how long it waits for the answer before it closes.
    ping: Duration,
    /// How long it takes for a message of a client.
    message: Duration,
}

const MANNERS: Manners =
    Manners { handshake: Duration::ZERO, ping: Duration::from_secs(60), message: Duration::ZERO };

/// Stands before a relay, passes on what either end says, and has manners of its own.
struct Door {
    between: Between,
    opened: Arc<AtomicUsize>,
    /// Messages of clients that were passed on.
    heard: Arc<AtomicUsize>,
}

impl Door {
    fn with(manners: Manners) -> Door {
        let counts: [Arc<AtomicUsize>; 2] = Default::default();
        let [opened, heard] = counts.clone();
        let relay = Relay::start(&["--keep-expired"]);
        let between = Between::before(relay, manners.handshake, move |client, behind, _| {
            let [opened, heard] = counts.clone();
            opened.fetch_add(1, Ordering::Relaxed);
            async move { pass(client, behind, manners, &heard).await }
        });
        Door { between, opened, heard }
    }
}

/// Passes on one connection until an end closes it, or does not answer a ping.
async fn pass(mut client: Connection, mut behind: Connection, manners: Manners, heard: &AtomicUsize) {
    let mut pings = time::interval(manners.ping);
    let mut pinged = None;
    loop {
        tokio::select! {
            message = client.next() => {
                time::sleep(manners.message).await;
                if !hand_over(message, &mut behind).await {
                    break;
                }
                heard.fetch_add(1, Ordering::Relaxed);
            }
            message = behind.next() => if !hand_over(message, &mut client).await { break },
            _ = pings.tick() => {
                if pinged.is_some_and(|pinged| client.last_heard() < pinged) {
                    client.close(CloseCode::Policy, "no pong").await;
                    break;
                }
                pinged = Some(Instant::now());
                if client.ping().await.is_err() {
                    break;
                }
            }
        }
    }
}

/// Passes on a message; false at the end of a connection.
async fn hand_over(message: Option<Result<wire::Message, wire::WireError>>, to: &mut Connection) -> bool {
    let Some(Ok(message)) = message else { return false };
    to.feed_message(message).await.is_ok() && to.flush().await.is_ok()
}

/// Fifty readers of what one client publishes.
const READERS: &str = r#"
question = "Who is there when it starts?"
learn = "Whether all are."
seconds = 0.3

[[publish]]
connections = 1
arrival = { shape = "poisson", rate_per_s = 50 }
kinds = [1]

[[subscribe]]
connections = 50

[[subscribe.filter]]
kinds = [1]
"#;

/// A run of this scenario against a relay, and the folder of its record.
fn readers(url: &str) -> (Command, Setup) {
    let setup = Setup::new(READERS, write_few);
    let mut command = setup.command(&["--quiet", "--url", url]);
    command.stdout(Stdio::null());
    (command, setup)
}

#[test]
fn pings_are_answered_while_other_connections_are_made() {
    let (handshake, ping) = (Duration::from_millis(40), Duration::from_millis(400));
    let door = Door::with(Manners { handshake, ping, ..MANNERS });
    let (mut command, setup) = readers(&door.between.url);
    command.ran().measured();
    let record = setup.record();
    assert_eq!((record.counts.balanced(), record.status), (Ok(()), Status::Complete));
    assert_eq!(record.connections, 51);
    assert_eq!(record.counts.deliveries, record.counts.acked * 50, "to all");
}

#[test]
fn a_relay_that_leaves_while_connections_are_made_ends_the_run_at_once() {
    let door = Door::with(Manners { handshake: Duration::from_millis(100), ..MANNERS });
    let (mut command, setup) = readers(&door.between.url);
    command.arg("--doctor").arg(setup.path("unasked.json"));
    let child = command.args(["--workers", "2"]).spawn().unwrap();
    wait_until("connections are made", || door.opened.load(Ordering::Relaxed) >= 25);
    drop(door.between.relay);
    child.ran().ended(1).saying(&["client-sim: connection "]);
    assert!(!setup.path("record.json").exists());
    assert!(door.opened.load(Ordering::Relaxed) < 50, "it does not wait for the others");
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Ends a run, which heeds that long before its set-up would be over.
fn ended_by(signal: Signal, mut child: Child) -> Ran {
    send(signal, child.id());
    let deadline = Instant::now() + Duration::from_secs(10);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.ran()
}

/// A signal during set-up leaves a sentence, and no record.
fn measured_nothing(run: Ran, setup: &Setup) {
    let Ran { out, said, .. } = run.ended(130);
    assert_eq!(said.lines().last(), Some("client-sim: interrupted: nothing was measured"), "{said}");
    assert!(out.is_empty() && !setup.path("record.json").exists(), "{out}");
}

/// The sessions of these ask for events that the relay must hold.
const STORED: &str = r#"
question = "What is there?"
learn = "Whether all of it is."
seconds = 0.3

[[request]]
connections = 2
arrival = { shape = "poisson", rate_per_s = 50 }

[[request.step]]
kinds = [3]
authors = 1
"#;

#[test]
fn a_signal_while_connections_are_made_or_events_are_stored_ends_the_run() {
    // Half a minute for all connections, minutes for all events.
    let of_handshakes = Manners { handshake: Duration::from_millis(500), ..MANNERS };
    let of_messages = Manners { message: Duration::from_secs(1), ..MANNERS };
    for (plan, manners, signal, most_opened) in
        [(READERS, of_handshakes, Signal::SIGHUP, 40), (STORED, of_messages, Signal::SIGINT, 1)]
    {
        let door = Door::with(manners);
        let (mut command, setup) = readers(&door.between.url);
        setup.write("plan.toml", plan);
        command.arg("--doctor").arg(setup.path("unasked.json"));
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        let done = if most_opened > 1 { &door.opened } else { &door.heard };
        wait_until("it is under way", || done.load(Ordering::Relaxed) >= 3);
        measured_nothing(ended_by(signal, child), &setup);
        assert!(door.opened.load(Ordering::Relaxed) <= most_opened);
    }
}

#[test]
fn a_signal_while_a_mute_relay_is_asked_ends_the_run_and_the_doctor() {
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}", mute.local_addr().unwrap());
    let (mut run, setup) = readers(&url);
    let mut doctor = program();
    doctor.args(["doctor", "--scenario", "note-stream", "--url", &url, "--corpus"]);
    doctor.arg(setup.path("events.jsonl"));
    for command in [&mut run, &mut doctor] {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let _asked = mute.accept().unwrap();
        measured_nothing(ended_by(Signal::SIGTERM, child), &setup);
    }
}

#[test]
fn a_signal_while_a_rehearsal_works_and_says_so_ends_the_run_and_the_doctor() {
    let relay = Relay::start(&[]);
    for words in [&["mixed-day"][..], &["doctor", "--scenario", "mixed-day"]] {
        let mut command = program();
        command.args(words).args(["--pow", "20", "--url", &relay.url]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let tells = |line: String| line.contains("proof of work of 20 bits: ") && line.contains("rehearsal");
        assert!(said.any(tells), "{words:?}");
        ended_by(Signal::SIGTERM, child).ended(130);
    }
}

#[test]
fn a_signal_while_a_long_plan_is_made_ends_the_run() {
    let relay = Relay::start(&[]);
    let mut command = program();
    command.args(["note-stream", "--saturate", "--seconds", "20", "--url", &relay.url]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let caught = |status: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    let is_sigterm = |mask: u64| mask >> (Signal::SIGTERM as u32 - 1) & 1 == 1;
    wait_until("it takes signals over", || {
        std::fs::read_to_string(&status).is_ok_and(|status| caught(&status).is_some_and(is_sigterm))
    });
    // It meets the relay, and plans.
    thread::sleep(Duration::from_secs(3));
    let said = ended_by(Signal::SIGTERM, child).ended(130).said;
    assert!(said.ends_with("client-sim: interrupted: nothing was measured\n"), "{said}");
}

/// The program in a network namespace of its own, with these local ports for its connections. None
/// is left once the file `none` is in the folder.
fn with_ports(range: &str, setup: &Setup) -> Command {
    const SCRIPT: &str = r#"
        cd /proc/sys/net/ipv4 && ip link set lo up && echo "$1" > ip_local_port_range || exit 77
        (while [ -d "$2" ] && ! [ -e "$2/none" ]; do sleep 0.02; done; echo 1-65535 > ip_local_reserved_ports) \
            > /dev/null 2>&1 & watch=$!
        shift 2
        "$0" role:relay --listen 127.0.0.1:7777 --verify none --keep-expired > /dev/null 2>&1 & relay=$!
        "$0" "$@"; code=$?
        kill $relay $watch
        exit $code
    "#;
    let mut command = Command::new("unshare");
    command.args(["-rn", "sh", "-c", SCRIPT, env!("CARGO_BIN_EXE_client-sim"), range]).arg(setup.path(""));
    command
}

/// Readers that connect for each session, beside one that stays.
const SESSIONS: &str = r#"
question = "Who gets in?"
learn = "Whether the relay is blamed."
seconds = 3

[[publish]]
connections = 1
arrival = { shape = "poisson", rate_per_s = 50 }
kinds = [1]

[[subscribe]]
connections = 3

[[subscribe.filter]]
kinds = [1]

[[request]]
connections = 10
connect = "per-session"
arrival = { shape = "poisson", rate_per_s = 30 }

[[request.step]]
kinds = [3]
authors = 1
"#;

#[test]
#[ignore = "needs network namespaces, unshare of util-linux and ip of iproute2"]
fn local_ports_that_run_out_amid_the_run_are_not_the_relays_loss() {
    let (_, setup) = readers("");
    let file = |name: &str| setup.path(name);
    fs::write(file("sessions.toml"), SESSIONS).unwrap();
    let mut command = with_ports("40000 41000", &setup);
    command
        .args(["--progress-json", "--url", "ws://localhost:7777", "--scenario"])
        .arg(file("sessions.toml"));
    command.arg("--corpus").arg(file("events.jsonl")).arg("--record").arg(file("record.json"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut seconds = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(seconds.next().unwrap().unwrap().contains("\"samples\""), "the load has begun");
    fs::write(file("none"), "").unwrap();
    let rest = thread::spawn(move || seconds.count());
    let output = child.ran();
    rest.join().unwrap();
    let said = output.ended(3).said;
    let record = RunRecord::read(&file("record.json")).unwrap();
    let counts = record.counts;
    assert_eq!((record.status, counts.balanced(), counts.deliveries_lost), (Status::Complete, Ok(()), 0));
    assert!(counts.sessions_dropped_by_generator > 10 && counts.requests > 10, "{counts:?}");
    assert_eq!(counts.acked, counts.planned, "other connections go on");
    assert!(said.contains("no room for a connection: Cannot assign requested address"), "{said}");
}

#[test]
fn a_fault_that_there_is_not_is_named_with_its_neighbour_before_anything_is_done() {
    let output = program().args(["note-stream", "--relay-fault", "losse"]).ran();
    let said = &output.ended(2).said;
    assert!(said.contains("unknown fault \"losse\" (did you mean lose=1%?)"), "{said}");
}

#[test]
fn a_relay_of_our_own_that_does_not_start_says_why() {
    let (_, setup) = readers("");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = setup.run(&["--seed", "1", "--serve", &address]).ended(1).said;
    let last = said.lines().last().unwrap_or_default();
    assert!(last.contains("the relay of our own did not start") && last.contains("listens on"), "{said}");
}
