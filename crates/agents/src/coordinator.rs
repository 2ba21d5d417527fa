//! The coordinator of a run, without socket and clock: when each state of the run is reached, and
//! what ends it.

mod relay;

use std::{collections::VecDeque, ops::Range};

use measure::{ClockRecord, LiveCounts};

use crate::{
    clock::{Offset, Offsets, RoundTrip},
    message::{Claim, Command, Facts, Phase, Pong, Reply, RunState, bounded},
    overview::{AgentState, Overview},
    spec::{Block, BlockKey, Spec, SpecError},
    times::{
        BLOCK_EXTRA_NS, BOUND_NS, CLAIMS_NS, CLOCK_PING_NS, FIRST_PING_NS, LATE_NS, PING_NS, PREPARE_NS,
        SILENCE_NS, START_AHEAD_NS,
    },
};

/// Work for the coordinator's driver.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    /// Write the run's state where everybody reads it.
    State(RunState),
    /// Ping an agent.
    Ping { index: u16, seq: u64 },
    /// Ask an agent for something.
    Command { index: u16, command: Command },
    /// Read an agent's record from the stream.
    Fetch { index: u16, key: BlockKey },
    /// Tell all agents that the run is over.
    Abort { reason: String },
}

#[derive(Debug, Default)]
struct Member {
    nonce: Option<u64>,
    claimed_ns: u64,
    heard_ns: Option<u64>,
    seq: u64,
    awaits_pong: bool,
    next_ping_ns: u64,
    offsets: Offsets,
    /// The offset that its start was computed with.
    start_offset: Option<Offset>,
    has_confirmed: bool,
    phase: Option<Phase>,
    facts: Option<Facts>,
    counts: LiveCounts,
}

/// The coordinator of a run. Every `now_ns` is of its own monotonic clock.
#[derive(Debug)]
pub struct Coordinator {
    spec: Spec,
    spec_sha256: String,
    state: RunState,
    members: Vec<Member>,
    opened_ns: u64,
    block: Option<Current>,
    orders: VecDeque<Order>,
    /// Sums of all agents over earlier blocks.
    counted: LiveCounts,
    counts_refused: u64,
    blocks_merged: u64,
}

#[derive(Debug)]
struct Current {
    key: BlockKey,
    began_ns: u64,
    seconds: u32,
    /// Words for the players, kept until the relay that they play against listens.
    waiting: Option<Box<Block>>,
    /// The common start, once it is set.
    start_ns: Option<u64>,
    /// How many agents' records have been read: one after the other, so that whoever takes them
    /// need not hold them all.
    fetched: u16,
    /// The relay's agent was told that all players are done.
    stops_relay: bool,
}

impl Coordinator {
    /// Opens a run.
    pub fn new(spec: Spec, now_ns: u64) -> Coordinator {
        let members = (0..spec.slots()).map(|_| Member::default()).collect();
        let orders = VecDeque::from([Order::State(RunState::Open)]);
        let spec_sha256 = spec.sha256();
        Coordinator {
            spec,
            spec_sha256,
            state: RunState::Open,
            members,
            opened_ns: now_ns,
            block: None,
            orders,
            counted: LiveCounts::default(),
            counts_refused: 0,
            blocks_merged: 0,
        }
    }

    /// The state of the run.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// The next thing to do; `None` when there is nothing.
    pub fn next_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// Whether the agents wait for a block.
    pub fn is_ready(&self) -> bool {
        match &self.block {
            None => self.state == RunState::Claimed,
            Some(_) => self.state == RunState::Merged,
        }
    }

    /// The reason when the run ended early.
    pub fn aborted(&self) -> Option<&str> {
        match &self.state {
            RunState::Aborted(reason) => Some(reason),
            _ => None,
        }
    }

    /// Has all agents play a block. Only when [`Coordinator::is_ready`].
    ///
    /// # Errors
    /// When a value of the block is not allowed.
    pub fn play(&mut self, now_ns: u64, block: &Block) -> Result<(), SpecError> {
        block.play.check()?;
        if block.play.starts_relay != self.spec.has_relay {
            return Err(SpecError::Value("relay"));
        }
        if !self.is_ready() {
            return Err(SpecError::Value("block: the agents are not ready for one"));
        }
        // The stream would give the records of the earlier block of that name.
        if self.block.as_ref().is_some_and(|last| block.key() <= last.key) {
            return Err(SpecError::Value("block: it does not follow the one before"));
        }
        for member in &mut self.members {
            self.counted.add(&std::mem::take(&mut member.counts));
            (member.phase, member.facts) = (None, None);
            (member.start_offset, member.has_confirmed) = (None, false);
        }
        let waiting = self.spec.has_relay.then(|| Box::new(block.clone()));
        let first = if waiting.is_some() { self.spec.of..self.spec.slots() } else { 0..self.spec.of };
        self.prepare(first, block);
        self.block = Some(Current {
            key: block.key(),
            began_ns: now_ns,
            seconds: block.play.seconds,
            waiting,
            start_ns: None,
            fetched: 0,
            stops_relay: false,
        });
        self.enter(RunState::Claimed);
        Ok(())
    }

    fn prepare(&mut self, slots: Range<u16>, block: &Block) {
        let command = |index| Order::Command { index, command: Command::Prepare(Box::new(block.clone())) };
        self.orders.extend(slots.map(command));
    }

    /// The run as it is now, for who watches.
    pub fn overview(&self, now_ns: u64) -> Overview {
        let mut block = LiveCounts::default();
        self.members.iter().for_each(|member| block.add(&member.counts));
        let mut run = LiveCounts { connections: 0, ..self.counted };
        run.add(&block);
        let seen = |member: &Member| match member.heard_ns {
            None => AgentState::Missing,
            Some(heard_ns) if now_ns >= heard_ns.saturating_add(LATE_NS) => AgentState::Late,
            Some(_) => AgentState::In(member.phase.unwrap_or(Phase::Claimed)),
        };
        Overview {
            state: self.state.clone(),
            agents: self.members.iter().take(usize::from(self.spec.of)).map(seen).collect(),
            relay: self.relay().map(seen),
            block,
            run,
            blocks_merged: self.blocks_merged,
            counts_refused: self.counts_refused,
        }
    }

    /// The agents' clocks in a block whose records have all been read, in the agents' order; that
    /// of the relay's is the last.
    pub fn clocks(&self) -> Option<Vec<ClockRecord>> {
        if self.state != RunState::Merged {
            return None;
        }
        let clock = |member: &Member| {
            let start = member.start_offset?;
            let now = member.offsets.best().unwrap_or(start);
            Some(ClockRecord {
                start_bound_ns: start.bound_ns,
                drift_ns: now.ns.saturating_sub(start.ns),
                drift_bound_ns: now.bound_ns.saturating_add(start.bound_ns),
            })
        };
        self.members.iter().map(clock).collect()
    }

    /// Ends a run whose blocks are all played.
    pub fn finish(&mut self) {
        for index in 0..self.spec.slots() {
            self.orders.push_back(Order::Command { index, command: Command::Leave });
        }
    }

    /// An agent wrote a claim.
    ///
    /// # Errors
    /// Why the claim does not count.
    pub fn claimed(&mut self, now_ns: u64, index: u16, claim: &Claim) -> Result<(), String> {
        let of = self.spec.of;
        let member = self.members.get_mut(usize::from(index));
        let member = member.ok_or_else(|| format!("agent {index} of {of}: no such slot"))?;
        if claim.spec_sha256 != self.spec_sha256 {
            return Err(format!("agent {index} claims a slot of another start of this run"));
        }
        if member.nonce.is_some_and(|nonce| nonce != claim.nonce) {
            return Err(format!("{} is there twice", self.who(index)));
        }
        if self.state != RunState::Open {
            return Err(format!("{} is late: the run is no longer open", self.who(index)));
        }
        if member.nonce.is_none() {
            (member.nonce, member.claimed_ns, member.next_ping_ns) = (Some(claim.nonce), now_ns, now_ns);
        }
        Ok(())
    }

    /// A pong, with the instants when its ping left and when it arrived. Returns whether it counts:
    /// one of another process, or an old one, does not.
    pub fn ponged(&mut self, sent_ns: u64, received_ns: u64, index: u16, pong: Pong) -> bool {
        let Some(member) = self.members.get_mut(usize::from(index)) else { return false };
        if member.nonce != Some(pong.nonce) || member.seq != pong.seq || !member.awaits_pong {
            return false;
        }
        member.awaits_pong = false;
        member.heard_ns = Some(received_ns);
        let (arrived_there_ns, left_there_ns) = (pong.arrived_ns, pong.left_ns);
        let trip = RoundTrip { sent_ns, arrived_there_ns, left_there_ns, received_ns };
        let compares = self.state == RunState::Prepared && !member.offsets.is_full();
        member.next_ping_ns = sent_ns.saturating_add(if compares { CLOCK_PING_NS } else { PING_NS });
        let Some(offset) = trip.offset() else {
            self.abort(format!("the clock of {} contradicts itself", self.who(index)));
            return true;
        };
        member.offsets.add(offset);
        if pong.phase == Phase::Stopped {
            let reason = pong.failure.map_or_else(|| "it stopped".to_owned(), bounded);
            self.abort(format!("{}: {reason}", self.who(index)));
        } else if self.block.as_ref().is_some_and(|block| pong.block == Some(block.key)) {
            member.phase = Some(pong.phase);
            member.facts = pong.facts;
            match pong.counts {
                Some(counts) if counts.follows(&member.counts) => member.counts = *counts,
                // An agent that counts nonsense plays on: its record is judged, not its counts.
                Some(_) => self.counts_refused = self.counts_refused.saturating_add(1),
                None => {}
            }
        }
        self.advance(received_ns);
        true
    }

    /// A ping that nobody answered.
    pub fn unanswered(&mut self, now_ns: u64, index: u16, nobody_listens: bool) {
        let Some(member) = self.members.get_mut(usize::from(index)) else { return };
        member.awaits_pong = false;
        member.next_ping_ns = now_ns.saturating_add(CLOCK_PING_NS);
        // Between its claim and its subscription nobody listens either.
        if nobody_listens && member.heard_ns.is_some() {
            self.abort(format!("{} is lost: nobody answers for it", self.who(index)));
        }
    }

    /// A command that nobody answered: whether it was heard is not known.
    pub fn unanswered_command(&mut self, index: u16) {
        self.abort(format!("{} did not answer a command", self.who(index)));
    }

    /// An agent's answer to a command.
    pub fn replied(&mut self, now_ns: u64, index: u16, command: &Command, reply: Reply) {
        match (command, reply) {
            (_, Reply::Refused(reason)) => {
                self.abort(format!("{} refuses: {}", self.who(index), bounded(reason)));
            }
            (Command::Start { .. }, Reply::Accepted) => {
                if let Some(member) = self.members.get_mut(usize::from(index)) {
                    member.has_confirmed = true;
                }
                self.advance(now_ns);
            }
            (_, Reply::Accepted) => {}
        }
    }

    /// An agent's record was read and passed on, or why the stream has none.
    pub fn fetched(&mut self, now_ns: u64, index: u16, record: Result<(), String>) {
        let Some(block) = &mut self.block else { return };
        match record {
            Ok(()) if self.state == RunState::Published && index == block.fetched => {
                block.fetched += 1;
                if block.fetched < self.spec.slots() {
                    self.orders.push_back(Order::Fetch { index: block.fetched, key: block.key });
                }
                self.advance(now_ns);
            }
            Ok(()) => {}
            Err(reason) => self.abort(format!("the record of {}: {}", self.who(index), bounded(reason))),
        }
    }

    /// Ends the run early: the server is lost, or somebody interrupts.
    pub fn abort(&mut self, reason: String) {
        if self.aborted().is_some() {
            return;
        }
        self.orders.clear();
        let reason = bounded(reason);
        self.orders.push_back(Order::Abort { reason: reason.clone() });
        self.enter(RunState::Aborted(reason));
    }

    /// Pings whom it is time to ping, and ends the run when somebody is silent or a barrier is
    /// late.
    pub fn tick(&mut self, now_ns: u64) {
        if self.aborted().is_some() {
            return;
        }
        if let Some((index, since)) = self.silent(now_ns) {
            return self.abort(format!("{} is lost: {since}", self.who(index)));
        }
        if let Some(reason) = self.is_late(now_ns) {
            return self.abort(reason);
        }
        self.advance(now_ns);
        for (index, member) in (0..).zip(&mut self.members) {
            if member.nonce.is_some() && !member.awaits_pong && now_ns >= member.next_ping_ns {
                member.seq += 1;
                member.awaits_pong = true;
                self.orders.push_back(Order::Ping { index, seq: member.seq });
            }
        }
    }

    /// When [`Coordinator::tick`] has something to do next, at the latest.
    pub fn wakes_ns(&self) -> u64 {
        let members = self.members.iter().filter(|member| member.nonce.is_some());
        let due = members.flat_map(|member| {
            let ping = (!member.awaits_pong).then_some(member.next_ping_ns);
            [Some(deaf_ns(member)), ping].into_iter().flatten()
        });
        due.chain(self.deadline().map(|(at_ns, _)| at_ns)).min().unwrap_or(u64::MAX)
    }

    /// The first agent that is silent for too long, and since when.
    fn silent(&self, now_ns: u64) -> Option<(u16, String)> {
        let silent = |member: &Member| member.nonce.is_some() && now_ns >= deaf_ns(member);
        let (index, member) = (0..).zip(&self.members).find(|(_, member)| silent(member))?;
        let since = match member.heard_ns {
            Some(_) => format!("silent for {} ms", SILENCE_NS / 1_000_000),
            None => format!("silent since its claim, {} s ago", FIRST_PING_NS / 1_000_000_000),
        };
        Some((index, since))
    }

    /// The instant of the barrier that is waited for, and what is said when it is missed.
    fn deadline(&self) -> Option<(u64, &'static str)> {
        let after = |since: u64, wait: u64| since.saturating_add(wait);
        match (&self.state, &self.block) {
            (RunState::Open, _) => {
                Some((after(self.opened_ns, CLAIMS_NS), "agents did not claim their slots"))
            }
            (RunState::Claimed, Some(block)) => {
                Some((after(block.began_ns, PREPARE_NS), "agents did not prepare"))
            }
            (RunState::Prepared, Some(block)) => match block.start_ns {
                None => Some((after(block.began_ns, 2 * PREPARE_NS), "clocks were not compared")),
                Some(start_ns) => Some((start_ns, "agents did not confirm the start")),
            },
            (RunState::Armed, Some(block)) => Some((block.start_ns?, "")),
            (RunState::Running | RunState::Drained | RunState::Published, Some(block)) => {
                let longest = u64::from(block.seconds) * 3_000_000_000 + BLOCK_EXTRA_NS;
                Some((after(block.start_ns?, longest), "agents did not end"))
            }
            _ => None,
        }
    }

    fn is_late(&self, now_ns: u64) -> Option<String> {
        let (_, what) = self.deadline().filter(|(at_ns, _)| now_ns >= *at_ns)?;
        // The start is no barrier that can be missed.
        if self.state == RunState::Armed {
            return None;
        }
        let missing = |member: &Member| match self.state {
            RunState::Open => member.heard_ns.is_none(),
            RunState::Claimed => member.phase.is_none_or(|phase| phase < Phase::Prepared),
            RunState::Prepared => !member.has_confirmed,
            _ => member.phase.is_none_or(|phase| phase < Phase::Published),
        };
        let who = (0..).zip(&self.members).filter(|(_, member)| missing(member)).map(|(i, _): (u16, _)| i);
        let who: Vec<String> = who.take(10).map(|index| self.name(index)).collect();
        Some(format!("{what} in time: {}", who.join(", ")))
    }

    fn advance(&mut self, now_ns: u64) {
        while let Some(next) = self.next_state(now_ns) {
            match next {
                Ok(state) => self.enter(state),
                Err(reason) => return self.abort(reason),
            }
        }
        match self.state {
            RunState::Claimed => self.prepare_players(),
            RunState::Prepared => self.set_start(now_ns),
            RunState::Running => self.stop_relay(),
            _ => {}
        }
    }

    /// The state that follows, or why the run ends.
    fn next_state(&self, now_ns: u64) -> Option<Result<RunState, String>> {
        let all = |reached: fn(&Member) -> bool| self.members.iter().all(reached);
        let past = |member: &Member, phase: Phase| member.phase.is_some_and(|found| found >= phase);
        let all_past = |phase: Phase| self.members.iter().all(|member| past(member, phase));
        let next = match &self.state {
            // Who answers pings hears commands, too.
            RunState::Open => all(|member| member.heard_ns.is_some()).then_some(RunState::Claimed),
            RunState::Claimed if self.block.is_some() && all_past(Phase::Prepared) => {
                return Some(self.agree().map(|()| RunState::Prepared));
            }
            RunState::Prepared => all(|member| member.has_confirmed).then_some(RunState::Armed),
            RunState::Armed => {
                self.block.as_ref()?.start_ns.filter(|start| now_ns >= *start).map(|_| RunState::Running)
            }
            RunState::Running if self.relay_left() => {
                return Some(Err("the relay's agent ended before the players did".to_owned()));
            }
            RunState::Running => all_past(Phase::Drained).then_some(RunState::Drained),
            RunState::Drained => all_past(Phase::Published).then_some(RunState::Published),
            RunState::Published => {
                (self.block.as_ref()?.fetched == self.spec.slots()).then_some(RunState::Merged)
            }
            RunState::Claimed | RunState::Merged | RunState::Aborted(_) => None,
        };
        next.map(Ok)
    }

    fn enter(&mut self, state: RunState) {
        match (&state, &self.block) {
            (RunState::Prepared, _) => {
                for member in &mut self.members {
                    member.offsets.clear();
                    member.next_ping_ns = 0;
                }
            }
            // From now on the clocks show where they have drifted to.
            (RunState::Running, _) => self.members.iter_mut().for_each(|member| member.offsets.clear()),
            (RunState::Merged, _) => self.blocks_merged = self.blocks_merged.saturating_add(1),
            (RunState::Published, Some(block)) => {
                self.orders.push_back(Order::Fetch { index: 0, key: block.key });
            }
            _ => {}
        }
        self.orders.push_back(Order::State(state.clone()));
        self.state = state;
    }

    /// Whether all players have the same plan and the run's events.
    fn agree(&self) -> Result<(), String> {
        let facts: Vec<_> = self.members.iter().map(|member| member.facts.as_ref()).collect();
        for (index, own) in (0..).zip(&facts) {
            let own = own.ok_or_else(|| format!("{} is prepared and states no plan", self.who(index)))?;
            if own.corpus_sha256 != self.spec.identity.corpus_sha256 {
                return Err(format!("{} plays other events than the run", self.who(index)));
            }
            if facts[0].is_some_and(|first| first.plan_sha256 != own.plan_sha256) {
                return Err(format!("{} has another plan than agent 0", self.who(index)));
            }
        }
        Ok(())
    }

    /// Sets the common start once every clock is compared.
    fn set_start(&mut self, now_ns: u64) {
        let Some(block) = &mut self.block else { return };
        if block.start_ns.is_some() || !self.members.iter().all(|member| member.offsets.is_full()) {
            return;
        }
        let start_ns = now_ns.saturating_add(START_AHEAD_NS);
        let mut commands = Vec::with_capacity(self.members.len());
        for (index, member) in (0..).zip(&mut self.members) {
            let best = member.offsets.best().filter(|offset| offset.bound_ns <= BOUND_NS);
            let Some((offset, at_ns)) = best.and_then(|offset| Some((offset, offset.there_ns(start_ns)?)))
            else {
                let who = self.who(index);
                return self.abort(format!("the clock of {who} is not known within 5 ms"));
            };
            member.start_offset = Some(offset);
            commands.push(Order::Command { index, command: Command::Start { at_ns } });
        }
        block.start_ns = Some(start_ns);
        self.orders.extend(commands);
    }
}

fn deaf_ns(member: &Member) -> u64 {
    match member.heard_ns {
        Some(heard_ns) => heard_ns.saturating_add(SILENCE_NS),
        None => member.claimed_ns.saturating_add(FIRST_PING_NS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{claim, spec};

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_claim_counts_once_in_its_run_and_only_while_it_is_open() {
        let mut coordinator = Coordinator::new(spec(2), 0);
        let mine = Claim { spec_sha256: spec(2).sha256(), ..claim() };
        let other = Claim { nonce: mine.nonce + 1, ..mine.clone() };
        assert!(coordinator.claimed(0, 2, &mine).unwrap_err().contains("no such slot"));
        assert!(coordinator.claimed(0, 0, &claim()).unwrap_err().contains("another start"));
        assert_eq!(coordinator.claimed(0, 0, &mine), Ok(()));
        assert!(coordinator.claimed(0, 0, &other).unwrap_err().contains("twice"));
        assert_eq!(coordinator.state(), &RunState::Open);
        assert_eq!(coordinator.claimed(0, 1, &other), Ok(()));
        coordinator.tick(0);
        assert_eq!(coordinator.state(), &RunState::Open, "nobody has answered a ping");
        for (index, nonce) in [(0, mine.nonce), (1, other.nonce)] {
            let (phase, block, facts, failure) = (Phase::Claimed, None, None, None);
            let (arrived_ns, left_ns, counts) = (5, 5, None);
            let pong = Pong { seq: 1, nonce, arrived_ns, left_ns, block, phase, facts, failure, counts };
            let stranger = Pong { nonce: 1, ..pong.clone() };
            assert!(!coordinator.ponged(1, 2, index, stranger), "another process answers for the slot");
            assert!(coordinator.ponged(1, 2, index, pong));
        }
        assert_eq!(coordinator.state(), &RunState::Claimed);
        assert!(coordinator.claimed(0, 1, &other).unwrap_err().contains("late"));
    }

    #[test]
    fn agents_that_do_not_come_are_named() {
        let mut coordinator = Coordinator::new(spec(2), 0);
        assert_eq!(coordinator.wakes_ns(), 60 * S);
        coordinator.tick(60 * S);
        assert_eq!(coordinator.aborted(), Some("agents did not claim their slots in time: 0, 1"));
        while coordinator.next_order().is_some() {}
        coordinator.abort("again".to_owned());
        assert_eq!(coordinator.next_order(), None, "an abort is final");
    }

    #[test]
    fn an_agent_that_claims_its_slot_and_never_answers_is_lost_as_such() {
        let mut coordinator = Coordinator::new(spec(2), 0);
        let mine = Claim { spec_sha256: spec(2).sha256(), ..claim() };
        assert_eq!(coordinator.claimed(S, 1, &mine), Ok(()));
        for at_ns in [S, 10 * S, 11 * S - 1] {
            coordinator.tick(at_ns);
            coordinator.unanswered(at_ns, 1, true);
            assert_eq!(coordinator.aborted(), None, "it may not have subscribed yet");
        }
        coordinator.tick(11 * S);
        assert_eq!(coordinator.aborted(), Some("agent 1 is lost: silent since its claim, 10 s ago"));
    }

    #[test]
    fn a_block_waits_until_the_agents_are_there() {
        let mut coordinator = Coordinator::new(spec(1), 0);
        assert!(coordinator.play(0, &crate::testing::block()).is_err());
        assert_eq!(coordinator.clocks(), None);
    }

    #[test]
    fn a_block_has_a_relay_to_start_where_the_run_has_an_agent_for_it() {
        let refused = Err(SpecError::Value("relay"));
        assert_eq!(Coordinator::new(spec(1), 0).play(0, &crate::testing::relay_block()), refused);
        let with_relay = Spec { has_relay: true, ..spec(1) };
        assert_eq!(Coordinator::new(with_relay, 0).play(0, &crate::testing::block()), refused);
    }
}
