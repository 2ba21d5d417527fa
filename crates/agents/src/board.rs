//! Everything that the coordinator of a run knows: without socket and clock.

use measure::{AddUp, ClockRecord, LiveCounts};
use terms::RelayUrl;

use crate::{
    clock::{Offset, Offsets},
    message::{Phase, Said, Status, bounded},
    spec::Spec,
    times::{BOUND, ns},
};

/// A run at one instant, for who watches: nothing of it enters a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// How far the run is.
    pub state: Phase,
    /// How far each agent is that plays, in order; `None` while its slot is free.
    pub agents: Vec<Option<Phase>>,
    /// How far the relay's agent is, if there is one.
    pub relay: Option<Option<Phase>>,
    /// Counts of all agents in the block under way or last played.
    pub block: LiveCounts,
}

impl Overview {
    /// The agents that are so far, from 0.
    pub fn agents_in(&self, phase: Option<Phase>) -> impl Iterator<Item = u16> {
        (0..).zip(&self.agents).filter(move |(_, found)| **found == phase).map(|(index, _)| index)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Member {
    /// How far it is with the block; `None` while nobody holds the slot.
    pub(crate) phase: Option<Phase>,
    /// Its record is on the way, and its pongs behind it.
    pub(crate) sends_record: bool,
    said: Said,
    pub(crate) offsets: Offsets,
    /// The offset that its start was computed with.
    start_offset: Option<Offset>,
}

#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) spec: Spec,
    pub(crate) state: Phase,
    /// Why the run ended early.
    pub(crate) aborted: Option<String>,
    /// The players; the relay's agent is the last.
    pub(crate) members: Vec<Member>,
    /// The block under way or last played; 0 before the first.
    pub(crate) block: u32,
}

impl Board {
    pub(crate) fn new(spec: Spec) -> Board {
        let members = (0..spec.slots()).map(|_| Member::default()).collect();
        Board { spec, state: Phase::Storing, aborted: None, members, block: 0 }
    }

    /// An agent as messages for people name it.
    pub(crate) fn who(&self, index: u16) -> String {
        if index < self.spec.of { format!("agent {index}") } else { "the relay's agent".to_owned() }
    }

    /// Gives a slot to an agent.
    pub(crate) fn claim(&mut self, index: u16) -> Result<(), String> {
        let (run, who) = (&self.spec.run, self.who(index));
        let member = self.members.get_mut(usize::from(index));
        let member = member.ok_or_else(|| format!("there is no agent {index} of {}", self.spec.of))?;
        if member.phase.is_some() {
            return Err(format!("{who} of run {run} is there already: another process holds the slot"));
        }
        member.phase = Some(Phase::Claimed);
        Ok(())
    }

    /// Takes what an agent says of itself.
    pub(crate) fn heard(&mut self, index: u16, status: Status) {
        if let Some(reason) = status.failure {
            return self.abort(format!("{}: {reason}", self.who(index)));
        }
        let member = &mut self.members[usize::from(index)];
        // An answer may be overtaken by a later one.
        if status.block == self.block && Some(status.phase) >= member.phase {
            (member.phase, member.said.facts) = (Some(status.phase), status.said.facts);
            // An agent that counts nonsense plays on: its record is judged, not its counts.
            if status.said.counts.follows(&member.said.counts) {
                member.said.counts = status.said.counts;
            }
        }
    }

    pub(crate) fn abort(&mut self, reason: String) {
        if self.aborted.is_none() {
            (self.state, self.aborted) = (Phase::Aborted, Some(bounded(reason)));
        }
    }

    /// Begins a block. Returns its number.
    pub(crate) fn begin(&mut self) -> u32 {
        (self.state, self.block) = (Phase::Claimed, self.block + 1);
        for member in &mut self.members {
            (member.phase, member.start_offset) = (Some(Phase::Claimed), None);
            member.said = Said::default();
        }
        self.block
    }

    /// The address of the relay that the agent of the last slot started.
    pub(crate) fn relay_url(&self) -> Option<RelayUrl> {
        self.members.last()?.said.facts.as_ref()?.url.clone()
    }

    /// Whether all players play one plan over the run's events.
    pub(crate) fn agree(&self) -> Result<(), String> {
        let first = self.members[0].said.facts.as_ref().map(|facts| &facts.plan_sha256);
        for (index, member) in (0..).zip(&self.members) {
            let who = self.who(index);
            let own =
                member.said.facts.as_ref().ok_or_else(|| format!("{who} is prepared and states no plan"))?;
            if own.corpus_sha256 != self.spec.identity.corpus_sha256 {
                return Err(format!("{who} plays other events than the run"));
            }
            if Some(&own.plan_sha256) != first {
                return Err(format!("{who} has another plan than agent 0"));
            }
        }
        Ok(())
    }

    /// The common start by each agent's clock.
    pub(crate) fn starts(&mut self, start_ns: u64) -> Result<Vec<u64>, String> {
        let mut starts = Vec::with_capacity(self.members.len());
        for index in 0..self.spec.slots() {
            let who = self.who(index);
            let member = &mut self.members[usize::from(index)];
            member.start_offset = member.offsets.best().filter(|offset| offset.bound_ns <= ns(BOUND));
            let at_ns = member.start_offset.and_then(|offset| offset.there_ns(start_ns));
            starts.push(at_ns.ok_or_else(|| format!("the clock of {who} is not known within 5 ms"))?);
        }
        Ok(starts)
    }

    /// The agents' clocks in the block that was played, in order.
    pub(crate) fn clocks(&self) -> Vec<ClockRecord> {
        let clock = |member: &Member| {
            let start = member.start_offset?;
            let now = member.offsets.best().unwrap_or(start);
            Some(ClockRecord {
                start_bound_ns: start.bound_ns,
                drift_ns: now.ns.saturating_sub(start.ns),
                drift_bound_ns: now.bound_ns.saturating_add(start.bound_ns),
            })
        };
        self.members.iter().filter_map(clock).collect()
    }

    pub(crate) fn overview(&self) -> Overview {
        let (players, relay) = self.members.split_at(usize::from(self.spec.of));
        let mut block = LiveCounts::default();
        self.members.iter().for_each(|member| block.add_up(&member.said.counts));
        let agents = players.iter().map(|member| member.phase).collect();
        Overview { state: self.state, agents, relay: relay.first().map(|member| member.phase), block }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{message::Facts, spec::tests::spec};

    fn status(phase: Phase, sent: u64) -> Status {
        let facts = Facts { plan_sha256: "plan".to_owned(), corpus_sha256: "corpus".to_owned(), url: None };
        let said = Said { facts: Some(facts), counts: LiveCounts { sent, ..LiveCounts::default() } };
        Status { arrived_ns: 0, left_ns: 0, block: 1, phase, said, failure: None }
    }

    /// A run of two agents in its first block.
    fn board() -> Board {
        let mut board = Board::new(spec(2));
        assert_eq!(board.claim(0), Ok(()));
        assert!(board.claim(0).unwrap_err().contains("another process"));
        assert!(board.claim(2).unwrap_err().contains("no agent 2 of 2"));
        assert_eq!(board.overview().agents, [Some(Phase::Claimed), None]);
        assert_eq!((board.claim(1), board.begin()), (Ok(()), 1));
        board
    }

    #[test]
    fn what_an_agent_says_too_late_or_cannot_count_is_not_taken() {
        let mut board = board();
        board.heard(1, Status { block: 0, ..status(Phase::Drained, 9) });
        assert_eq!(board.overview().agents, [Some(Phase::Claimed); 2]);
        board.heard(1, status(Phase::Running, 5));
        board.heard(1, status(Phase::Armed, 6));
        board.heard(1, status(Phase::Running, u64::MAX));
        let seen = board.overview();
        assert_eq!((seen.agents[1], seen.block.sent), (Some(Phase::Running), 5));
        let failure = Some(format!("x\u{1b}[2J\n{}", "x".repeat(9_000)));
        board.heard(1, Status { failure, ..status(Phase::Running, 0) });
        assert!(
            board
                .aborted
                .as_ref()
                .is_some_and(|why| why.starts_with(r"agent 1: x\u{1b}[2J\nx") && why.len() < 2_000)
        );
        board.abort("another".to_owned());
        assert!(!board.aborted.unwrap().contains("another"), "the first reason stays");
    }

    #[test]
    fn agents_that_do_not_agree_on_the_block_are_named() {
        type Alters = fn(&mut Status);
        let cases: [(Alters, &str); 4] = [
            (|_| {}, ""),
            (|status| status.said.facts = None, "agent 1 is prepared and states no plan"),
            (
                |status| status.said.facts.as_mut().unwrap().corpus_sha256.push('x'),
                "agent 1 plays other events than the run",
            ),
            (
                |status| status.said.facts.as_mut().unwrap().plan_sha256.push('x'),
                "agent 1 has another plan than agent 0",
            ),
        ];
        for (alters, reason) in cases {
            let (mut board, mut other) = (board(), status(Phase::Prepared, 0));
            board.heard(0, other.clone());
            alters(&mut other);
            board.heard(1, other);
            assert_eq!(board.agree().err().unwrap_or_default(), reason);
        }
    }

    #[test]
    fn an_agent_whose_clock_is_not_known_well_enough_has_no_start() {
        let mut board = board();
        board.members[0].offsets.add(Offset { ns: 7, bound_ns: 5_000_000 });
        board.members[1].offsets.add(Offset { ns: -7, bound_ns: 5_000_001 });
        assert_eq!(board.starts(100).unwrap_err(), "the clock of agent 1 is not known within 5 ms");
        board.members[1].offsets.add(Offset { ns: -7, bound_ns: 1 });
        assert_eq!(board.starts(100), Ok(vec![107, 93]));
        board.members[1].offsets.add(Offset { ns: -9, bound_ns: 0 });
        let drifted = ClockRecord { start_bound_ns: 1, drift_ns: -2, drift_bound_ns: 1 };
        assert_eq!(board.clocks()[1], drifted);
    }
}
