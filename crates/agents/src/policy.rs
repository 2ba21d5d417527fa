//! The limits of an agent's own command line, whatever a coordinator says.

use crate::{
    spec::{Block, Identity, Spec},
    target::Target,
};

/// What an agent agrees to.
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
    pub(crate) fn refuses_run(&self, spec: &Spec, of: u16) -> Option<String> {
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
    pub(crate) fn refuses(&self, block: &Block) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{
        Play,
        tests::{block, identity, spec},
    };

    fn policy() -> Policy {
        Policy {
            targets: vec!["ws://127.0.0.1:1/".parse().unwrap()],
            max_rate_per_s: Some(100),
            starts_relays: false,
            identity: identity(),
        }
    }

    #[test]
    fn what_the_command_line_does_not_allow_is_refused() {
        let refuses = |change: fn(&mut Play)| {
            let mut block = block();
            change(&mut block.play);
            policy().refuses(&block).unwrap_or_default()
        };
        let elsewhere = refuses(|play| play.url = "wss://me:s3cret@relay.example".to_owned());
        let named = "does not allow the target wss://relay.example:443; it allows ws://127.0.0.1:1";
        assert!(elsewhere.contains(named), "{elsewhere}");
        assert!(refuses(|play| play.scenario = "--relay-fault".to_owned()).contains("scenario"));
        assert!(refuses(|play| play.rate_per_s = Some(101)).contains("--max-rate 100"));
        assert_eq!(refuses(|play| play.rate_per_s = Some(100)), "");
        assert_eq!(refuses(|play| play.rate_per_s = None), "", "its player judges the plan");
    }

    #[test]
    fn an_agent_that_starts_relays_plays_against_none() {
        let host = Policy { starts_relays: true, targets: Vec::new(), ..policy() };
        assert!(host.refuses(&block()).unwrap().contains("has one already"));
        let mut starts = block();
        (starts.play.starts_relay, starts.play.url) = (true, String::new());
        assert_eq!(host.refuses(&starts), None);
        assert!(policy().refuses(&starts).unwrap().contains("does not allow the target"));
        assert!(host.refuses_run(&spec(3), 3).unwrap().contains("no agent"));
    }

    #[test]
    fn another_program_corpus_dictionary_or_number_of_agents_takes_no_part() {
        assert_eq!(policy().refuses_run(&spec(3), 3), None);
        assert!(policy().refuses_run(&spec(3), 2).unwrap().contains("3 agents"));
        type Field = fn(&mut Identity) -> &mut String;
        let fields: [(&str, Field); 3] = [
            ("program_sha256", |identity| &mut identity.program_sha256),
            ("corpus_sha256", |identity| &mut identity.corpus_sha256),
            ("dictionary_sha256", |identity| &mut identity.dictionary_sha256),
        ];
        for (name, field) in fields {
            let mut other = policy();
            field(&mut other.identity).push('x');
            assert!(other.refuses_run(&spec(3), 3).unwrap().contains(name), "{name}");
        }
    }
}
