//! The limits of an agent's own command line, whatever a coordinator says.

use terms::RelayUrl;

use crate::spec::{Identity, Play, Spec};

/// What an agent agrees to. The player judges what a plan publishes.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Relays that it may play against; none for an agent that starts them.
    pub targets: Vec<RelayUrl>,
    /// It starts the relay of each block.
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
            return Some("no agent starts the relay of this run: run with --relay-agents 1".to_owned());
        }
        self.identity.difference(&spec.identity)
    }

    /// Why the agent does not play this block.
    pub(crate) fn refuses(&self, play: &Play) -> Option<String> {
        let is_allowed = match &play.url {
            Some(url) => self.targets.iter().any(|target| target.is_same_relay(url)),
            None => self.starts_relays,
        };
        let allows = || {
            let asked = play.url.as_ref().map_or_else(|| "that is none".to_owned(), RelayUrl::to_string);
            let allowed: Vec<String> = self.targets.iter().map(RelayUrl::to_string).collect();
            let allowed = allowed.join(", ");
            format!("this agent's command line does not allow the target {asked}; it allows {allowed}")
        };
        play.refusal().or_else(|| (!is_allowed).then(allows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::tests::{identity, play, spec};

    fn policy() -> Policy {
        let targets = vec!["ws://127.0.0.1:1/".parse().unwrap()];
        Policy { targets, starts_relays: false, identity: identity() }
    }

    #[test]
    fn what_the_command_line_does_not_allow_is_refused() {
        let refuses = |policy: Policy, change: fn(&mut Play)| {
            let mut play = play();
            change(&mut play);
            policy.refuses(&play).unwrap_or_default()
        };
        let elsewhere = refuses(policy(), |play| play.url = "wss://me:s3cret@relay.example".parse().ok());
        let named = "does not allow the target wss://relay.example; it allows ws://127.0.0.1:1";
        assert!(elsewhere.contains(named), "{elsewhere}");
        assert!(refuses(policy(), |play| play.scenario = "/etc/passwd".to_owned()).contains("scenario"));
        assert!(refuses(policy(), |play| play.url = None).contains("target"));
        assert_eq!(refuses(policy(), |_| {}), "");
        let host = || Policy { starts_relays: true, targets: Vec::new(), ..policy() };
        assert!(refuses(host(), |_| {}).contains("does not allow"), "it plays against none");
        assert_eq!(refuses(host(), |play| play.url = None), "");
        assert!(host().refuses_run(&spec(3), 3).unwrap().contains("no agent"));
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
