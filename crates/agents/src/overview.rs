//! A run as its coordinator sees it while it lasts, for who watches: nothing of it enters a result.

use measure::LiveCounts;

use crate::message::{Phase, RunState};

/// A run at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// The state of the run.
    pub state: RunState,
    /// Each agent that plays, in order.
    pub agents: Vec<AgentState>,
    /// The agent that starts the relay, where there is one.
    pub relay: Option<AgentState>,
    /// Counts of all agents in the block under way or last played.
    pub block: LiveCounts,
    /// Counts of all agents in the whole run. Its connections are the block's.
    pub run: LiveCounts,
    /// Blocks whose records are all there.
    pub blocks_merged: u64,
    /// Counts of agents that were refused, because no player can count so.
    pub counts_refused: u64,
}

/// State of an agent as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AgentState {
    /// Nobody answers for its slot yet.
    Missing,
    /// It was there, and leaves two pings unanswered.
    Late,
    /// It is so far.
    In(Phase),
}

impl AgentState {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            AgentState::Missing => "missing",
            AgentState::Late => "late",
            AgentState::In(Phase::Claimed) => "claimed",
            AgentState::In(Phase::Preparing) => "preparing",
            AgentState::In(Phase::Prepared) => "prepared",
            AgentState::In(Phase::Armed) => "armed",
            AgentState::In(Phase::Running) => "running",
            AgentState::In(Phase::Drained) => "drained",
            AgentState::In(Phase::Published) => "published",
            AgentState::In(Phase::Stopped) => "stopped",
        }
    }
}

impl Overview {
    /// A run of so many agents of which none is there.
    pub fn open(of: u16) -> Overview {
        Overview {
            state: RunState::Open,
            agents: vec![AgentState::Missing; usize::from(of)],
            relay: None,
            block: LiveCounts::default(),
            run: LiveCounts::default(),
            blocks_merged: 0,
            counts_refused: 0,
        }
    }

    /// The agents that are seen so, from 0.
    pub fn agents_in(&self, seen: AgentState) -> impl Iterator<Item = u16> {
        (0..).zip(&self.agents).filter(move |(_, found)| **found == seen).map(|(index, _)| index)
    }
}
