//! A relay, its clients and their connections in one thread and in virtual time, in which every
//! message arrives at once.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail};
use cell::Cell;
use codecs::{ClientMessage, Codec, Filter, RelayMessage};
use relay_sim::{
    Config,
    machine::{self, Opening, Relay, Time},
};
use wire::Connection;

use super::{
    probe,
    wires::{feed, flush, next, pair, serve},
};
use client::{Action, Client, Report, ledger, recorder::Recorder, shared::Shared};
use workload::{Due, Speaks, Workload, schedule::nanos};

/// The relay's URL in AUTH events (NIP-42).
const URL: &str = "ws://127.0.0.1";

/// Wall clock at the start, in seconds since 1970.
const UNIX_S: u64 = 1_800_000_000;

/// Ids in one request for stored events.
const IDS: usize = 100;

/// Plays a plan. Its sections are:
///
/// - `ID first_delivery`, `ID later_delivery`: the relay sends every stored event of the plan once,
///   and again, to a client whose work is not counted; the first time it encodes;
/// - `ID young`: the first half of the plan;
/// - `ID steady`: the second half, over connections and encodings that are no longer new. Of a plan
///   that is due at one instant it is the whole.
///
/// # Errors
/// When a client or the wire fails, or the ledger does not balance.
pub(super) fn play(workload: Workload, cell: &Cell, id: &str) -> anyhow::Result<()> {
    let mut world = World::new(workload, cell)?;
    world.open()?;
    probe::end_preparation()?;
    for section in ["first_delivery", "later_delivery"] {
        if let Some(events) = world.send_stored(cell)? {
            probe::end_section(&format!("{id} {section}"), events)?;
        }
    }
    world.start();
    let young = world.run(Some(world.half()))?;
    if young > 0 {
        probe::end_section(&format!("{id} young"), young)?;
    }
    let all = world.run(None)?;
    anyhow::ensure!(all > young, "the plan has nothing in its second half: take more seconds");
    probe::end_section(&format!("{id} steady"), all - young)?;
    world.close().with_context(|| id.to_owned())
}

/// A client, and both ends of its connection.
#[derive(Debug)]
struct Station {
    client: Client,
    ends: Option<BothEnds>,
}

#[derive(Debug)]
struct BothEnds {
    client: Connection,
    relay: Connection,
    machine: machine::Connection,
    /// Whether the client sent what the relay has not read, and the other way round.
    to_relay: bool,
    to_client: bool,
}

/// Input of a client.
#[derive(Debug, Clone, Copy)]
enum Input {
    Open,
    Due(Due),
    Timer,
    Connected,
    Messages,
}

/// Whose timer it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Client(usize),
    Relay(usize),
}

struct World {
    shared: Arc<Shared>,
    cell: Cell,
    codec: &'static dyn Codec,
    relay: Arc<Relay>,
    stations: Vec<Station>,
    recorder: Recorder,
    /// Work due by plan, the next one last.
    dues: Vec<(u64, usize, Due)>,
    timers: BinaryHeap<Reverse<(u64, Timer)>>,
    epoch: Instant,
    now_ns: u64,
}

impl World {
    fn new(workload: Workload, cell: &Cell) -> anyhow::Result<World> {
        let codec = cell.format.codec(cell.implementation)?;
        let relay = Arc::new(Relay::new(config(&workload, cell))?);
        relay.preload(&workload.events[..workload.stored]);
        let timeline = workload.timeline(|_| true);
        let mut dues: Vec<_> = timeline.into_iter().map(|(at, id, due)| (nanos(at), id, due)).collect();
        dues.reverse();
        let mut shared = Shared::new(workload);
        shared.verify = cell.client_verify;
        if cell.client_keeps_bytes {
            shared.keep_bytes();
        }
        let shared = Arc::new(shared);
        let station = |id: usize| -> anyhow::Result<Station> {
            let cell = spoken(cell, shared.workload.roles[id].speaks);
            let codec = cell.format.codec(cell.implementation)?;
            let client = Client::new(Arc::clone(&shared), codec, id, (URL, UNIX_S));
            Ok(Station { client, ends: None })
        };
        let stations = (0..shared.workload.roles.len()).map(station).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(World {
            stations,
            shared,
            cell: cell.clone(),
            codec,
            relay,
            recorder: Recorder::default(),
            dues,
            timers: BinaryHeap::new(),
            epoch: Instant::now(),
            now_ns: 0,
        })
    }

    /// Connects and subscribes those who do so before the start.
    fn open(&mut self) -> anyhow::Result<()> {
        for id in 0..self.stations.len() {
            self.tell(id, &Input::Open)?;
        }
        self.settle()?;
        anyhow::ensure!(
            self.stations.iter().all(|station| station.client.is_ready()),
            "a client did not get ready, though nothing is on its way"
        );
        Ok(())
    }

    fn start(&mut self) {
        self.timers.clear();
        self.now_ns = 0;
        for (id, Station { client, .. }) in self.stations.iter_mut().enumerate() {
            client.start(UNIX_S);
            self.timers.extend(client.next_wake_ns().map(|at| Reverse((at, Timer::Client(id)))));
        }
    }

    /// Sends every stored event of the plan to one more client. Returns how many there are, if any.
    fn send_stored(&mut self, cell: &Cell) -> anyhow::Result<Option<u64>> {
        let workload = &self.shared.workload;
        let ids: Vec<[u8; 32]> =
            workload.asked().iter().map(|event| workload.events[*event as usize].id).collect();
        let time = self.time();
        let mut ends = self.connect(cell)?;
        let mut sent = 0;
        for ids in ids.chunks(IDS) {
            let filter =
                Filter { ids: Some(ids.to_vec()), limit: Some(ids.len() as u64), ..Filter::default() };
            let request = ClientMessage::Req { subscription: "stored".into(), filters: vec![filter] };
            let mut payload = Vec::new();
            self.codec.encode_client(&request, &mut payload)?;
            feed(&mut ends.client, payload.into())?;
            flush(&mut ends.client)?;
            ends.relay_works(time)?;
            while let Some(message) = next(&mut ends.client, &ends.relay)? {
                sent += match self.codec.decode_relay(&message.payload)? {
                    RelayMessage::Event { .. } => 1,
                    RelayMessage::Events { events, .. } => events.len(),
                    _ => 0,
                };
            }
        }
        anyhow::ensure!(sent == ids.len(), "the relay sent {sent} of {} stored events", ids.len());
        Ok((sent > 0).then_some(sent as u64))
    }

    /// The middle of the plan.
    fn half(&self) -> u64 {
        let workload = &self.shared.workload;
        nanos((workload.first_due() + workload.last_due()) / 2) + 1
    }

    /// Plays until `end_ns`, or until nothing is left. Returns the envelopes so far.
    fn run(&mut self, end_ns: Option<u64>) -> anyhow::Result<u64> {
        while !self.shared.is_done() {
            let due = self.dues.last().map(|(at, _, _)| *at);
            let timer = self.timers.peek().map(|Reverse((at, _))| *at);
            match due.into_iter().chain(timer).min() {
                Some(at) if end_ns.is_some_and(|end| at >= end) => break,
                Some(at) => self.advance(at.max(self.now_ns))?,
                None => bail!("nothing is due, and {} pieces of work are left", self.shared.outstanding()),
            }
            self.settle()?;
        }
        Ok(self.envelopes())
    }

    /// Deliveries so far, or acknowledged publications where nothing is delivered.
    fn envelopes(&self) -> u64 {
        match self.shared.deliveries() {
            0 => self.shared.accepted().count_ones(..) as u64,
            deliveries => deliveries,
        }
    }

    fn advance(&mut self, now_ns: u64) -> anyhow::Result<()> {
        self.now_ns = now_ns;
        if let Some((_, id, due)) = self.dues.pop_if(|(at, _, _)| *at <= now_ns) {
            return self.tell(id, &Input::Due(due));
        }
        let Some(Reverse((_, timer))) = self.timers.pop() else { return Ok(()) };
        match timer {
            Timer::Client(id) => {
                let due = self.stations[id].client.next_wake_ns().is_some_and(|at| at <= now_ns);
                if due { self.tell(id, &Input::Timer) } else { Ok(()) }
            }
            Timer::Relay(id) => {
                let time = self.time();
                if let Some(ends) = &mut self.stations[id].ends {
                    probe::relay_side(&mut || ends.machine.on_timer(time.instant));
                }
                Ok(())
            }
        }
    }

    /// Lets everybody read and answer until nothing is on its way.
    fn settle(&mut self) -> anyhow::Result<()> {
        loop {
            let mut quiet = true;
            let time = self.time();
            for (id, station) in self.stations.iter_mut().enumerate() {
                let Some(ends) = &mut station.ends else { continue };
                if ends.to_relay || ends.machine.has_to_transmit() {
                    quiet = false;
                    ends.relay_works(time)?;
                    if let Some(at) = ends.machine.next_timer() {
                        let at = nanos(at.saturating_duration_since(self.epoch));
                        self.timers.push(Reverse((at, Timer::Relay(id))));
                    }
                }
            }
            for id in 0..self.stations.len() {
                let station = &self.stations[id];
                let waits = station.ends.as_ref().is_some_and(|ends| ends.to_client);
                if waits && station.client.may_read() {
                    quiet = false;
                    self.tell(id, &Input::Messages)?;
                }
            }
            if quiet {
                return Ok(());
            }
        }
    }

    /// Passes an input to a client, and carries out its actions.
    fn tell(&mut self, id: usize, input: &Input) -> anyhow::Result<()> {
        let mut input = Some(*input);
        loop {
            let (now_ns, recorder) = (self.now_ns, &mut self.recorder);
            let Station { client, ends } = &mut self.stations[id];
            let mut wants = Ok(None);
            probe::client_side(&mut || wants = work(client, ends, input.take(), now_ns, recorder));
            match wants? {
                Some(Action::Connect) => {
                    let cell = spoken(&self.cell, self.shared.workload.roles[id].speaks);
                    self.stations[id].ends = Some(self.connect(&cell)?);
                    input = Some(Input::Connected);
                }
                Some(Action::Close | Action::Abort) => {
                    let mut ends = self.stations[id].ends.take();
                    probe::relay_side(&mut || drop(ends.take().map(|ends| ends.machine)));
                }
                Some(Action::Fail(why)) => bail!(why),
                Some(Action::Send(_) | Action::Record(_) | Action::Count { .. }) | None => break,
            }
        }
        if let Some(at) = self.stations[id].client.next_wake_ns() {
            self.timers.push(Reverse((at.max(self.now_ns), Timer::Client(id))));
        }
        Ok(())
    }

    /// A connection of one more client.
    fn connect(&self, cell: &Cell) -> anyhow::Result<BothEnds> {
        let (client, relay) = pair(cell, self.stations.len())?;
        let opening =
            Opening { batched: cell.batching.is_some(), shares: relay.shares(), ..Opening::new(cell.format) };
        let mut machine = None;
        probe::relay_side(&mut || machine = Some(self.relay.connect(&opening)));
        let machine = machine.context("the relay side ran")?;
        Ok(BothEnds { client, relay, machine, to_relay: false, to_client: false })
    }

    fn time(&self) -> Time {
        Time {
            instant: self.epoch + Duration::from_nanos(self.now_ns),
            unix_seconds: UNIX_S + self.now_ns / 1_000_000_000,
        }
    }

    /// Proves that what was counted is what was planned.
    fn close(self) -> anyhow::Result<()> {
        let reports: Vec<Report> = self.stations.into_iter().map(|station| station.client.finish()).collect();
        let counts = ledger::close(&self.shared, &reports.iter().collect::<Vec<_>>(), true);
        counts.balanced().map_err(|why| anyhow!("the ledger does not balance: {why}"))
    }
}

impl BothEnds {
    /// The relay reads the client's messages and sends its own.
    fn relay_works(&mut self, time: Time) -> anyhow::Result<()> {
        let BothEnds { client, relay, machine, .. } = self;
        let mut done = Ok(());
        probe::relay_side(&mut || done = serve(relay, client, machine, time));
        self.to_relay = false;
        self.to_client = true;
        done
    }
}

/// A client's turn: it takes `input` and acts, up to the first action that only its owner can carry out.
fn work(
    client: &mut Client,
    ends: &mut Option<BothEnds>,
    input: Option<Input>,
    now_ns: u64,
    recorder: &mut Recorder,
) -> anyhow::Result<Option<Action>> {
    match input {
        None => {}
        Some(Input::Open) => client.open(now_ns),
        Some(Input::Due(due)) => client.on_due(due, now_ns),
        Some(Input::Timer) => client.on_timer(now_ns),
        Some(Input::Connected) => client.on_connected(now_ns),
        Some(Input::Messages) => {
            while client.may_read() {
                let Some(open) = ends.as_mut() else { break };
                let Some(message) = next(&mut open.client, &open.relay)? else {
                    open.to_client = false;
                    break;
                };
                client.on_message(&message.payload, now_ns);
                let wants = act(client, ends, now_ns, recorder)?;
                if wants.is_some() {
                    return Ok(wants);
                }
            }
        }
    }
    let wants = act(client, ends, now_ns, recorder)?;
    if let Some(ends) = ends.as_mut().filter(|ends| ends.to_relay) {
        flush(&mut ends.client)?;
    }
    Ok(wants)
}

/// Carries out a client's actions, up to one that concerns its connection.
fn act(
    client: &mut Client,
    ends: &mut Option<BothEnds>,
    now_ns: u64,
    recorder: &mut Recorder,
) -> anyhow::Result<Option<Action>> {
    loop {
        while let Some(action) = client.next_action() {
            match action {
                Action::Record(sample) => recorder.add(client.label(), &sample),
                Action::Count { now_ns } => recorder.throughput.delivery(now_ns),
                Action::Send(payload) => {
                    let ends = ends.as_mut().context("a client connects before it sends")?;
                    feed(&mut ends.client, payload)?;
                    ends.to_relay = true;
                }
                other => return Ok(Some(other)),
            }
        }
        if !client.has_backlog() {
            return Ok(None);
        }
        client.on_room(now_ns);
    }
}

/// The relay's settings: those that `client-sim` gives the relay that it starts.
pub(super) fn config(workload: &Workload, cell: &Cell) -> Config {
    let mut config = Config::default();
    config.implementation = cell.implementation;
    config.verify = cell.own_relay().verify;
    config.reencode = cell.own_relay().reencode;
    config.keep_expired = true;
    config.auth = workload.auth;
    if let Some(bytes) = workload.frame_bytes {
        config.reconcile.frame_bytes = bytes;
    }
    if let Some(batching) = cell.batching {
        config.batch = batching.of_the_relay();
    }
    config
}

/// The cell of a population that states a format or a compression of its own.
fn spoken(cell: &Cell, speaks: Speaks) -> Cell {
    Cell {
        format: speaks.format.unwrap_or(cell.format),
        compression: speaks.compression.unwrap_or(cell.compression),
        ..cell.clone()
    }
}
