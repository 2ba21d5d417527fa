//! The agent that starts the relay of each block: what it is told before and after the players.

use super::{Coordinator, Member, Order};
use crate::message::{Command, Phase};

impl Coordinator {
    /// An agent as messages for people name it.
    pub(super) fn who(&self, index: u16) -> String {
        if index < self.spec.of { format!("agent {index}") } else { self.name(index) }
    }

    /// An agent in a list of agents.
    pub(super) fn name(&self, index: u16) -> String {
        if index < self.spec.of { index.to_string() } else { "the relay's agent".to_owned() }
    }

    pub(super) fn relay(&self) -> Option<&Member> {
        self.members.get(usize::from(self.spec.of))
    }

    /// Has the players prepare once the relay listens.
    pub(super) fn prepare_players(&mut self) {
        let is_prepared = |member: &&Member| member.phase.is_some_and(|phase| phase >= Phase::Prepared);
        let Some(facts) = self.relay().filter(is_prepared).map(|relay| relay.facts.clone()) else { return };
        let Some(mut block) = self.block.as_mut().and_then(|block| block.waiting.take()) else { return };
        block.play.url = facts.and_then(|facts| facts.url).unwrap_or_default();
        if block.play.url.is_empty() || block.play.check().is_err() {
            return self.abort("the relay's agent does not say where the relay is reached".to_owned());
        }
        self.prepare(0..self.spec.of, &block);
    }

    /// Tells the relay's agent once that every player is done.
    pub(super) fn stop_relay(&mut self) {
        let is_played = self.relay().is_some_and(|relay| relay.phase == Some(Phase::Running));
        let is_done = |member: &Member| member.phase.is_some_and(|phase| phase >= Phase::Drained);
        let are_done = self.members.iter().take(usize::from(self.spec.of)).all(is_done);
        let Some(block) = self.block.as_mut().filter(|block| is_played && are_done && !block.stops_relay)
        else {
            return;
        };
        block.stops_relay = true;
        self.orders.push_back(Order::Command { index: self.spec.of, command: Command::StopRelay });
    }

    /// Whether the relay's agent ended its part without being told.
    pub(super) fn relay_left(&self) -> bool {
        let has_ended =
            self.relay().and_then(|relay| relay.phase).is_some_and(|phase| phase >= Phase::Drained);
        has_ended && self.block.as_ref().is_some_and(|block| !block.stops_relay)
    }
}
