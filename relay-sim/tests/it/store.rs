//! The store on disk: equal to memory, whole after a crash, and clear about what it cannot use.

use std::{
    collections::HashSet,
    fs,
    io::BufReader,
    path::Path,
    process::{Child, ChildStdout, Command},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use codecs::{Codec, Event, Filter, Format, RelayMessage, VerifyLevel, hex};
use rand::{Rng, SeedableRng, rngs::StdRng};
use relay_sim::{
    Config, StoreConfig, StoreError,
    machine::{Connection, Opening, Relay, StartError, Time},
};
use wire::{Compression, Offer, WireLimits};

use crate::{
    common::{PATIENCE, event_json, kinds, note},
    processes::{announced, announced_by},
};

const UNIX_SECONDS: u64 = 1_700_000_000;

/// A relay and one connection to it.
struct Side {
    relay: Arc<Relay>,
    client: Connection,
    format: Format,
}

impl Side {
    fn open(store: Option<StoreConfig>, format: Format, unix_seconds: u64) -> Result<Side, StartError> {
        Side::open_within(Config::default().store_bytes, store, format, unix_seconds)
    }

    fn open_within(
        store_bytes: usize,
        store: Option<StoreConfig>,
        format: Format,
        unix_seconds: u64,
    ) -> Result<Side, StartError> {
        let mut config = Config::default();
        config.verify = VerifyLevel::None;
        (config.store, config.store_bytes) = (store, store_bytes);
        let relay = Relay::open(config, unix_seconds)?;
        Ok(Side { client: relay.connect(&Opening::new(format)), relay, format })
    }

    fn codec(&self) -> &'static dyn Codec {
        self.format.spec().library
    }

    /// The relay's messages up to the one that answers, in an order of its own: a live event may
    /// come before or after the OK of its publisher.
    fn ask(&mut self, message: &codecs::ClientMessage<'_>, unix_seconds: u64) -> Vec<Vec<u8>> {
        let time = Time { instant: Instant::now(), unix_seconds };
        let mut payload = Vec::new();
        self.codec().encode_client(message, &mut payload).unwrap();
        self.client.receive(&payload, self.format.spec().opcode, time).unwrap();
        let (mut heard, deadline) = (Vec::new(), Instant::now() + PATIENCE);
        loop {
            heard.extend(self.client.poll_transmit(time).into_iter().map(Vec::from));
            let answers = |bytes: &Vec<u8>| {
                let message = self.codec().decode_relay(bytes).unwrap();
                !matches!(message, RelayMessage::Event { .. })
            };
            if heard.iter().any(answers) {
                heard.sort();
                return heard;
            }
            assert!(Instant::now() < deadline, "no answer");
            thread::sleep(Duration::from_micros(100));
        }
    }

    fn request(&mut self, name: &str, filters: Vec<Filter>, unix_seconds: u64) -> Vec<Vec<u8>> {
        self.ask(&codecs::ClientMessage::Req { subscription: name.into(), filters }, unix_seconds)
    }

    fn publish(&mut self, event: &Event<'static>, unix_seconds: u64) -> Vec<Vec<u8>> {
        self.ask(&codecs::ClientMessage::Event(std::borrow::Cow::Borrowed(event)), unix_seconds)
    }

    /// Ends the relay in order, or as a crash does that loses what waited.
    fn end(self, in_order: bool) {
        if in_order {
            self.relay.close();
        }
        drop(self);
    }
}

fn at(directory: &Path, at_rest: Format) -> StoreConfig {
    StoreConfig { directory: directory.to_owned(), at_rest: Some(at_rest) }
}

/// Opens what another relay of this process may be about to let go.
fn reopen(store: &StoreConfig, format: Format, unix_seconds: u64) -> Side {
    reopen_within(Config::default().store_bytes, store, format, unix_seconds)
}

fn reopen_within(store_bytes: usize, store: &StoreConfig, format: Format, unix_seconds: u64) -> Side {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Side::open_within(store_bytes, Some(store.clone()), format, unix_seconds) {
            Ok(side) => return side,
            Err(StartError::Store(StoreError::InUse { .. })) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Events that get in each other's way: few authors, kinds of every class, deletions, expirations.
struct Draw {
    random: StdRng,
    made: Vec<Event<'static>>,
}

impl Draw {
    fn below(&mut self, n: u32) -> u32 {
        self.random.random_range(0..n)
    }

    fn event(&mut self, now: u64) -> Event<'static> {
        if !self.made.is_empty() && self.below(5) == 0 {
            let again = self.below(u32::try_from(self.made.len()).unwrap()) as usize;
            return self.made[again].clone();
        }
        let mut tags: Vec<Vec<std::borrow::Cow<'static, str>>> = Vec::new();
        let kind = [0, 1, 1, 5, 7, 10_002, 20_000, 30_023, 30_023][self.below(9) as usize];
        let d = ["a", "b", ""][self.below(3) as usize];
        match self.below(4) {
            0 => tags.push(vec!["d".into()]), // the first tag of a name counts, also without a value
            1 => {}
            _ => tags.push(vec!["d".into(), d.into(), "more".into()]),
        }
        tags.push(vec!["t".into(), format!("{}", self.below(3)).into()]);
        tags.push(vec!["long".into(), "value".into()]);
        if self.below(4) == 0 {
            let at = now + u64::from(self.below(20));
            tags.push(vec!["expiration".into(), at.to_string().into()]);
        }
        let pubkey = [u8::try_from(self.below(3)).unwrap(); 32];
        if kind == 5 {
            for _ in 0..self.below(4) {
                let of = self.below(u32::try_from(self.made.len().max(1)).unwrap()) as usize;
                if let Some(other) = self.made.get(of) {
                    tags.push(vec!["e".into(), hex::encode(&other.id).into()]);
                }
                tags.push(vec!["a".into(), format!("30023:{}:{d}", hex::encode(&pubkey)).into()]);
            }
        }
        let event = Event {
            id: self.random.random(),
            pubkey,
            created_at: 1_000 + i64::from(self.below(30)),
            kind,
            tags,
            content: format!("{} \"ü\"", self.made.len()).into(),
            sig: [9; 64],
        };
        self.made.push(event.clone());
        event
    }

    fn filter(&mut self) -> Filter {
        let mut filter = Filter::default();
        if self.below(2) == 0 {
            filter.kinds = Some(vec![[0, 1, 5, 30_023][self.below(4) as usize], 7]);
        }
        if self.below(3) == 0 {
            filter.authors = Some(vec![[u8::try_from(self.below(3)).unwrap(); 32]]);
        }
        if self.below(3) == 0 {
            let letter = ['t', 'd', 'e'][self.below(3) as usize];
            let value = ["0", "1", "a", "b", ""][self.below(5) as usize].to_owned();
            filter.tags = vec![codecs::TagFilter { letter, values: vec![value] }];
        }
        if self.below(3) == 0 {
            filter.since = Some(1_000 + i64::from(self.below(30)));
        }
        if self.below(3) == 0 {
            filter.limit = Some(self.below(5).into());
        }
        filter
    }
}

/// Plays the same against a relay in memory and one on disk, which starts anew now and then, and
/// demands equal bytes.
fn check_equal_to_memory(seed: u64, steps: u32, at_rest: Format, format: Format) {
    let directory = tempfile::tempdir().unwrap();
    let store = at(directory.path(), at_rest);
    let mut draw = Draw { random: StdRng::seed_from_u64(seed), made: Vec::new() };
    let mut now = UNIX_SECONDS;
    let mut memory = Side::open(None, format, now).unwrap();
    let mut disk = reopen(&store, format, now);
    for step in 0..steps {
        let what = format!("seed {seed}, step {step}, {at_rest} at rest, {format} on the wire");
        now += u64::from(draw.below(3));
        match draw.below(20) {
            0 => {
                disk.end(draw.below(2) == 0);
                disk = reopen(&store, format, now);
                memory.client = memory.relay.connect(&Opening::new(format));
                let live = draw.filter();
                assert_eq!(
                    memory.request("live", vec![live.clone()], now),
                    disk.request("live", vec![live], now),
                    "{what}"
                );
            }
            1..=7 => {
                let filters = vec![draw.filter(), draw.filter()];
                let (expected, found) =
                    (memory.request("a", filters.clone(), now), disk.request("a", filters.clone(), now));
                assert_eq!(expected, found, "{what}: {filters:?}");
                let count = codecs::ClientMessage::Count { subscription: "c".into(), filters };
                assert_eq!(memory.ask(&count, now), disk.ask(&count, now), "{what}");
                let close = codecs::ClientMessage::Close { subscription: "a".into() };
                for side in [&mut memory, &mut disk] {
                    let mut payload = Vec::new();
                    side.codec().encode_client(&close, &mut payload).unwrap();
                    let time = Time { instant: Instant::now(), unix_seconds: now };
                    side.client.receive(&payload, format.spec().opcode, time).unwrap();
                }
            }
            _ => {
                let event = draw.event(now);
                assert_eq!(memory.publish(&event, now), disk.publish(&event, now), "{what}: {event:?}");
            }
        }
    }
    assert_eq!(memory.relay.totals().events_stored, disk.relay.totals().events_stored);
    disk.end(true);
}

#[test]
fn a_store_on_disk_answers_as_memory_does() {
    let pairs = [("json", "json"), ("dannypack", "json"), ("json", "cbor-packed"), ("notepack", "notepack")];
    for (seed, (at_rest, format)) in (1..).zip(pairs) {
        check_equal_to_memory(seed, 400, at_rest.parse().unwrap(), format.parse().unwrap());
    }
}

/// `STORE_SEED=N cargo test --release -p relay-sim --test it store_campaign -- --ignored` begins
/// elsewhere.
#[test]
#[ignore = "needs minutes: every format at rest beside memory"]
fn store_campaign() {
    let first: u64 = std::env::var("STORE_SEED").map_or(1, |seed| seed.parse().unwrap());
    for seed in first..first + 5 {
        for at_rest in Format::all() {
            // Formats that refuse these events (ids and tags that are no hex) have nothing to
            // store.
            let mut out = Vec::new();
            let mut draw = Draw { random: StdRng::seed_from_u64(seed), made: Vec::new() };
            if at_rest.spec().library.encode_event(&draw.event(UNIX_SECONDS), &mut out).is_ok() {
                check_equal_to_memory(seed, 1_000, at_rest, Format::JSON);
            }
        }
    }
}

#[test]
fn a_full_store_refuses_events_and_starts_again() {
    const STORE_BYTES: usize = 64 << 10;
    let directory = tempfile::tempdir().unwrap();
    let store = at(directory.path(), Format::JSON);
    // Deletions take memory besides: for the ids that they name.
    let deletion = |n: u8| {
        let id = |m: u8| vec!["e".into(), hex::encode(&[n, m].repeat(16)).into()];
        let tags = (0..40).map(id).collect();
        Event { id: [n; 32], kind: 5, tags, content: "".into(), ..note(0, 1_000) }
    };
    let longer = |n: u8| Event { id: [n; 32], content: "x".repeat(9_000).into(), ..note(0, 1_000) };
    for make in [deletion as fn(u8) -> Event<'static>, longer] {
        let mut side = reopen_within(STORE_BYTES, &store, Format::JSON, UNIX_SECONDS);
        let mut accepted = 0;
        loop {
            let answer = String::from_utf8(side.publish(&make(accepted), UNIX_SECONDS).remove(0)).unwrap();
            if answer.contains("the store is full") {
                break;
            }
            assert!(answer.contains("true"), "{answer}");
            accepted += 1;
        }
        assert!(accepted > 3, "{accepted} events fit");
        // As a crash does, before the next commit.
        side.end(false);
        let mut side = reopen_within(STORE_BYTES, &store, Format::JSON, UNIX_SECONDS);
        assert_eq!(side.request("a", vec![Filter::default()], UNIX_SECONDS).len(), usize::from(accepted) + 1);
        side.end(true);
        fs::remove_file(directory.path().join("events.redb")).unwrap();
    }
}

#[test]
fn a_relay_that_was_closed_refuses_events() {
    let directory = tempfile::tempdir().unwrap();
    let mut side = reopen(&at(directory.path(), Format::JSON), Format::JSON, UNIX_SECONDS);
    side.relay.close();
    let answer = String::from_utf8(side.publish(&note(1, 1_000), UNIX_SECONDS).remove(0)).unwrap();
    assert!(answer.contains("false") && answer.contains("cannot be written"), "{answer}");
}

fn start_error(store: &StoreConfig) -> (StoreError, String) {
    match Side::open(Some(store.clone()), Format::JSON, UNIX_SECONDS) {
        Err(StartError::Store(error)) => {
            let text = error.to_string();
            (error, text)
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{} opens", store.directory.display()),
    }
}

#[test]
fn what_is_no_store_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let json = at(directory.path(), Format::JSON);
    fs::write(directory.path().join("letter.txt"), "hello").unwrap();
    let (error, text) = start_error(&json);
    assert!(matches!(error, StoreError::Foreign { .. }) && text.contains("letter.txt"), "{text}");
    fs::remove_file(directory.path().join("letter.txt")).unwrap();
    let file = directory.path().join("events.redb");
    for (bytes, is_torn) in [(&b""[..], true), (b"SQLite format 3", false), (b"redb but not for long", true)]
    {
        fs::write(&file, bytes).unwrap();
        let (error, text) = start_error(&json);
        assert_eq!(matches!(error, StoreError::Torn { .. }), is_torn, "{text}");
        assert!(is_torn || matches!(error, StoreError::Foreign { .. }), "{text}");
        assert!(text.contains("events.redb") && text.contains("--store"), "{text}");
    }
    for (place, why) in [("", "it is a file"), ("below", "what it stands in is no directory")] {
        let place = if place.is_empty() { file.clone() } else { file.join(place) };
        let (error, text) = start_error(&at(&place, Format::JSON));
        assert!(matches!(error, StoreError::Directory { .. }), "{text}");
        assert_eq!(text, format!("cannot use {} as --store: {why}; name another directory", place.display()));
    }
    fs::remove_file(&file).unwrap();
    // A crash before the store had its name.
    fs::write(directory.path().join("events.redb.new"), "half").unwrap();
    let side = reopen(&json, Format::JSON, UNIX_SECONDS);
    let (error, text) = start_error(&json);
    assert!(matches!(error, StoreError::InUse { .. }), "{text}");
    side.end(true);
    let (error, text) = start_error(&at(directory.path(), "capnp".parse().unwrap()));
    assert!(matches!(error, StoreError::AtRest { .. }), "{text}");
    assert!(text.contains("as json, not as capnp") && text.contains("--at-rest"), "{text}");
    let any = StoreConfig { directory: directory.path().to_owned(), at_rest: None };
    reopen(&any, Format::JSON, UNIX_SECONDS).end(true);
}

#[test]
fn a_torn_store_is_refused_by_name_wherever_it_is_torn() {
    let directory = tempfile::tempdir().unwrap();
    let store = at(directory.path(), Format::JSON);
    let mut side = reopen(&store, Format::JSON, UNIX_SECONDS);
    for n in 0..200 {
        side.publish(&note(n, 1_000), UNIX_SECONDS);
    }
    side.end(true);
    let file = directory.path().join("events.redb");
    let whole = fs::read(&file).unwrap();
    let mut random = StdRng::seed_from_u64(1);
    let mut refused = 0;
    for n in 0..60 {
        let mut torn = whole.clone();
        let place = random.random_range(0..torn.len());
        if n % 2 == 0 {
            torn.truncate(place);
        } else {
            let end = torn.len().min(place + 4_096);
            torn[place..end].fill(0xa5);
        }
        fs::write(&file, &torn).unwrap();
        match Side::open(Some(store.clone()), Format::JSON, UNIX_SECONDS) {
            // Free pages may hold anything.
            Ok(mut side) => {
                assert_eq!(side.request("a", kinds(&[1]), UNIX_SECONDS).len(), 201, "tear {n} at {place}");
                side.end(true);
            }
            Err(StartError::Store(StoreError::Torn { file, .. } | StoreError::Foreign { path: file })) => {
                assert!(file.ends_with("events.redb"));
                refused += 1;
            }
            Err(other) => panic!("tear {n} at {place}: {other}"),
        }
    }
    assert!(refused > 10, "{refused} of 60 tears were seen");
    fs::write(&file, &whole).unwrap();
    reopen(&store, Format::JSON, UNIX_SECONDS).end(true);
}

// --- the program
// -------------------------------------------------------------------------------------------------

type Program = (Child, String, BufReader<ChildStdout>);

fn start(directory: &Path, more: &[&str]) -> Program {
    let directory = directory.to_str().unwrap();
    announced(&[&["--store", directory, "--verify", "none", "--max-limit", "100000"], more].concat())
}

async fn connect(url: &str) -> wire::Connection {
    let offer = Offer { batched: false, formats: vec![Format::JSON], compression: Compression::None };
    let limits = WireLimits { max_message_bytes: 16 << 20, ..WireLimits::default() };
    wire::connect(url, &offer, &limits).await.unwrap()
}

/// Publishes events without waiting and returns the ids that were answered OK true, until the relay
/// is gone or all are answered; and the reasons of those that were refused.
async fn publish(mut conn: wire::Connection, events: &[Event<'static>]) -> (HashSet<[u8; 32]>, Vec<String>) {
    let (mut accepted, mut refused) = (HashSet::new(), Vec::new());
    for event in events {
        if conn.feed(format!(r#"["EVENT",{}]"#, event_json(event)).into()).await.is_err() {
            break;
        }
    }
    let _ = conn.flush().await; // the relay may be gone
    while accepted.len() + refused.len() < events.len() {
        let Ok(Some(Ok(message))) = tokio::time::timeout(PATIENCE, conn.next()).await else { break };
        match Format::JSON.spec().library.decode_relay(&message.payload).unwrap() {
            RelayMessage::Ok { id, accepted: true, .. } => _ = accepted.insert(id),
            RelayMessage::Ok { text, .. } => refused.push(text.into_owned()),
            other => panic!("{other:?}"),
        }
    }
    (accepted, refused)
}

/// The ids of all stored notes.
async fn stored(url: &str) -> HashSet<[u8; 32]> {
    let mut conn = connect(url).await;
    conn.feed(r#"["REQ","a",{"kinds":[1],"limit":100000}]"#.into()).await.unwrap();
    conn.flush().await.unwrap();
    let mut ids = HashSet::new();
    loop {
        let message = tokio::time::timeout(PATIENCE, conn.next()).await.unwrap().unwrap().unwrap();
        match Format::JSON.spec().library.decode_relay(&message.payload).unwrap() {
            RelayMessage::Event { event, .. } => assert!(ids.insert(event.id)),
            _ => return ids,
        }
    }
}

/// A note that no other call makes; its id is no hash.
fn unsigned(round: u32, n: u32) -> Event<'static> {
    let mut id = [7; 32];
    id[..4].copy_from_slice(&round.to_be_bytes());
    id[4..8].copy_from_slice(&n.to_be_bytes());
    Event { id, content: "x".repeat(200 + n as usize % 300).into(), ..note(0, i64::from(n)) }
}

/// Kills the relay in the midst of writes, starts it anew and looks for all that it acknowledged.
async fn kill(rounds: u32) {
    const EVENTS: u32 = 2_000;
    let directory = tempfile::tempdir().unwrap();
    let mut random = StdRng::seed_from_u64(rounds.into());
    let mut acknowledged = HashSet::new();
    let mut cut_short = 0;
    for round in 0..rounds {
        let (mut child, url, _stdout) = start(directory.path(), &["--at-rest", "dannypack"]);
        let missing = acknowledged.difference(&stored(&url).await).count();
        assert_eq!(missing, 0, "round {round}: of {} acknowledged events", acknowledged.len());
        let events: Vec<_> = (0..EVENTS).map(|n| unsigned(round, n)).collect();
        let conn = connect(&url).await;
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        let after = Duration::from_millis(random.random_range(1..150));
        let killer = thread::spawn(move || {
            thread::sleep(after);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        });
        let (accepted, refused) = publish(conn, &events).await;
        killer.join().unwrap();
        child.wait().unwrap();
        assert_eq!(refused, [""; 0]);
        cut_short += u32::from(accepted.len() < events.len());
        acknowledged.extend(accepted);
    }
    let (mut child, url, _stdout) = start(directory.path(), &[]);
    let missing = acknowledged.difference(&stored(&url).await).count();
    eprintln!(
        "{rounds} kills, {cut_short} amid writes: {} acknowledged, {missing} missing",
        acknowledged.len()
    );
    assert_eq!(missing, 0);
    assert!(cut_short > 0 && !acknowledged.is_empty(), "{cut_short} kills came amid writes");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[tokio::test]
async fn what_was_acknowledged_survives_kill_9() {
    kill(8).await;
}

#[tokio::test]
#[ignore = "needs seven minutes: 100 kills"]
async fn campaign_what_was_acknowledged_survives_100_kills() {
    kill(100).await;
}

#[tokio::test]
async fn a_full_disk_refuses_events_and_serves_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let mut command = Command::new("sh");
    // Blocks of 512 bytes. The signal's default would end the relay where a full disk does not.
    let script = "trap '' XFSZ && ulimit -f 8192 && exec \"$0\" \"$@\"";
    command.args(["-c", script, env!("CARGO_BIN_EXE_relay-sim")]);
    let args = ["--store", path, "--verify", "none", "--max-limit", "100000"];
    let (mut child, url, _stdout) = announced_by(command, &args);
    let mut acknowledged = HashSet::new();
    let mut refusals = Vec::new();
    for round in 0..20 {
        let events: Vec<_> = (0..1_000).map(|n| unsigned(round, n)).collect();
        let (accepted, refused) = publish(connect(&url).await, &events).await;
        assert_eq!(accepted.len() + refused.len(), events.len(), "every event is answered");
        acknowledged.extend(accepted);
        refusals.extend(refused);
        if round > 0 && refusals.len() > 1_500 {
            break;
        }
    }
    assert!(!acknowledged.is_empty() && !refusals.is_empty(), "{} {}", acknowledged.len(), refusals.len());
    assert!(
        refusals.iter().all(|text| text.starts_with("error: ") && text.contains("--store")),
        "{:?}",
        refusals[0]
    );
    assert_eq!(stored(&url).await, acknowledged, "the relay still serves");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success(), "and stops in order");
    let (mut child, url, _stdout) = start(directory.path(), &[]);
    assert_eq!(stored(&url).await, acknowledged, "and finds the same again");
    drop(child.stdin.take());
    child.wait().unwrap();
}
