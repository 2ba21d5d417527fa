//! Coordinator and agents in one thread from a seed, over a simulated network, with clocks that
//! differ and agents that are killed, stopped or cut off.

use std::{cmp::Reverse, collections::BinaryHeap};

use measure::{ClockRecord, LiveCounts};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{
    agent::{Agent, Ending, Left, Output, Policy},
    coordinator::{Coordinator, Order},
    message::{Claim, Command, Facts, Phase, Pong, Reply, RunState},
    overview::AgentState,
    spec::{Block, Spec},
    testing::{block, facts, policy, relay_block, spec},
    times::{PARTIAL_NS, SILENCE_NS, STOP_NS},
};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// A fault, and when it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The process is gone, and the server knows.
    Killed(u16),
    /// SIGSTOP: it is silent.
    Stopped(u16),
    /// Nothing passes between it and the server any more, and nobody closes the connection.
    Cut(u16),
    /// Its connection is closed, as both ends see.
    Closed(u16),
    /// The server is gone; every client sees its connection close.
    Server,
    /// The coordinator is gone.
    Coordinator,
    /// A player fails.
    Player(u16),
    /// A player ends with a record, too early.
    Ended(u16),
}

#[derive(Debug)]
enum Event {
    Tick,
    AgentTick(u16),
    Fault,
    Claimed(u16, Claim),
    Pinged(u16, u64),
    Ponged(u16, u64, Pong),
    Unanswered(u16),
    Commanded(u16, Command),
    Replied(u16, Command, Reply),
    Aborted(u16, String),
    Prepared(u16),
    Ended(u16),
    Published(u16, Ending),
    Fetched(u16, Option<Ending>),
}

/// An agent's process, its clock and what it was seen to do.
struct Machine {
    agent: Agent,
    ahead_ns: u64,
    /// Parts per million that its clock runs too fast.
    ppm: u64,
    is_there: bool,
    is_stopped: bool,
    is_cut_off: bool,
    sent_ping_ns: u64,
    /// When its player was prepared, and when the load began and ended, by the true time.
    asked_ns: Option<u64>,
    prepared_ns: Option<u64>,
    began_ns: Option<u64>,
    ended_ns: Option<u64>,
    told_to_stop_ns: Option<u64>,
    left: Option<Left>,
    /// The record in the stream, and when it came there.
    published: Option<(u64, Ending)>,
}

impl Machine {
    fn clock(&self, true_ns: u64) -> u64 {
        self.ahead_ns + true_ns + true_ns / 1_000_000 * self.ppm
    }

    /// The true time when its clock shows this.
    fn true_ns(&self, clock_ns: u64) -> u64 {
        let since = u128::from(clock_ns - self.ahead_ns);
        u64::try_from(since * 1_000_000 / (1_000_000 + u128::from(self.ppm))).unwrap()
    }
}

struct World {
    rng: ChaCha8Rng,
    now_ns: u64,
    events: BinaryHeap<Reverse<(u64, usize)>>,
    bodies: Vec<Option<Event>>,
    coordinator: Coordinator,
    coordinator_is_there: bool,
    server_is_there: bool,
    /// The players; a machine behind them starts the relay.
    of: u16,
    machines: Vec<Machine>,
    fault: Fault,
    states: Vec<RunState>,
    /// Records of the block under way, in the order in which they were read.
    taken: Vec<Ending>,
    aborted_ns: Option<u64>,
    wakes_ns: u64,
    /// The player's counts when it ends.
    counts: fn(u16) -> LiveCounts,
    /// The change that agent 1 makes to what it says of itself.
    alters: fn(&mut Pong),
    /// The least that every message takes.
    delay_ns: u64,
    /// The longest that a player takes to stop. Longer than [`STOP_NS`] is too long.
    stops_within_ms: u64,
    /// The longest that a record takes to the stream.
    publishes_within_ms: u64,
}

impl World {
    fn new(seed: u64, of: u16, fault: Fault, fault_ns: u64) -> World {
        World::from_spec(spec(of), seed, fault, fault_ns)
    }

    /// Players, and behind them the agent that starts the relay.
    fn with_relay(seed: u64, of: u16, fault: Fault, fault_ns: u64) -> World {
        World::from_spec(Spec { has_relay: true, ..spec(of) }, seed, fault, fault_ns)
    }

    fn from_spec(spec: Spec, seed: u64, fault: Fault, fault_ns: u64) -> World {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (sha256, of, slots) = (spec.sha256(), spec.of, spec.slots());
        let policy = |index| Policy { starts_relays: index == of, ..policy() };
        let machine = |index| {
            let claim = Claim { nonce: u64::from(index), spec_sha256: sha256.clone() };
            Machine {
                agent: Agent::new(&claim, policy(index), 0),
                ahead_ns: 0,
                ppm: 0,
                is_there: true,
                is_stopped: false,
                is_cut_off: false,
                sent_ping_ns: 0,
                asked_ns: None,
                prepared_ns: None,
                began_ns: None,
                ended_ns: None,
                told_to_stop_ns: None,
                left: None,
                published: None,
            }
        };
        let machines = (0..slots).map(machine).collect();
        let mut world = World {
            coordinator: Coordinator::new(spec, 0),
            of,
            coordinator_is_there: true,
            server_is_there: true,
            now_ns: 0,
            events: BinaryHeap::new(),
            bodies: Vec::new(),
            machines,
            fault,
            states: Vec::new(),
            taken: Vec::new(),
            aborted_ns: None,
            wakes_ns: u64::MAX,
            counts: |index| LiveCounts { sent: 10 + u64::from(index), ..LiveCounts::default() },
            alters: |_| {},
            delay_ns: 0,
            stops_within_ms: 1_500,
            publishes_within_ms: 8,
            rng: ChaCha8Rng::seed_from_u64(rng.random()),
        };
        for index in 0..slots {
            let machine = &mut world.machines[usize::from(index)];
            machine.ahead_ns = rng.random_range(0..1_000 * S);
            machine.ppm = rng.random_range(0..100);
            let claim = Claim { nonce: u64::from(index), spec_sha256: sha256.clone() };
            let at_ns = rng.random_range(0..S);
            machine.agent = Agent::new(&claim, policy(index), machine.ahead_ns + at_ns);
            // A watch of a bucket may tell the same entry twice.
            world.at(at_ns, Event::Claimed(index, claim.clone()));
            world.at(at_ns + 2 * MS, Event::Claimed(index, claim));
        }
        if fault != Fault::None {
            world.at(fault_ns, Event::Fault);
        }
        world
    }

    fn at(&mut self, at_ns: u64, event: Event) {
        self.events.push(Reverse((at_ns, self.bodies.len())));
        self.bodies.push(Some(event));
    }

    /// After a way over the network: mostly quick, sometimes a few milliseconds.
    fn over_the_network(&mut self, event: Event) {
        let slow = self.rng.random_bool(0.1);
        let delay =
            if slow { self.rng.random_range(MS..8 * MS) } else { self.rng.random_range(20_000..900_000) };
        self.at(self.now_ns + self.delay_ns + delay, event);
    }

    /// Plays until nothing happens for longer than any wait. Returns clocks and records of each
    /// block.
    fn run(&mut self, blocks: &[Block]) -> Vec<(Vec<ClockRecord>, Vec<Ending>)> {
        let mut merged = Vec::new();
        let mut blocks = blocks.iter();
        self.at(0, Event::Tick);
        while let Some(Reverse((at_ns, number))) = self.events.pop() {
            assert!(number < 200_000, "it never ends");
            self.now_ns = at_ns;
            let event = self.bodies[number].take().unwrap();
            self.happen(event);
            if self.coordinator_is_there && self.coordinator.is_ready() {
                let taken = std::mem::take(&mut self.taken);
                merged.extend(self.coordinator.clocks().map(|clocks| (clocks, taken)));
                match blocks.next() {
                    Some(block) => self.coordinator.play(at_ns, block).unwrap(),
                    None => {
                        self.coordinator.finish();
                        self.obey();
                        self.coordinator_is_there = false;
                    }
                }
            }
            self.obey();
        }
        merged
    }

    fn happen(&mut self, event: Event) {
        let now_ns = self.now_ns;
        let there = self.coordinator_is_there;
        match event {
            Event::Fault => self.fail(),
            Event::Tick if there => {
                self.wakes_ns = u64::MAX;
                self.coordinator.tick(now_ns);
            }
            Event::Claimed(index, claim) if there => {
                let known = self.coordinator.claimed(now_ns, index, &claim);
                known.unwrap_or_else(|reason| assert!(reason.contains("late"), "{reason}"));
            }
            Event::Ponged(index, sent_ns, pong) if there => {
                assert!(self.coordinator.ponged(sent_ns, now_ns, index, pong.clone()));
                assert!(!self.coordinator.ponged(sent_ns, now_ns, index, pong), "the same pong twice");
            }
            Event::Unanswered(index) if there => self.coordinator.unanswered(now_ns, index, true),
            Event::Replied(index, command, reply) if there => {
                self.coordinator.replied(now_ns, index, &command, reply);
            }
            Event::Fetched(index, ending) if there => {
                let record = ending.as_ref().map(|_| ()).ok_or_else(|| "missing".to_owned());
                self.taken.extend(ending);
                self.coordinator.fetched(now_ns, index, record.clone());
                self.coordinator.fetched(now_ns, index, record);
            }
            Event::AgentTick(index) => self.tell(index, |agent, now_ns| agent.tick(now_ns)),
            Event::Prepared(index) => {
                let corpus = facts().corpus_sha256;
                let url = (index == self.of).then(|| "ws://127.0.0.1:1".to_owned());
                let facts = Facts { plan_sha256: "plan".to_owned(), corpus_sha256: corpus, url };
                self.machines[usize::from(index)].prepared_ns = Some(self.now_ns);
                self.tell(index, |agent, _| agent.prepared(facts));
            }
            Event::Ended(index) => {
                let record = format!("record {index}").into_bytes();
                let ending = Ending { exit_code: Some(0), record };
                let counts = self.counts;
                self.machines[usize::from(index)].ended_ns = Some(self.now_ns);
                self.tell(index, |agent, now_ns| {
                    agent.counted(counts(index));
                    agent.ended(now_ns, Ok(ending));
                });
            }
            Event::Published(index, ending) if self.server_is_there => {
                if self.machines[usize::from(index)].is_cut_off {
                    return;
                }
                self.machines[usize::from(index)].published = Some((now_ns, ending));
                self.tell(index, |agent, _| agent.published());
            }
            Event::Aborted(index, reason) => {
                self.message(index, |agent, now_ns| agent.aborted(now_ns, reason));
            }
            Event::Pinged(index, seq) => {
                let mut pong = None;
                self.message(index, |agent, now_ns| pong = Some(agent.ping(now_ns, crate::Ping { seq })));
                let machine = &self.machines[usize::from(index)];
                let is_silent = machine.is_stopped || self.fault == Fault::Cut(index) && machine.is_cut_off;
                let sent_ns = machine.sent_ping_ns;
                match pong {
                    Some(mut pong) => {
                        if index == 1 {
                            (self.alters)(&mut pong);
                        }
                        self.over_the_network(Event::Ponged(index, sent_ns, pong));
                    }
                    None if is_silent => {}
                    None => self.over_the_network(Event::Unanswered(index)),
                }
            }
            Event::Commanded(index, command) => {
                let mut reply = None;
                let asked = command.clone();
                self.message(index, |agent, now_ns| reply = Some(agent.command(now_ns, asked)));
                if let Some(reply) = reply {
                    self.over_the_network(Event::Replied(index, command, reply));
                }
            }
            _ => {}
        }
    }

    fn fail(&mut self) {
        let now_ns = self.now_ns;
        match self.fault {
            Fault::None => {}
            Fault::Killed(index) => self.machines[usize::from(index)].is_there = false,
            Fault::Stopped(index) => self.machines[usize::from(index)].is_stopped = true,
            Fault::Cut(index) => self.machines[usize::from(index)].is_cut_off = true,
            Fault::Closed(index) => {
                self.machines[usize::from(index)].is_cut_off = true;
                self.tell(index, |agent, now_ns| agent.lost(now_ns, "disconnected".to_owned()));
            }
            Fault::Server => {
                self.server_is_there = false;
                self.coordinator.abort("disconnected".to_owned());
                for index in 0..u16::try_from(self.machines.len()).unwrap() {
                    self.tell(index, |agent, now_ns| agent.lost(now_ns, "disconnected".to_owned()));
                }
            }
            Fault::Coordinator => {
                self.coordinator_is_there = false;
                self.aborted_ns = Some(now_ns);
            }
            Fault::Player(index) => {
                self.tell(index, |agent, now_ns| agent.ended(now_ns, Err("no record".to_owned())));
            }
            Fault::Ended(index) => self.at(now_ns, Event::Ended(index)),
        }
    }

    /// Brings an agent a message, unless it is cut off.
    fn message(&mut self, index: u16, action: impl FnOnce(&mut Agent, u64)) {
        if !self.machines[usize::from(index)].is_cut_off {
            self.tell(index, action);
        }
    }

    /// Has an agent do something, if it is there, and does what it asks for.
    fn tell(&mut self, index: u16, action: impl FnOnce(&mut Agent, u64)) {
        let now_ns = self.now_ns;
        let machine = &mut self.machines[usize::from(index)];
        if !machine.is_there || machine.is_stopped || machine.left.is_some() {
            return;
        }
        let clock_ns = machine.clock(now_ns);
        action(&mut machine.agent, clock_ns);
        while let Some(output) = machine.agent.next_output() {
            match output {
                Output::Prepare(_) => {
                    machine.asked_ns = Some(now_ns);
                    let takes = self.rng.random_range(50..500) * MS;
                    self.events.push(Reverse((now_ns + takes, self.bodies.len())));
                    self.bodies.push(Some(Event::Prepared(index)));
                }
                Output::Start { at_ns } => {
                    let at_ns = machine.true_ns(at_ns);
                    machine.began_ns = Some(at_ns);
                    if index == self.of {
                        // It is told when the players are done.
                        continue;
                    }
                    let ends = at_ns + 2 * S + self.rng.random_range(0..300) * MS;
                    self.events.push(Reverse((ends, self.bodies.len())));
                    self.bodies.push(Some(Event::Ended(index)));
                }
                Output::Stop => {
                    machine.told_to_stop_ns = Some(now_ns);
                    let takes = self.rng.random_range(1..self.stops_within_ms) * MS;
                    self.events.push(Reverse((now_ns + takes, self.bodies.len())));
                    self.bodies.push(Some(Event::Ended(index)));
                }
                Output::Publish(_, ending) => {
                    let takes = self.rng.random_range(1..self.publishes_within_ms) * MS;
                    self.events.push(Reverse((now_ns + takes, self.bodies.len())));
                    self.bodies.push(Some(Event::Published(index, ending)));
                }
                Output::Leave(left) => machine.left = Some(left),
            }
        }
        if machine.left.is_none() {
            let wakes = machine.true_ns(machine.agent.wakes_ns().max(clock_ns)).max(now_ns) + 1_000;
            self.at(wakes, Event::AgentTick(index));
        }
    }

    /// Does what the coordinator orders.
    fn obey(&mut self) {
        while self.coordinator_is_there
            && let Some(order) = self.coordinator.next_order()
        {
            match order {
                Order::State(state) => {
                    if matches!(state, RunState::Aborted(_)) {
                        self.aborted_ns = Some(self.now_ns);
                    }
                    self.states.push(state);
                }
                Order::Ping { index, seq } => {
                    self.machines[usize::from(index)].sent_ping_ns = self.now_ns;
                    self.over_the_network(Event::Pinged(index, seq));
                }
                Order::Command { index, command } => {
                    self.over_the_network(Event::Commanded(index, command));
                }
                Order::Fetch { index, .. } => {
                    let stored = self.machines[usize::from(index)].published.clone();
                    self.over_the_network(Event::Fetched(index, stored.map(|(_, ending)| ending)));
                }
                Order::Abort { reason } if self.fault != Fault::Server => {
                    for index in 0..u16::try_from(self.machines.len()).unwrap() {
                        self.over_the_network(Event::Aborted(index, reason.clone()));
                    }
                }
                Order::Abort { .. } => {}
            }
        }
        let wakes = self.coordinator.wakes_ns().max(self.now_ns);
        if self.coordinator_is_there && self.coordinator.aborted().is_none() && wakes < self.wakes_ns {
            self.wakes_ns = wakes;
            self.at(wakes, Event::Tick);
        }
    }
}

#[test]
fn blocks_are_played_by_all_at_one_instant_and_every_record_counts_once() {
    for seed in 0..40 {
        for of in [1, 2, 7] {
            let mut world = World::new(seed, of, Fault::None, 0);
            let blocks = [block(), Block { position: 1, ..block() }];
            let merged = world.run(&blocks);
            assert_eq!(merged.len(), 2, "seed {seed}: {:?}", world.states);
            for (_, endings) in &merged {
                let records =
                    endings.iter().map(|ending| String::from_utf8_lossy(&ending.record).into_owned());
                let expected: Vec<String> = (0..of).map(|index| format!("record {index}")).collect();
                assert_eq!(records.collect::<Vec<_>>(), expected);
            }
            let began = |index: usize| world.machines[index].began_ns.unwrap();
            let (clocks, _) = merged.last().unwrap();
            for (index, clock) in clocks.iter().enumerate() {
                // The clocks drift by up to 100 ppm of the 2.5 s until the start, and of the third
                // of a second since the best round trip.
                let apart = began(index).abs_diff(began(0));
                let bound = clock.start_bound_ns + clocks[0].start_bound_ns + 300_000;
                assert!(apart <= bound, "seed {seed}: agent {index} began {apart} ns apart, bound {bound}");
                assert!(clock.start_bound_ns <= 5 * MS);
                // From before the start was set to what was seen last lie more than 2.5 s.
                let ppm = world.machines[index].ppm;
                let (least, most) = (ppm * 2_500, ppm * 8_000);
                let drift_ns = u64::try_from(clock.drift_ns.max(0)).unwrap();
                assert!(
                    drift_ns + clock.drift_bound_ns >= least && drift_ns <= most + clock.drift_bound_ns,
                    "seed {seed}: agent {index} runs {ppm} ppm too fast: {clock:?}"
                );
            }
            use RunState::{Armed, Claimed, Drained, Merged, Open, Prepared, Published, Running};
            let one = [Claimed, Prepared, Armed, Running, Drained, Published, Merged];
            let states: Vec<RunState> = [Open, Claimed].into_iter().chain(one.clone()).chain(one).collect();
            assert_eq!(world.states, states);
            assert!(world.machines.iter().all(|machine| machine.left == Some(Left::Finished)));
            let seen = world.coordinator.overview(world.now_ns);
            let of_block: u64 = (0..u64::from(of)).map(|index| 10 + index).sum();
            assert_eq!((seen.block.sent, seen.run.sent), (of_block, 2 * of_block), "seed {seed}");
            assert_eq!((seen.blocks_merged, seen.counts_refused), (2, 0));
        }
    }
}

#[test]
fn no_two_blocks_of_a_run_have_one_key() {
    let mut world = World::new(1, 2, Fault::None, 0);
    assert_eq!(world.run(&[Block { round: 1, ..block() }]).len(), 1);
    for earlier in [block(), Block { round: 1, ..block() }] {
        let refused = world.coordinator.play(world.now_ns, &earlier).unwrap_err();
        assert!(refused.to_string().contains("follow"), "the stream has its records already: {refused}");
    }
    assert_eq!(world.coordinator.play(world.now_ns, &Block { round: 1, position: 1, ..block() }), Ok(()));
}

#[test]
fn what_no_player_can_count_is_not_shown_and_does_no_harm() {
    let mut world = World::new(1, 3, Fault::None, 0);
    world.counts =
        |index| LiveCounts { sent: if index == 1 { u64::MAX } else { 5 }, ..LiveCounts::default() };
    let merged = world.run(&[block()]);
    assert_eq!(merged.len(), 1);
    let seen = world.coordinator.overview(world.now_ns);
    assert_eq!((seen.run.sent, seen.counts_refused), (10, 1));
}

#[test]
fn an_agent_that_is_silent_is_shown_as_late_before_it_is_lost() {
    let mut world = World::new(1, 3, Fault::Stopped(2), 3 * S);
    world.run(&[block()]);
    let last_heard_ns = world.aborted_ns.unwrap() - SILENCE_NS;
    let late = |now_ns| world.coordinator.overview(now_ns).agents_in(AgentState::Late).collect::<Vec<_>>();
    assert_eq!(late(last_heard_ns + 399 * MS), [0; 0], "two pings are not yet over");
    assert_eq!(late(last_heard_ns + 600 * MS), [2]);
}

#[test]
fn the_relay_listens_before_its_players_prepare_and_stops_after_they_end() {
    for seed in 0..40 {
        for of in [1, 2, 7] {
            let mut world = World::with_relay(seed, of, Fault::None, 0);
            let merged = world.run(&[relay_block(), Block { position: 1, ..relay_block() }]);
            assert_eq!(merged.len(), 2, "seed {seed}: {:?}", world.states);
            let expected: Vec<_> = (0..=of).map(|index| format!("record {index}").into_bytes()).collect();
            for (clocks, endings) in &merged {
                let records: Vec<_> = endings.iter().map(|ending| ending.record.clone()).collect();
                assert_eq!((clocks.len(), &records), (usize::from(of) + 1, &expected), "one of each");
            }
            let (players, relay) = world.machines.split_at(usize::from(of));
            for player in players {
                assert!(player.asked_ns > relay[0].prepared_ns, "seed {seed}: asked before there is a relay");
                assert!(player.ended_ns < relay[0].told_to_stop_ns, "seed {seed}: the relay stops before");
            }
            assert!(relay[0].began_ns.is_some(), "its clock is read from the common start on");
            assert!(world.machines.iter().all(|machine| machine.left == Some(Left::Finished)));
        }
    }
}

#[test]
fn a_run_without_its_relay_has_no_block_and_says_whose_loss_it_is() {
    for seed in 0..200 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let fault = [Fault::Killed(2), Fault::Stopped(2)][usize::try_from(seed % 2).unwrap()];
        let fault_ns = rng.random_range(1_100 * MS..5 * S);
        let mut world = World::with_relay(seed, 2, fault, fault_ns);
        let merged = world.run(&[relay_block()]);
        let what = format!("seed {seed}: {fault:?} at {} ms, {:?}", fault_ns / MS, world.states);
        assert!(merged.is_empty(), "{what}");
        assert!(world.aborted_ns.unwrap() - fault_ns <= S, "{what}");
        let reason = world.coordinator.aborted().unwrap();
        assert!(reason.starts_with("the relay's agent"), "{what}: {reason}");
    }
    let mut world = World::with_relay(1, 2, Fault::Player(2), 3 * S);
    assert!(world.run(&[relay_block()]).is_empty());
    assert_eq!(world.coordinator.aborted(), Some("the relay's agent: no record"));
    let mut world = World::with_relay(1, 2, Fault::None, 0);
    world.run(&[relay_block()]);
    let half_ns = world.machines[2].began_ns.unwrap() + S;
    let mut world = World::with_relay(1, 2, Fault::Ended(2), half_ns);
    assert!(world.run(&[relay_block()]).is_empty(), "a relay that is gone before its players are done");
    assert_eq!(world.coordinator.aborted(), Some("the relay's agent ended before the players did"));
}

#[test]
fn a_loss_at_any_instant_ends_the_run_within_a_second_and_all_load_soon_after() {
    let mut aborted_in = std::collections::BTreeSet::new();
    for seed in 0..400 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let lost = rng.random_range(0..3);
        let of_one = [Fault::Killed, Fault::Stopped, Fault::Cut, Fault::Closed].map(|fault| fault(lost));
        let faults = [&of_one[..], &[Fault::Server, Fault::Coordinator]].concat();
        let fault = faults[usize::try_from(seed % 6).unwrap()];
        // From the last claim to the end of the load.
        let fault_ns = rng.random_range(1_100 * MS..5 * S);
        let mut world = World::new(seed, 3, fault, fault_ns);
        let merged = world.run(&[block()]);
        let what = format!("seed {seed}: {fault:?} at {} ms, {:?}", fault_ns / MS, world.states);
        assert!(merged.is_empty(), "{what}");
        let known_ns = world.aborted_ns.unwrap() - fault_ns;
        assert!(known_ns <= S, "{what}: known after {} ms", known_ns / MS);
        if let [.., before, RunState::Aborted(_)] = &world.states[..] {
            aborted_in.insert(format!("{before:?}"));
        }
        for (index, machine) in (0..).zip(&world.machines) {
            if matches!(fault, Fault::Killed(lost) | Fault::Stopped(lost) if lost == index) {
                continue;
            }
            let Some(Left::Stopped { reason, .. }) = &machine.left else { panic!("{what}: agent {index}") };
            assert!(!reason.is_empty());
            assert_eq!(machine.agent.phase(), Phase::Stopped);
            if let Some(told_ns) = machine.told_to_stop_ns {
                let after = told_ns.saturating_sub(fault_ns);
                assert!(after <= 1_200 * MS, "{what}: agent {index} stops after {} ms", after / MS);
            } else {
                // It had no player, or its player had ended.
                let unbegun = machine.began_ns.is_none();
                assert!(unbegun || machine.ended_ns.is_some(), "{what}: agent {index} goes on");
            }
        }
    }
    for state in ["Claimed", "Prepared", "Armed", "Running"] {
        assert!(aborted_in.contains(state), "no fault in {state}: {aborted_in:?}");
    }
}

#[test]
fn a_record_is_in_the_stream_while_it_is_looked_for_or_stays_with_its_agent() {
    let mut aborted_in = std::collections::BTreeSet::new();
    for seed in 0..400 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let of_one = [Fault::Killed(1), Fault::Stopped(1), Fault::Cut(1), Fault::Closed(1)];
        let faults = [&of_one[..], &[Fault::Server, Fault::Coordinator]].concat();
        let fault = faults[usize::try_from(seed % 6).unwrap()];
        let fault_ns = rng.random_range(4 * S..9 * S);
        let mut world = World::new(seed, 3, fault, fault_ns);
        world.publishes_within_ms = 1_300;
        if !world.run(&[block()]).is_empty() {
            continue;
        }
        if let [.., before, RunState::Aborted(_)] = &world.states[..] {
            aborted_in.insert(format!("{before:?}"));
        }
        let looks_ns = world.aborted_ns.unwrap() + PARTIAL_NS;
        for machine in [&world.machines[0], &world.machines[2]] {
            let is_stored = |at_ns: u64| fault == Fault::Coordinator || at_ns <= looks_ns;
            let is_stored = machine.published.as_ref().is_some_and(|(at_ns, _)| is_stored(*at_ns));
            let is_kept = matches!(&machine.left, Some(Left::Stopped { unpublished: Some(_), .. }));
            let told_ns = machine.told_to_stop_ns;
            let in_time = |ended_ns| told_ns.is_none_or(|told_ns| ended_ns < told_ns + STOP_NS - MS);
            let has_record = machine.ended_ns.is_some_and(in_time);
            assert!(is_stored || is_kept || !has_record, "seed {seed}: {fault:?} at {} ms", fault_ns / MS);
        }
    }
    for state in ["Armed", "Running", "Drained"] {
        assert!(aborted_in.contains(state), "no fault in {state}: {aborted_in:?}");
    }
}

#[test]
fn a_player_that_fails_ends_the_run_with_its_reason() {
    let mut world = World::new(1, 3, Fault::Player(2), 2 * S);
    world.stops_within_ms = 500;
    assert!(world.run(&[block()]).is_empty());
    assert_eq!(world.coordinator.aborted(), Some("agent 2: no record"));
    let published = world.machines.iter().filter(|machine| machine.published.is_some()).count();
    assert_eq!(published, 2, "what the others have is kept");
}

/// Why the run ended; nobody played.
fn ended_unplayed(mut world: World) -> String {
    assert!(world.run(&[block()]).is_empty());
    for machine in &world.machines {
        assert!(machine.began_ns.is_none() && matches!(machine.left, Some(Left::Stopped { .. })));
    }
    world.coordinator.aborted().unwrap().to_owned()
}

#[test]
fn agents_that_do_not_agree_on_the_block_play_nothing() {
    type Alters = fn(&mut Pong);
    let cases: [(Alters, &str); 3] = [
        (|pong| pong.facts = None, "agent 1 is prepared and states no plan"),
        (
            |pong| pong.facts.iter_mut().for_each(|facts| facts.corpus_sha256 = "other".to_owned()),
            "agent 1 plays other events than the run",
        ),
        (
            |pong| pong.facts.iter_mut().for_each(|facts| facts.plan_sha256 = "other".to_owned()),
            "agent 1 has another plan than agent 0",
        ),
    ];
    for (alters, reason) in cases {
        let world = World { alters, ..World::new(1, 3, Fault::None, 0) };
        assert_eq!(ended_unplayed(world), reason);
    }
}

#[test]
fn an_agent_whose_clock_is_not_known_well_enough_plays_nothing() {
    // A round trip of 12 ms is a bound of 6 ms.
    let world = World { delay_ns: 6 * MS, ..World::new(1, 3, Fault::None, 0) };
    assert_eq!(ended_unplayed(world), "the clock of agent 0 is not known within 5 ms");
    let mut world = World { delay_ns: 3 * MS, ..World::new(1, 3, Fault::None, 0) };
    assert_eq!(world.run(&[block()]).len(), 1, "{:?}", world.states);
}
