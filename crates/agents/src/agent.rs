//! One agent, without socket and clock: what it answers, and what its player is told.

use std::collections::VecDeque;

use measure::LiveCounts;

use crate::{
    message::{Claim, Command, Facts, Phase, Ping, Pong, Reply, bounded},
    spec::{Block, BlockKey, Identity, Spec},
    target::Target,
    times::{FIRST_PING_NS, FURTHEST_START_NS, LEAST_WAIT_NS, PUBLISH_NS, SILENCE_NS, STOP_NS},
};

/// The limits of an agent's own command line, whatever a coordinator says.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Relays that it may play against.
    pub targets: Vec<Target>,
    /// Most events per second that a block may ask for by its rate. What its whole plan publishes,
    /// the player judges.
    pub max_rate_per_s: Option<u32>,
    /// It starts the relay of each block, and plays against none.
    pub starts_relays: bool,
    /// Program and data of this agent.
    pub identity: Identity,
}

impl Policy {
    /// Why the agent takes no part in this run.
    pub fn refuses_run(&self, spec: &Spec, of: u16) -> Option<String> {
        if spec.of != of {
            return Some(format!("the run has {} agents, and this agent was started for {of}", spec.of));
        }
        if self.starts_relays && !spec.has_relay {
            return Some(
                "the relay of this run is started by no agent: run with --relay-agents 1".to_owned(),
            );
        }
        self.identity.difference(&spec.identity)
    }

    /// Why the agent does not play this block.
    pub fn refuses(&self, block: &Block) -> Option<String> {
        if let Err(error) = block.play.check() {
            return Some(error.to_string());
        }
        if self.starts_relays {
            let has_one = !block.play.starts_relay || !block.play.url.is_empty();
            return has_one.then(|| "this agent starts relays, and the block has one already".to_owned());
        }
        if let Some(why) = self.refuses_target(&block.play.url) {
            return Some(format!("this agent's command line does not allow the target {why}"));
        }
        let (most, rate) = (self.max_rate_per_s?, block.play.rate_per_s?);
        (rate > most).then(|| format!("{rate} events/s are above this agent's --max-rate {most}"))
    }

    fn refuses_target(&self, url: &str) -> Option<String> {
        let asked: Target = match url.parse() {
            Ok(asked) => asked,
            Err(error) => return Some(format!("of the run: {error}")),
        };
        let allowed: Vec<String> = self.targets.iter().map(Target::to_string).collect();
        let is_allowed = self.targets.contains(&asked);
        (!is_allowed).then(|| format!("{asked}; it allows {}", allowed.join(", ")))
    }
}

/// How a player ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// Exit code of its process; `None` when a signal ended it.
    pub exit_code: Option<i32>,
    /// The record that it wrote.
    pub record: Vec<u8>,
}

/// Work for the agent's driver.
#[derive(Debug, PartialEq)]
pub enum Output {
    /// Start a player, which prepares this block.
    Prepare(Box<Block>),
    /// Tell the player its time zero, by this machine's monotonic clock.
    Start { at_ns: u64 },
    /// Stop the player.
    Stop,
    /// Publish the record of this block.
    Publish(BlockKey, Ending),
    /// End.
    Leave(Left),
}

/// How an agent's part in a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Left {
    /// The run is over.
    Finished,
    /// The run ended early.
    Stopped {
        /// Why.
        reason: String,
        /// A record that the stream did not confirm, and its block.
        unpublished: Option<(BlockKey, Ending)>,
    },
}

/// An agent that holds a slot. Every `now_ns` is of this machine's monotonic clock.
#[derive(Debug)]
pub struct Agent {
    nonce: u64,
    policy: Policy,
    phase: Phase,
    block: Option<BlockKey>,
    facts: Option<Facts>,
    /// Counts of the player that are still to be told.
    counts: Option<Box<LiveCounts>>,
    start_ns: u64,
    /// The player runs.
    playing: bool,
    /// A record that the stream has not confirmed, and its block.
    unpublished: Option<(BlockKey, Ending)>,
    heard_ns: u64,
    has_heard: bool,
    stopping: Option<Stopping>,
    outputs: VecDeque<Output>,
}

#[derive(Debug)]
struct Stopping {
    reason: String,
    by_ns: u64,
    /// Whether a coordinator is left to fetch a record.
    publishes: bool,
    has_left: bool,
}

impl Agent {
    /// An agent whose claim was accepted.
    pub fn new(claim: &Claim, policy: Policy, now_ns: u64) -> Agent {
        Agent {
            nonce: claim.nonce,
            policy,
            phase: Phase::Claimed,
            block: None,
            facts: None,
            counts: None,
            start_ns: 0,
            playing: false,
            unpublished: None,
            heard_ns: now_ns,
            has_heard: false,
            stopping: None,
            outputs: VecDeque::new(),
        }
    }

    /// How far the agent is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The next thing to do; `None` when there is nothing.
    pub fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Answers a ping. The driver sets `left_ns` when the answer leaves.
    pub fn ping(&mut self, now_ns: u64, ping: Ping) -> Pong {
        (self.heard_ns, self.has_heard) = (now_ns, true);
        self.tick(now_ns);
        Pong {
            seq: ping.seq,
            nonce: self.nonce,
            arrived_ns: now_ns,
            left_ns: now_ns,
            block: self.block,
            phase: self.phase,
            facts: self.facts.clone(),
            failure: self.stopping.as_ref().map(|stopping| stopping.reason.clone()),
            counts: self.counts.take(),
        }
    }

    /// Obeys the coordinator, or refuses and stops.
    pub fn command(&mut self, now_ns: u64, command: Command) -> Reply {
        let refusal = match command {
            _ if self.stopping.is_some() => Some("the agent is stopping".to_owned()),
            Command::Prepare(block) => self.prepare(block),
            Command::Start { at_ns } => self.start(now_ns, at_ns),
            Command::StopRelay => self.stop_relay(),
            Command::Leave => self.leave(),
        };
        match refusal {
            None => Reply::Accepted,
            Some(reason) => {
                self.stop(now_ns, reason.clone(), true);
                Reply::Refused(bounded(reason))
            }
        }
    }

    fn prepare(&mut self, block: Box<Block>) -> Option<String> {
        let between = matches!(self.phase, Phase::Claimed | Phase::Published);
        if !between || self.playing {
            return Some("a block is under way".to_owned());
        }
        if let Some(reason) = self.policy.refuses(&block) {
            return Some(reason);
        }
        if self.block == Some(block.key()) {
            return Some("the block was played before".to_owned());
        }
        (self.phase, self.block, self.facts) = (Phase::Preparing, Some(block.key()), None);
        self.counts = None;
        self.playing = true;
        self.outputs.push_back(Output::Prepare(block));
        None
    }

    fn start(&mut self, now_ns: u64, at_ns: u64) -> Option<String> {
        if self.phase != Phase::Prepared {
            return Some("no block is prepared".to_owned());
        }
        let wait_ns = at_ns.saturating_sub(now_ns);
        if !(LEAST_WAIT_NS..=FURTHEST_START_NS).contains(&wait_ns) {
            return Some(format!("the start is {} ms ahead: too late, or too far", wait_ns / 1_000_000));
        }
        (self.phase, self.start_ns) = (Phase::Armed, at_ns);
        self.outputs.push_back(Output::Start { at_ns });
        None
    }

    /// Its player then ends as one that has played to the end.
    fn stop_relay(&mut self) -> Option<String> {
        if self.phase != Phase::Running || !self.policy.starts_relays {
            return Some("no relay of this agent is played against".to_owned());
        }
        self.outputs.push_back(Output::Stop);
        None
    }

    fn leave(&mut self) -> Option<String> {
        if self.playing || self.phase == Phase::Drained {
            return Some("a block is under way".to_owned());
        }
        self.outputs.push_back(Output::Leave(Left::Finished));
        None
    }

    /// The player waits for its start.
    pub fn prepared(&mut self, facts: Facts) {
        if self.phase == Phase::Preparing {
            (self.phase, self.facts) = (Phase::Prepared, Some(facts));
        }
    }

    /// The player counts so much of its block.
    pub fn counted(&mut self, counts: LiveCounts) {
        if self.playing {
            self.counts = Some(Box::new(counts));
        }
    }

    /// The player has ended, with a record or a reason why it has none.
    pub fn ended(&mut self, now_ns: u64, ending: Result<Ending, String>) {
        self.tick(now_ns);
        if !std::mem::take(&mut self.playing) {
            return;
        }
        let Some(key) = self.block else { return };
        if let Some(stopping) = &mut self.stopping {
            stopping.by_ns = now_ns.saturating_add(PUBLISH_NS);
            let publishes = stopping.publishes;
            if let Ok(ending) = ending {
                self.publish(key, ending, publishes);
            }
            return self.leave_stopped();
        }
        match ending {
            Ok(ending) if self.phase == Phase::Running => {
                self.phase = Phase::Drained;
                self.publish(key, ending, true);
            }
            Ok(ending) => {
                self.stop(
                    now_ns,
                    format!("the player ended with {:?} before its start", ending.exit_code),
                    true,
                );
            }
            Err(reason) => self.stop(now_ns, reason, true),
        }
    }

    /// Keeps a record until the stream has confirmed it.
    fn publish(&mut self, key: BlockKey, ending: Ending, publishes: bool) {
        if publishes {
            self.outputs.push_back(Output::Publish(key, ending.clone()));
        }
        self.unpublished = Some((key, ending));
    }

    /// The stream holds the record.
    pub fn published(&mut self) {
        self.unpublished = None;
        if self.phase == Phase::Drained {
            self.phase = Phase::Published;
        }
        self.leave_stopped();
    }

    /// The coordinator ended the run.
    pub fn aborted(&mut self, now_ns: u64, reason: String) {
        self.stop(now_ns, reason, true);
        self.leave_stopped();
    }

    /// Server or coordinator are lost, the stream refuses the record, or the agent itself was
    /// interrupted.
    pub fn lost(&mut self, now_ns: u64, reason: String) {
        self.stop(now_ns, reason, false);
        self.leave_stopped();
    }

    /// Does what is due.
    pub fn tick(&mut self, now_ns: u64) {
        if self.phase == Phase::Armed && now_ns >= self.start_ns {
            self.phase = Phase::Running;
        }
        if self.stopping.is_none() && now_ns >= self.deaf_ns() {
            let reason = if self.has_heard {
                format!("no ping for {} ms", SILENCE_NS / 1_000_000)
            } else {
                "no ping after the claim: no coordinator is there".to_owned()
            };
            self.lost(now_ns, reason);
        }
        if let Some(stopping) = &mut self.stopping
            && now_ns >= stopping.by_ns
        {
            (self.playing, stopping.publishes) = (false, false);
            self.leave_stopped();
        }
    }

    /// When [`Agent::tick`] has something to do next.
    pub fn wakes_ns(&self) -> u64 {
        let stopped = self.stopping.as_ref().map(|stopping| stopping.by_ns);
        let wakes = stopped.unwrap_or_else(|| self.deaf_ns());
        if self.phase == Phase::Armed { wakes.min(self.start_ns) } else { wakes }
    }

    fn deaf_ns(&self) -> u64 {
        self.heard_ns.saturating_add(if self.has_heard { SILENCE_NS } else { FIRST_PING_NS })
    }

    fn stop(&mut self, now_ns: u64, reason: String, publishes: bool) {
        if let Some(stopping) = &mut self.stopping {
            stopping.publishes &= publishes;
            return;
        }
        let by_ns = now_ns.saturating_add(STOP_NS);
        let reason = bounded(reason);
        self.stopping = Some(Stopping { reason, by_ns, publishes, has_left: false });
        self.phase = Phase::Stopped;
        if self.playing {
            self.outputs.push_back(Output::Stop);
        }
    }

    /// Leaves once the player has ended and its record is published. What failed by itself stays
    /// until its coordinator knows.
    fn leave_stopped(&mut self) {
        if let Some(stopping) = &mut self.stopping
            && !self.playing
            && !(stopping.publishes && self.unpublished.is_some())
            && !std::mem::replace(&mut stopping.has_left, true)
        {
            let (reason, unpublished) = (stopping.reason.clone(), self.unpublished.take());
            self.outputs.push_back(Output::Leave(Left::Stopped { reason, unpublished }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{block, claim, facts, policy, relay_block};

    const MS: u64 = 1_000_000;

    fn agent() -> Agent {
        let mut agent = Agent::new(&claim(), policy(), 0);
        agent.ping(MS, Ping { seq: 1 });
        agent
    }

    fn outputs(agent: &mut Agent) -> Vec<Output> {
        std::iter::from_fn(|| agent.next_output()).collect()
    }

    fn running() -> Agent {
        let mut agent = agent();
        assert_eq!(agent.command(2 * MS, Command::Prepare(Box::new(block()))), Reply::Accepted);
        agent.prepared(facts());
        assert_eq!(agent.command(3 * MS, Command::Start { at_ns: 610 * MS }), Reply::Accepted);
        assert_eq!(agent.ping(600 * MS, Ping { seq: 2 }).phase, Phase::Armed);
        assert_eq!(agent.ping(610 * MS, Ping { seq: 3 }).phase, Phase::Running);
        assert_eq!(outputs(&mut agent).len(), 2, "prepare and start");
        agent
    }

    fn ending() -> Ending {
        Ending { exit_code: Some(0), record: b"{}".to_vec() }
    }

    #[test]
    fn a_block_is_played_and_published_once() {
        let mut agent = running();
        agent.ended(700 * MS, Ok(ending()));
        assert_eq!(outputs(&mut agent), [Output::Publish(block().key(), ending())]);
        agent.ended(700 * MS, Ok(ending()));
        assert_eq!(outputs(&mut agent), [], "an end that is told twice");
        agent.published();
        assert_eq!(agent.phase(), Phase::Published);
        assert_eq!(agent.command(800 * MS, Command::Leave), Reply::Accepted);
        assert_eq!(outputs(&mut agent), [Output::Leave(Left::Finished)]);
    }

    #[test]
    fn what_the_player_counts_is_told_once_and_the_last_with_its_end() {
        let mut agent = running();
        let counts = |sent| LiveCounts { sent, ..LiveCounts::default() };
        agent.counted(counts(1));
        agent.counted(counts(2));
        let told =
            |agent: &mut Agent, seq| agent.ping(610 * MS, Ping { seq }).counts.map(|counts| counts.sent);
        assert_eq!((told(&mut agent, 4), told(&mut agent, 5)), (Some(2), None), "only what changed");
        agent.counted(counts(3));
        agent.ended(620 * MS, Ok(ending()));
        agent.counted(counts(4));
        let pong = agent.ping(630 * MS, Ping { seq: 6 });
        assert_eq!((pong.phase, pong.counts.map(|counts| counts.sent)), (Phase::Drained, Some(3)));
    }

    #[test]
    fn silence_stops_the_load_and_the_agent() {
        let mut agent = running();
        assert_eq!(agent.wakes_ns(), 1_210 * MS);
        agent.tick(1_209 * MS);
        assert_eq!(agent.phase(), Phase::Running);
        agent.tick(1_210 * MS);
        assert_eq!(outputs(&mut agent), [Output::Stop]);
        agent.ended(1_250 * MS, Ok(Ending { exit_code: Some(5), ..ending() }));
        let unpublished = Some((block().key(), Ending { exit_code: Some(5), ..ending() }));
        let reason = "no ping for 600 ms".to_owned();
        assert_eq!(outputs(&mut agent), [Output::Leave(Left::Stopped { reason, unpublished })]);
    }

    #[test]
    fn an_abort_publishes_what_is_there() {
        let mut agent = running();
        agent.aborted(700 * MS, "agent 1 is lost".to_owned());
        agent.aborted(700 * MS, "agent 1 is lost".to_owned());
        assert_eq!(outputs(&mut agent), [Output::Stop]);
        agent.ended(710 * MS, Ok(ending()));
        assert_eq!(outputs(&mut agent), [Output::Publish(block().key(), ending())]);
        agent.published();
        let left = Left::Stopped { reason: "agent 1 is lost".to_owned(), unpublished: None };
        assert_eq!(outputs(&mut agent), [Output::Leave(left)]);
    }

    #[test]
    fn a_record_that_the_stream_does_not_confirm_is_kept() {
        let left = |reason: &str| {
            let unpublished = Some((block().key(), ending()));
            [Output::Leave(Left::Stopped { reason: reason.to_owned(), unpublished })]
        };
        let publishing = || {
            let mut agent = running();
            agent.ended(700 * MS, Ok(ending()));
            assert_eq!(outputs(&mut agent), [Output::Publish(block().key(), ending())]);
            agent
        };
        let mut lost = publishing();
        lost.lost(710 * MS, "disconnected".to_owned());
        assert_eq!(outputs(&mut lost), left("disconnected"));
        let mut late = publishing();
        late.aborted(710 * MS, "agent 1 is lost".to_owned());
        assert_eq!((outputs(&mut late), late.wakes_ns()), (vec![], 1_710 * MS), "it may yet be confirmed");
        late.tick(1_710 * MS);
        assert_eq!(outputs(&mut late), left("agent 1 is lost"));
        let mut stopped = running();
        stopped.aborted(700 * MS, "agent 1 is lost".to_owned());
        stopped.ended(1_600 * MS, Ok(ending()));
        outputs(&mut stopped);
        assert_eq!(stopped.wakes_ns(), 2_600 * MS, "the way to the stream has a second of its own");
        stopped.lost(1_700 * MS, "disconnected".to_owned());
        assert_eq!(outputs(&mut stopped), left("agent 1 is lost"));
        let mut published = publishing();
        published.published();
        published.lost(710 * MS, "disconnected".to_owned());
        assert!(matches!(
            &outputs(&mut published)[..],
            [Output::Leave(Left::Stopped { unpublished: None, .. })]
        ));
    }

    #[test]
    fn a_player_that_does_not_stop_is_left() {
        let mut agent = running();
        agent.lost(700 * MS, "disconnected".to_owned());
        assert_eq!(outputs(&mut agent), [Output::Stop]);
        agent.tick(agent.wakes_ns());
        let left = Left::Stopped { reason: "disconnected".to_owned(), unpublished: None };
        assert_eq!(outputs(&mut agent), [Output::Leave(left)]);
    }

    #[test]
    fn what_the_command_line_does_not_allow_is_refused() {
        let refused = |policy: Policy, block: Block| {
            let mut agent = Agent::new(&claim(), policy, 0);
            let reply = agent.command(MS, Command::Prepare(Box::new(block)));
            let Reply::Refused(reason) = reply else { panic!("{reply:?}") };
            assert_eq!((agent.phase(), agent.next_output()), (Phase::Stopped, None), "nothing was started");
            reason
        };
        let mut elsewhere = block();
        elsewhere.play.url = "wss://relay.example".to_owned();
        let why = refused(policy(), elsewhere);
        let named = "does not allow the target wss://relay.example:443; it allows ws://127.0.0.1:1";
        assert!(why.contains(named), "{why}");
        let mut with_password = block();
        with_password.play.url = "ws://me:s3cret@127.0.0.2:1".to_owned();
        assert!(!refused(policy(), with_password).contains("s3cret"));
        let mut hostile = block();
        hostile.play.cell.insert("format".to_owned(), "--relay-fault".to_owned());
        assert!(refused(policy(), hostile).contains("cell"));
        let limited = Policy { max_rate_per_s: Some(100), ..policy() };
        let mut fast = block();
        fast.play.rate_per_s = Some(101);
        assert!(refused(limited.clone(), fast.clone()).contains("--max-rate 100"));
        for judged_by_the_player in [None, Some(100)] {
            fast.play.rate_per_s = judged_by_the_player;
            assert_eq!(limited.refuses(&fast), None);
        }
    }

    #[test]
    fn an_agent_that_starts_relays_plays_against_none_and_ends_when_it_is_told() {
        let policy = Policy { starts_relays: true, targets: Vec::new(), ..policy() };
        let start = |block| {
            let mut agent = Agent::new(&claim(), policy.clone(), 0);
            let reply = agent.command(MS, Command::Prepare(Box::new(block)));
            (agent, reply)
        };
        assert!(matches!(start(block()).1, Reply::Refused(reason) if reason.contains("has one already")));
        let (mut agent, reply) = start(relay_block());
        assert_eq!(reply, Reply::Accepted);
        agent.prepared(facts());
        assert_eq!(agent.command(2 * MS, Command::Start { at_ns: 610 * MS }), Reply::Accepted);
        agent.ping(610 * MS, Ping { seq: 1 });
        outputs(&mut agent);
        assert_eq!(agent.command(700 * MS, Command::StopRelay), Reply::Accepted);
        assert_eq!((outputs(&mut agent), agent.phase()), (vec![Output::Stop], Phase::Running));
        agent.ended(710 * MS, Ok(ending()));
        assert_eq!(outputs(&mut agent), [Output::Publish(block().key(), ending())]);
        assert!(matches!(running().command(700 * MS, Command::StopRelay), Reply::Refused(_)), "no relay");
        assert!(
            matches!(policy.refuses_run(&crate::testing::spec(3), 3), Some(why) if why.contains("no agent"))
        );
        let refused = Policy { starts_relays: false, ..policy }.refuses(&relay_block());
        assert!(refused.is_some_and(|why| why.contains("does not allow the target")), "no URL is allowed");
    }

    #[test]
    fn commands_out_of_order_are_refused() {
        let start = Command::Start { at_ns: 1_000 * MS };
        assert!(matches!(agent().command(2 * MS, start.clone()), Reply::Refused(_)));
        assert!(matches!(running().command(611 * MS, start), Reply::Refused(_)));
        assert!(matches!(running().command(611 * MS, Command::Leave), Reply::Refused(_)));
        let again = Command::Prepare(Box::new(block()));
        assert!(matches!(running().command(611 * MS, again.clone()), Reply::Refused(_)));
        let mut done = running();
        done.ended(700 * MS, Ok(ending()));
        done.published();
        assert!(matches!(done.command(701 * MS, again), Reply::Refused(_)), "a second load");
    }

    #[test]
    fn a_start_too_near_for_its_player_or_too_far_is_refused() {
        for (at_ns, fine) in [(0, false), (601, false), (602, true), (60_002, true), (60_003, false)] {
            let mut agent = agent();
            agent.command(2 * MS, Command::Prepare(Box::new(block())));
            agent.prepared(facts());
            let reply = agent.command(2 * MS, Command::Start { at_ns: at_ns * MS });
            assert_eq!(reply == Reply::Accepted, fine, "{at_ns} ms: {reply:?}");
        }
    }

    #[test]
    fn another_program_corpus_dictionary_or_number_of_agents_takes_no_part() {
        let spec = crate::testing::spec(3);
        assert_eq!(policy().refuses_run(&spec, 3), None);
        assert!(policy().refuses_run(&spec, 2).unwrap().contains("3 agents"));
        type Field = fn(&mut Identity) -> &mut String;
        let fields: [(&str, Field); 3] = [
            ("program_sha256", |identity| &mut identity.program_sha256),
            ("corpus_sha256", |identity| &mut identity.corpus_sha256),
            ("dictionary_sha256", |identity| &mut identity.dictionary_sha256),
        ];
        for (name, field) in fields {
            let mut other = policy();
            *field(&mut other.identity) = "other".to_owned();
            let refusal = other.refuses_run(&spec, 3).unwrap();
            assert!(refusal.contains(name), "{name}: {refusal}");
        }
    }
}
