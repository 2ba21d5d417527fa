//! The run that agents must agree on, and their parts in it.

use std::{collections::BTreeMap, fmt, fs::File, io, path::Path, str::FromStr};

use derive_more::Display;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use terms::RelayUrl;

/// Longest name of a run, a scenario or a file of events.
const NAME_BYTES: usize = 128;

/// Longest block: a scenario of 5 KB and a relay's answers are far shorter.
pub(crate) const PLAY_BYTES: usize = 255 << 10;

/// Names a run in subjects and keys: letters, digits, `-` or `_`.
#[derive(Debug, Clone, PartialEq, Eq, Display, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct RunId(String);

impl RunId {
    /// The subject of who looks for the run.
    pub(crate) fn look(&self) -> String {
        format!("nsim.v1.{self}.look")
    }

    /// The object store of its events.
    pub(crate) fn bucket(&self) -> String {
        format!("nsim-{self}")
    }
}

impl TryFrom<String> for RunId {
    type Error = String;

    fn try_from(text: String) -> Result<RunId, String> {
        match is_name(&text, "-_") {
            true => Ok(RunId(text)),
            false => Err(format!("a run is named by 1 to {NAME_BYTES} letters, digits, '-' or '_'")),
        }
    }
}

impl FromStr for RunId {
    type Err = String;

    fn from_str(text: &str) -> Result<RunId, String> {
        RunId::try_from(text.to_owned())
    }
}

/// Whether a text has letters, digits and `others` alone, and begins with a letter or digit.
fn is_name(text: &str, others: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.len() <= NAME_BYTES
        && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

/// Which program and data a process has. Agents and coordinator of a run have the same.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// SHA-256 of the program's file: agents and coordinator are copies of one.
    pub program_sha256: String,
    /// Fingerprint of the events.
    pub corpus_sha256: String,
    /// Fingerprint of the compression dictionaries.
    pub dictionary_sha256: String,
}

impl Identity {
    /// The first difference from `other`, as a reason for people.
    pub(crate) fn difference(&self, other: &Identity) -> Option<String> {
        let pairs = [
            ("program_sha256", &self.program_sha256, &other.program_sha256),
            ("corpus_sha256", &self.corpus_sha256, &other.corpus_sha256),
            ("dictionary_sha256", &self.dictionary_sha256, &other.dictionary_sha256),
        ];
        let (what, own, others) = pairs.into_iter().find(|(_, own, others)| own != others)?;
        Some(format!("the agent has {what} {own:?}, the run {others:?}"))
    }
}

/// The run as all agents know it from the beginning.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The run.
    pub run: RunId,
    /// Drawn at random by the coordinator, so that two starts under one name differ.
    pub nonce: u64,
    /// How many agents play together.
    pub of: u16,
    /// Whether one more agent, in slot `of`, starts the relay of each block.
    pub has_relay: bool,
    /// Program and data.
    pub identity: Identity,
    /// The file of the events, unless every program has them: the name of the object that agents
    /// fetch, under which they keep it.
    pub corpus_file: Option<String>,
}

impl Spec {
    /// How many slots there are; the relay's is the last.
    pub fn slots(&self) -> u16 {
        self.of.saturating_add(u16::from(self.has_relay))
    }

    /// The subject of who claims a slot. Another start of the run has other subjects.
    pub(crate) fn claim(&self, index: impl fmt::Display) -> String {
        format!("nsim.v1.{}.{:016x}.claim.{index}", self.run, self.nonce)
    }

    /// The subject of an agent.
    pub(crate) fn agent(&self, index: u16) -> String {
        format!("nsim.v1.{}.{:016x}.agent.{index}", self.run, self.nonce)
    }

    /// The file of the events, unless its name could lead elsewhere.
    pub(crate) fn corpus_file(&self) -> Option<&str> {
        self.corpus_file.as_deref().filter(|name| is_name(name, "-_."))
    }
}

/// SHA-256 of a file, as hex.
///
/// # Errors
/// When it cannot be read.
pub fn file_sha256(file: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    io::copy(&mut File::open(file)?, &mut hash)?;
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// One play of a scenario: what the agents do together between two barriers, in all words that a
/// player may be told.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Play {
    /// The relay; the agent's own command line must allow it. None until the relay's agent says
    /// where it listens.
    pub url: Option<RelayUrl>,
    /// Whether an agent starts the relay.
    pub starts_relay: bool,
    /// Whether that relay does no Nostr work, and sends prepared answers.
    pub floor: bool,
    /// Name of the scenario.
    pub scenario: String,
    /// Text of the scenario, as TOML, if players do not know it by name.
    pub scenario_toml: Option<String>,
    /// Answers of the relay to probes, for the player to read; empty when nobody asked.
    pub answers: String,
    /// The values of the cell's other factors by their names, which only the player reads.
    pub cell: BTreeMap<String, String>,
    /// Formats that the plan is made comparable with.
    pub comparable_with: Vec<String>,
    /// Whether players tell each second what they count, for who watches.
    pub live: bool,
    /// Events published per second over all agents; otherwise the scenario's own rate.
    pub rate_per_s: Option<u32>,
    /// Decides everything random in the load.
    pub seed: u64,
    /// Duration of the load.
    pub seconds: u32,
    /// Which play of the block it is: players write it into their records, and records of different
    /// plays do not make one.
    pub block_id: String,
}

impl Play {
    /// Why agents refuse the block: it is too long, or the scenario's name, which becomes the name
    /// of a file, could lead elsewhere. A player judges the other values, each in one argument with
    /// its flag, so that none becomes a flag.
    pub fn refusal(&self) -> Option<String> {
        let bytes = json!(self).to_string().len();
        if bytes > PLAY_BYTES {
            return Some(format!(
                "the block has {bytes} bytes, and {PLAY_BYTES} travel: shorten its scenario"
            ));
        }
        let why =
            || format!("{:?} is not a name of a scenario: use letters, digits, '-' and '_'", self.scenario);
        (!is_name(&self.scenario, "-_")).then(why)
    }

    /// The player's flags. The scenario is a name, or the file that holds [`Play::scenario_toml`].
    pub fn arguments(&self, scenario: &str) -> Vec<String> {
        let target = if self.starts_relay { "relay-at" } else { "url" };
        let target = self.url.as_ref().map(|url| format!("--{target}={url}"));
        let mut arguments: Vec<String> = target.into_iter().collect();
        arguments.extend([
            format!("--cell={}", json!(self.cell)),
            format!("--scenario={scenario}"),
            format!("--comparable-with={}", self.comparable_with.join(",")),
            format!("--seed={}", self.seed),
            format!("--seconds={}", self.seconds),
            format!("--block-id={}", self.block_id),
        ]);
        arguments.extend(self.floor.then(|| "--floor".to_owned()));
        arguments.extend(self.live.then(|| "--progress-json".to_owned()));
        arguments.extend(self.rate_per_s.map(|rate| format!("--rate={rate}")));
        arguments
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn identity() -> Identity {
        let [program_sha256, corpus_sha256, dictionary_sha256] =
            ["program", "corpus", "dictionary"].map(str::to_owned);
        Identity { program_sha256, corpus_sha256, dictionary_sha256 }
    }

    pub(crate) fn spec(of: u16) -> Spec {
        let (has_relay, corpus_file) = (false, None);
        Spec { run: "run".parse().unwrap(), nonce: 7, of, has_relay, identity: identity(), corpus_file }
    }

    pub(crate) fn play() -> Play {
        let text = |text: &str| text.to_owned();
        Play {
            url: Some("ws://127.0.0.1:1".parse().unwrap()),
            scenario: text("note-stream"),
            scenario_toml: Some(text("question = \"?\"")),
            answers: text("{}"),
            cell: [("format".to_owned(), "json".to_owned())].into(),
            comparable_with: vec![text("json"), text("capnp")],
            live: true,
            rate_per_s: Some(50),
            seed: 1,
            seconds: 2,
            block_id: text("1"),
            ..Play::default()
        }
    }

    #[test]
    fn runs_scenarios_and_files_of_events_have_names_that_lead_nowhere_else() {
        let long = "x".repeat(NAME_BYTES + 1);
        for name in ["a", "run-1", &long[1..]] {
            assert_eq!(name.parse::<RunId>().unwrap().to_string(), name);
        }
        for name in ["", "a.b", "a b", "*", ">", "é", "-a", "../a", "a/b", "a\n", &long] {
            name.parse::<RunId>().unwrap_err();
            let json = serde_json::to_string(name).unwrap();
            assert!(serde_json::from_str::<RunId>(&json).is_err(), "{name}");
            assert!(Play { scenario: name.to_owned(), ..play() }.refusal().is_some(), "{name}");
            let hostile = Spec { corpus_file: Some(format!(".{name}")), ..spec(1) };
            assert_eq!(hostile.corpus_file(), None, "{hostile:?}");
        }
        assert_eq!(play().refusal(), None);
        let long = Play { scenario_toml: Some("x".repeat(PLAY_BYTES)), ..play() };
        assert!(long.refusal().unwrap().contains("shorten its scenario"));
    }

    #[test]
    fn arguments_hold_each_value_behind_its_flag() {
        let starts = Play { starts_relay: true, floor: true, ..play() };
        for (play, target) in [
            (play(), "--url=ws://127.0.0.1:1"),
            (starts.clone(), "--relay-at=ws://127.0.0.1:1"),
            (Play { url: None, ..starts }, "--floor"),
        ] {
            let arguments = play.arguments("folder/note-stream.toml");
            assert!(arguments.iter().all(|argument| argument.starts_with("--")), "{arguments:?}");
            let cell = r#"--cell={"format":"json"}"#;
            for expected in [target, cell, "--progress-json", "--rate=50", "--block-id=1"] {
                assert!(arguments.iter().any(|argument| argument == expected), "{expected}: {arguments:?}");
            }
        }
    }
}
