//! Answers of a relay to a rehearsal: the output of `client-sim doctor --json`.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context;
use codecs::quoted;
use corpus::{Rules, rules::Bound};
use serde::{Deserialize, Serialize};
use wire::Endpoint;

use super::needs::{Needs, OVERLAPPING, SUBSCRIPTIONS};

/// Proof of work of each event, in zero bits of its id (NIP-13).
pub(super) const WORK_BITS: &str = "min_pow_difficulty";

/// Numbers of NIP-11 that a rehearsal reads.
const LIMITS: [&str; 4] = ["max_subscriptions", "max_limit", "default_limit", WORK_BITS];

/// Time for the whole document.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a relay is asked to do.
pub(super) const READ: &str = "answer a small request";
pub(super) const AUTH: &str = "accept AUTH (NIP-42)";
pub(super) const READ_AFTER_AUTH: &str = "answer a small request after AUTH";
pub(super) const RECONCILE: &str = "reconcile (NIP-77)";

/// Prefixes by which relays refuse the rate: some ask for proof of work while many events come.
pub(crate) const RATE: [&str; 2] = ["rate-limited", "pow:"];

/// NIP-11 as far as a run asks for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Info {
    pub name: Option<String>,
    /// The project of its software.
    pub software: Option<String>,
    pub version: Option<String>,
    /// Subprotocol tokens that it names (`wire.tokens`, docs/transport.md).
    pub tokens: Vec<String>,
    /// The numbers of its `limitation`.
    pub limitation: BTreeMap<String, i64>,
}

/// Outcome of one offer in the WebSocket handshake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handshake {
    pub format: String,
    /// The compression that was offered, by its label.
    pub compression: String,
    /// Whether batches were offered.
    pub batched: bool,
    /// The compression by whose label the relay grants the offer, or why it declines.
    pub granted: Result<String, String>,
}

/// All answers of a relay, and what follows for scenarios.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answers {
    pub url: String,
    /// The NIP-11 document, or why there is none.
    pub info: Option<Info>,
    pub no_info: Option<String>,
    /// Why it does not do what it was asked to; `None` where it does.
    pub tried: BTreeMap<String, Option<String>>,
    /// What a plan leaves out.
    pub rules: Rules,
    /// What it has too little of, in words.
    pub bounds: BTreeMap<String, Bound>,
    /// The first refusal of the rate, in the relay's words.
    pub rate: Option<String>,
    /// Zero bits at the start of the id of each event (NIP-13).
    pub work_bits: u8,
    pub handshakes: Vec<Handshake>,
    /// Why nothing can be played, or the rehearsal ended early.
    pub stopped: Option<String>,
    pub corpus_events: usize,
    /// How many events of the corpus are set aside, by reason.
    pub refused_events: BTreeMap<String, u64>,
    pub scenarios: Vec<Verdict>,
    /// Settings to change on the relay.
    pub settings: Vec<String>,
}

/// Whether a scenario can be played.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub scenario: String,
    /// Why it cannot.
    pub reasons: Vec<String>,
}

impl Answers {
    /// Whether the relay does this.
    pub(super) fn does(&self, what: &str) -> bool {
        self.tried.get(what) == Some(&None)
    }

    /// Whether the relay answers a small request, after AUTH if the plan answers a challenge.
    pub(super) fn reads(&self, auth: bool) -> bool {
        self.does(READ) || (auth && self.does(READ_AFTER_AUTH))
    }

    /// The bound on subscriptions that sessions with these needs keep to by waiting for each other.
    pub(crate) fn subscriptions(&self, needs: &Needs) -> Option<&Bound> {
        self.bounds.get(SUBSCRIPTIONS).filter(|bound| bound.most < needs.most(OVERLAPPING))
    }

    /// What a plan with these needs leaves out. One that reads no stored events plays what the relay
    /// only delivers live, and one that reads nothing live what it only stores.
    pub(crate) fn rules(&self, needs: &Needs) -> Rules {
        let mut rules = self.rules.clone();
        if needs.auth {
            rules.kinds.clone_from(&rules.kinds_after_auth);
        }
        rules.kinds.retain(|_, withheld| match (withheld.stored, withheld.live) {
            (false, true) => needs.stored,
            (true, false) => needs.live,
            _ => true,
        });
        rules
    }
}

impl Info {
    /// Fetches and reads the document. Fields of a wrong type count as absent; texts are short, and
    /// harmless to a terminal.
    pub(crate) fn fetch(relay: &Endpoint) -> anyhow::Result<Info> {
        Info::read(&wire::document(relay, PATIENCE)?.text)
    }

    fn read(text: &str) -> anyhow::Result<Info> {
        let document: serde_json::Value =
            serde_json::from_str(text).context("the relay's NIP-11 document is not JSON")?;
        let text = |name: &str| Some(quoted(document[name].as_str()?));
        // A relay that takes nothing would serve nobody: 0 states no limit.
        let number = |name: &str| {
            let limit = document["limitation"][name].as_u64()?.try_into().ok();
            Some((name.to_owned(), limit.filter(|limit: &i64| *limit > 0)?))
        };
        let tokens = document["wire"]["tokens"].as_array().into_iter().flatten();
        Ok(Info {
            name: text("name"),
            software: text("software"),
            version: text("version"),
            tokens: tokens.filter_map(|token| Some(token.as_str()?.to_owned())).collect(),
            limitation: LIMITS.into_iter().filter_map(number).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_as_far_as_its_fields_have_their_types_and_does_no_harm_to_a_terminal() {
        let limitation = r#"{"max_limit":500,"default_limit":0,"max_subscriptions":"many"}"#;
        let document = format!(
            r#"{{"name":7,"software":"\u001b[2J\nrelay\u202e","version":"{}","limitation":{limitation}}}"#,
            "1".repeat(1_000_000)
        );
        let info = Info::read(&document).unwrap();
        assert_eq!((info.name, info.software.as_deref()), (None, Some(r"\u{1b}[2J\nrelay\u{202e}")));
        assert_eq!(info.limitation, [("max_limit".to_owned(), 500)].into());
        let version = info.version.unwrap();
        assert!(version.len() < 300 && version.ends_with("1…"), "{version}");
        assert_eq!(Info::read("[]").unwrap(), Info::default());
        assert!(Info::read("<html>").is_err());
    }
}
