//! Virtual time, the queue of events, and an unreliable network.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    num::NonZeroU16,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use codecs::{Codec, Format, Implementation, RelayMessage, VerifyLevel};
use corpus::Random;
use measure::Counts;
use relay_sim::{
    Config, Reencode,
    machine::{Connection, Opening, Relay, Time},
};

use super::{plan, truth::Truth};
use client::{Action, Client, Report, incidents::Wrong, ledger, shared::Shared};
use workload::{Due, Workload};

const MS: u64 = 1_000_000;

/// How long a run may go on after the last thing was due.
const DRAIN_NS: u64 = 2_000 * MS;

/// Wall clock at the start of a run, in seconds since 1970.
const UNIX_S: u64 = 1_800_000_000;

/// One connection: the client, and the number of the connection among those of the client.
type ConnectionId = (usize, u32);

/// An event of the simulation.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Due(usize, u32),
    Connected(ConnectionId),
    ToRelay(ConnectionId, Bytes),
    RelayEnd(ConnectionId),
    ToClient(ConnectionId, Bytes),
    /// A timer of a client may be due.
    ClientTimer(usize),
    RelayTimer(ConnectionId),
    /// The connection ends for both ends; messages on the way are lost.
    Cut(ConnectionId),
    /// The relay's process dies.
    Kill,
}

/// The faults of the network and of the relay in a run.
#[derive(Debug, Default)]
struct Weather {
    /// The longest delay of a message.
    delay_ns: u64,
    /// One in this many messages is dropped, or doubled; 0 for none, as below.
    drop_one_in: usize,
    double_one_in: usize,
    /// One in this many messages arrives after the next one.
    swap_one_in: usize,
    /// One message in so many is cut off.
    cut_one_in: usize,
    /// One message in so many is replaced by a lie.
    lie_one_in: usize,
}

/// A client with its current connection.
#[derive(Debug)]
struct Station {
    client: Client,
    connection: u32,
    connected: bool,
    /// Messages that wait until a slow reader reads.
    inbox: VecDeque<Bytes>,
    dead: bool,
}

pub(super) struct World {
    shared: Arc<Shared>,
    relay: Option<Arc<Relay>>,
    connections: BTreeMap<ConnectionId, Connection>,
    stations: Vec<Station>,
    /// When the last message of each direction arrives: a connection keeps its order.
    arrivals: BTreeMap<(ConnectionId, bool), u64>,
    /// The relay's last message on each connection.
    said: BTreeMap<ConnectionId, Bytes>,
    /// Messages that let the next one pass.
    held: BTreeMap<ConnectionId, Bytes>,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    dues: Vec<Due>,
    sequence: u64,
    now_ns: u64,
    end_ns: u64,
    steps: u64,
    epoch: Instant,
    format: Format,
    codec: &'static dyn Codec,
    batched: bool,
    weather: Weather,
    random: Random,
    truth: Truth,
    complete: bool,
    started: bool,
    /// Whether neither relay nor network has a fault in this run.
    is_honest: bool,
}

impl World {
    pub(super) fn new(workload: Workload, mut random: Random) -> World {
        let formats: Vec<Format> = Format::all().collect();
        let format = formats[random.below(formats.len())];
        let config = config(&mut random, workload.auth);
        let mut is_honest = config.faults.is_empty() && config.reconcile.max_events > 1_000;
        let relay = Arc::new(Relay::new(config).unwrap());
        // Sometimes it has some of the events that are to be published.
        let had = if random.below(4) == 0 { random.below(5) } else { 0 };
        relay.preload(&workload.events[..workload.events.len().min(workload.stored + had)]);
        let dues = plan::timeline(&workload);
        let mut shared = Shared::new(workload);
        let mut codec = format.codec(Implementation::Library).unwrap();
        // In some plans clients keep keys as bytes; the truth compares text.
        if shared.workload.events.len().is_multiple_of(3) {
            shared.keep_bytes();
            codec = format.codec(Implementation::Tuned).unwrap_or(codec);
        }
        let shared = Arc::new(shared);
        let station = |id| Station {
            client: Client::new(Arc::clone(&shared), codec, id, ("ws://127.0.0.1", UNIX_S)),
            connection: 0,
            connected: false,
            inbox: VecDeque::new(),
            dead: false,
        };
        let is_foul = random.below(3) == 0;
        is_honest &= !is_foul && had == 0;
        let mut one_in = || if is_foul && random.below(2) == 0 { 10 + random.below(60) } else { 0 };
        let weather = Weather {
            drop_one_in: one_in(),
            double_one_in: one_in(),
            swap_one_in: one_in(),
            cut_one_in: one_in(),
            lie_one_in: one_in(),
            delay_ns: [0, MS, 20 * MS][random.below(3)] + 1,
        };
        let batched = random.below(4) == 0;
        let end_ns = dues.last().map_or(0, |(at, _, _)| *at) + DRAIN_NS;
        let mut world = World {
            stations: (0..shared.workload.roles.len()).map(station).collect(),
            truth: Truth::new(Arc::clone(&shared)),
            relay: Some(relay),
            connections: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            said: BTreeMap::new(),
            held: BTreeMap::new(),
            queue: BinaryHeap::new(),
            dues: Vec::new(),
            sequence: 0,
            now_ns: 0,
            end_ns,
            steps: 0,
            epoch: Instant::now(),
            format,
            codec,
            batched,
            weather,
            random,
            complete: true,
            started: false,
            is_honest,
            shared,
        };
        world.set_up();
        for (at, client, due) in dues {
            let n = u32::try_from(world.dues.len()).unwrap();
            world.dues.push(due);
            world.schedule(at, Event::Due(client, n));
        }
        world.plan_disasters();
        world
    }

    /// Connects and subscribes all clients, before the network has faults.
    fn set_up(&mut self) {
        let weather = std::mem::replace(&mut self.weather, Weather { delay_ns: 1, ..Weather::default() });
        for id in 0..self.stations.len() {
            self.stations[id].client.open(0);
            self.perform(id);
        }
        while let Some(Reverse((at, _, event))) = self.queue.pop() {
            if self.stations.iter().all(|station| station.client.is_ready()) {
                break;
            }
            self.now_ns = at;
            self.happen(event);
        }
        assert!(
            self.stations.iter().all(|station| station.client.is_ready()),
            "an honest relay opens every one"
        );
        self.queue.clear();
        self.arrivals.clear();
        self.now_ns = 0;
        self.weather = weather;
        self.started = true;
        self.truth.start();
        self.stations.iter_mut().for_each(|station| station.client.start(UNIX_S));
        (0..self.stations.len()).for_each(|id| self.perform(id));
    }

    fn plan_disasters(&mut self) {
        if self.random.below(8) == 0 {
            self.is_honest = false;
            let (at, id) = (self.instant(), self.random.below(self.stations.len()));
            let number = self.stations[id].connection;
            self.schedule(at, Event::Cut((id, number)));
        }
        if self.random.below(20) == 0 {
            self.is_honest = false;
            let at = self.instant();
            self.schedule(at, Event::Kill);
        }
    }

    fn instant(&mut self) -> u64 {
        self.random.below(150) as u64 * MS
    }

    pub(super) fn run(&mut self) {
        while let Some(Reverse((at, _, event))) = self.queue.pop() {
            if at > self.end_ns || self.shared.is_done() {
                break;
            }
            self.now_ns = at;
            self.steps += 1;
            self.happen(event);
        }
    }

    /// Whether every delivery must arrive, because nothing in this run has a fault.
    pub(super) fn is_honest(&self) -> bool {
        self.is_honest
    }

    /// The ledger of the clients, the ledger of the truth, and the steps.
    pub(super) fn close(self) -> (Counts, Counts, u64) {
        let reports: Vec<Report> = self.stations.into_iter().map(|station| station.client.finish()).collect();
        let all: Vec<&Report> = reports.iter().collect();
        let ledger = ledger::close(&self.shared, &all, self.complete);
        let mut random = self.random;
        let of = NonZeroU16::MIN.saturating_add(u16::try_from(random.below(70)).unwrap());
        let agents = self.shared.workload.agents(of);
        let share = |agent| {
            ledger::close_of(&self.shared, &all, self.complete, |connection| agents[connection] == agent)
        };
        let shares: Counts = (0..usize::from(of.get())).map(share).sum();
        assert_eq!(shares, ledger, "the ledgers of {of} agents add up to that of one");
        let cut_off: Vec<bool> = reports.iter().map(|report| report.cut_off.is_some()).collect();
        let named = Wrong::ALL.map(|wrong| self.shared.incidents.count(wrong));
        let counted = [
            ledger.deliveries_lost,
            ledger.deliveries_duplicated,
            ledger.deliveries_altered,
            ledger.deliveries_misrouted,
            ledger.deliveries_invented,
            ledger.deliveries_unexpected,
        ];
        assert_eq!(named, counted, "each wrong delivery is named");
        (ledger, self.truth.ledger(self.complete, &cut_off), self.steps)
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse((at, self.sequence, event)));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Due(id, n) => {
                self.with_client(id, |client, now_ns, dues| client.on_due(dues[n as usize], now_ns));
            }
            Event::ClientTimer(id) => {
                let Station { client, dead, .. } = &self.stations[id];
                if !dead && client.next_wake_ns().is_some_and(|at| at <= self.now_ns) {
                    self.truth.timer(id, self.now_ns);
                    self.with_client(id, |client, now_ns, _| client.on_timer(now_ns));
                }
            }
            Event::Connected(connection_id) => self.connected(connection_id),
            Event::ToRelay(connection_id, payload) => {
                let (time, opcode) = (self.time(), self.format.spec().opcode);
                if let Some(connection) = self.connections.get_mut(&connection_id)
                    && connection.receive(&payload, opcode, time).is_err()
                {
                    panic!("the client sent what the relay does not read");
                }
                self.relay_speaks();
            }
            Event::RelayEnd(connection_id) => {
                self.connections.remove(&connection_id);
            }
            Event::ToClient(connection_id, payload) => self.arrive(connection_id, payload),
            Event::RelayTimer(connection_id) => {
                let now = self.time().instant;
                if let Some(connection) = self.connections.get_mut(&connection_id) {
                    connection.on_timer(now);
                }
                self.relay_speaks();
            }
            Event::Cut(connection_id) => self.cut(connection_id, "the network cut the connection"),
            Event::Kill => {
                self.relay = None;
                let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
                ids.into_iter().for_each(|connection_id| self.cut(connection_id, "the relay died"));
            }
        }
    }

    fn with_client(&mut self, id: usize, act: impl FnOnce(&mut Client, u64, &[Due])) {
        let station = &mut self.stations[id];
        if station.dead {
            return;
        }
        act(&mut station.client, self.now_ns, &self.dues);
        self.perform(id);
        self.read(id);
    }

    /// Carries out the actions of a client.
    fn perform(&mut self, id: usize) {
        loop {
            while let Some(action) = self.stations[id].client.next_action() {
                let connection_id = (id, self.stations[id].connection);
                match action {
                    Action::Record(_) | Action::Count { .. } => {}
                    Action::Send(payload) => {
                        assert!(self.stations[id].connected, "a client connects before it sends");
                        self.truth.sent(id, self.codec, &payload);
                        let at = self.arrival(connection_id, true);
                        self.schedule(at, Event::ToRelay(connection_id, payload));
                    }
                    Action::Connect => {
                        self.stations[id].connection += 1;
                        let at = self.now_ns + self.delay();
                        let connection_id = (id, self.stations[id].connection);
                        self.schedule(at, Event::Connected(connection_id));
                    }
                    Action::Close | Action::Abort => {
                        self.stations[id].connected = false;
                        self.stations[id].inbox.clear();
                        let at = self.arrival(connection_id, true);
                        self.schedule(at, Event::RelayEnd(connection_id));
                    }
                    Action::Fail(_) => self.fail(id),
                }
            }
            if self.stations[id].dead || !self.stations[id].client.has_backlog() {
                break;
            }
            self.stations[id].client.on_room(self.now_ns);
        }
        if let Some(at) = self.stations[id].client.next_wake_ns() {
            self.schedule(at.max(self.now_ns), Event::ClientTimer(id));
        }
    }

    /// Lets the run go on for a while, so that clients count what is on the way.
    fn fail(&mut self, id: usize) {
        self.stations[id].dead = true;
        self.complete = false;
        self.end_ns = self.end_ns.min(self.now_ns + 300 * MS);
    }

    fn connected(&mut self, connection_id: ConnectionId) {
        let (id, number) = connection_id;
        if self.stations[id].connection != number {
            return;
        }
        let Some(relay) = &self.relay else {
            return self.disconnect(id, "connection refused");
        };
        let challenge = *self.random.bytes32().first_chunk().unwrap();
        let opening = Opening { batched: self.batched, challenge, ..Opening::new(self.format) };
        self.connections.insert(connection_id, relay.connect(&opening));
        self.truth.connected(id);
        self.stations[id].connected = true;
        self.stations[id].client.on_connected(self.now_ns);
        self.perform(id);
        // With AUTH the relay speaks first.
        self.relay_speaks();
    }

    /// Sends every message that the relay has to send.
    fn relay_speaks(&mut self) {
        let time = self.time();
        let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for connection_id in ids {
            while let Some(connection) = self.connections.get_mut(&connection_id) {
                let messages = connection.poll_transmit(time);
                if messages.is_empty() {
                    break;
                }
                messages.into_iter().for_each(|message| self.send_to_client(connection_id, &message));
            }
            let timer = self.connections.get(&connection_id).and_then(Connection::next_timer);
            if let Some(at) = timer {
                let at = at.saturating_duration_since(self.epoch).as_nanos();
                self.schedule(u64::try_from(at).unwrap().max(self.now_ns), Event::RelayTimer(connection_id));
            }
        }
    }

    fn send_to_client(&mut self, connection_id: ConnectionId, message: &Bytes) {
        let lie_one_in = self.weather.lie_one_in;
        if lie_one_in > 0 && self.random.below(lie_one_in) == 0 {
            let before = self.said.insert(connection_id, message.clone());
            self.lie(message, before).iter().for_each(|lie| self.carry(connection_id, lie));
        } else {
            self.said.insert(connection_id, message.clone());
            self.carry(connection_id, message);
        }
    }

    /// Messages of a relay that lies, beside altered events. `before` is its message before that.
    fn lie(&mut self, message: &Bytes, before: Option<Bytes>) -> Vec<Bytes> {
        let (codec, format) = (self.codec, self.format);
        let lie = self.random.below(4);
        let other = |subscription: &str| format!("{}{}", &subscription[..1], subscription.len()).into();
        let said = match codec.decode_relay(message).unwrap() {
            RelayMessage::Eose { subscription, hints } => {
                let text = "error: a lie".into();
                let closed = RelayMessage::Closed { subscription: subscription.clone(), text };
                match lie {
                    // The last stored event comes again as a live one.
                    3 => return std::iter::once(message.clone()).chain(before).collect(),
                    0 => vec![closed],
                    1 => vec![RelayMessage::Eose { subscription, hints }, closed],
                    _ => vec![RelayMessage::Eose { subscription: other(&subscription), hints }],
                }
            }
            RelayMessage::Event { subscription, event } => {
                let closed = RelayMessage::Closed { subscription: subscription.clone(), text: "".into() };
                vec![RelayMessage::Event { subscription, event }, closed]
            }
            RelayMessage::Ok { mut id, accepted, text } => {
                id[0] ^= u8::from(lie == 0);
                vec![RelayMessage::Ok { id, accepted: accepted ^ (lie > 0), text }]
            }
            RelayMessage::NegMsg { subscription, message } => {
                let text = "blocked: a lie".into();
                let half = message[..message.len() / 2].to_vec().into();
                match lie {
                    0 => vec![RelayMessage::NegErr { subscription, text }],
                    1 => vec![RelayMessage::NegMsg { subscription: other(&subscription), message }],
                    _ => vec![RelayMessage::NegMsg { subscription, message: half }],
                }
            }
            RelayMessage::Auth { challenge } => {
                let challenge = challenge.chars().rev().collect::<String>().into();
                vec![RelayMessage::Auth { challenge }]
            }
            _ => return vec![message.clone()],
        };
        let encode = |message: &RelayMessage<'_>| {
            let mut bytes = Vec::new();
            let said = codec.encode_relay(message, &mut bytes);
            said.unwrap_or_else(|error| panic!("{format} cannot say {message:?}: {error}"));
            bytes.into()
        };
        said.iter().map(encode).collect()
    }

    fn carry(&mut self, connection_id: ConnectionId, message: &Bytes) {
        let Weather { drop_one_in, double_one_in, swap_one_in, cut_one_in, .. } = self.weather;
        let mut hits = |one_in: usize| one_in > 0 && self.random.below(one_in) == 0;
        let copies = match (hits(drop_one_in), hits(double_one_in)) {
            (true, _) => 0,
            (_, true) => 2,
            _ => 1,
        };
        if hits(swap_one_in) && !self.held.contains_key(&connection_id) {
            self.held.insert(connection_id, message.clone());
            return;
        }
        let held = self.held.remove(&connection_id);
        let message = if hits(cut_one_in) { &message.slice(..message.len() / 2) } else { message };
        for message in std::iter::repeat_n(message.clone(), copies).chain(held) {
            let at = self.arrival(connection_id, false);
            self.schedule(at, Event::ToClient(connection_id, message));
        }
    }

    fn arrive(&mut self, connection_id: ConnectionId, payload: Bytes) {
        let station = &mut self.stations[connection_id.0];
        if station.connection == connection_id.1 && station.connected && !station.dead {
            station.inbox.push_back(payload);
            self.read(connection_id.0);
        }
    }

    /// Lets a client read the messages that have arrived, while it may read.
    fn read(&mut self, id: usize) {
        loop {
            let station = &mut self.stations[id];
            if station.dead || !station.client.may_read() {
                return;
            }
            let Some(payload) = station.inbox.pop_front() else { return };
            if self.started {
                self.truth.received(id, self.codec, &payload, self.now_ns);
            }
            self.stations[id].client.on_message(&payload, self.now_ns);
            self.perform(id);
        }
    }

    fn cut(&mut self, connection_id: ConnectionId, why: &str) {
        self.connections.remove(&connection_id);
        let station = &mut self.stations[connection_id.0];
        if station.connection == connection_id.1 && station.connected && !station.dead {
            self.disconnect(connection_id.0, why);
        }
    }

    fn disconnect(&mut self, id: usize, why: &str) {
        let station = &mut self.stations[id];
        station.connected = false;
        station.inbox.clear();
        station.client.on_disconnected(why);
        self.perform(id);
    }

    /// When a message that is sent now arrives: after those before it, and sometimes after a stall.
    fn arrival(&mut self, connection_id: ConnectionId, to_relay: bool) -> u64 {
        let stall = if self.started && self.random.below(500) == 0 { 200 * MS } else { 0 };
        let at = self.now_ns + self.delay() + stall;
        let last = self.arrivals.entry((connection_id, to_relay)).or_default();
        *last = at.max(*last + 1);
        *last
    }

    fn delay(&mut self) -> u64 {
        1 + self.random.below(usize::try_from(self.weather.delay_ns).unwrap()) as u64
    }

    fn time(&self) -> Time {
        Time {
            instant: self.epoch + Duration::from_nanos(self.now_ns),
            unix_seconds: UNIX_S + self.now_ns / 1_000_000_000,
        }
    }
}

/// Draws the faults of the relay: none in two runs of three, otherwise a random set.
fn config(random: &mut Random, auth: bool) -> Config {
    let mut config = Config::default();
    config.verify = VerifyLevel::None;
    config.auth = auth;
    if random.below(8) == 0 {
        // Answers NEG-ERR to larger reconciliations.
        config.reconcile.max_events = random.below(20);
    }
    if random.below(2) == 0 {
        config.reencode = Reencode::NeverIfCanonical;
    }
    if random.below(3) == 0 {
        for kind in ["lose", "double", "alter", "invent", "misroute"] {
            if random.below(2) == 0 {
                let fault = format!("{kind}={}%:seed={}", 1 + random.below(8), random.below(1_000));
                config.faults.push(fault.parse().unwrap());
            }
        }
    }
    config
}
