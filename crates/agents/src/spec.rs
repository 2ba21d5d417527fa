//! The run that agents must agree on, and their parts in it.

use std::{collections::BTreeMap, fmt, fs::File, io, path::Path, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

/// Longest name of a run: a subject of NATS holds it several times over.
const RUN_ID_BYTES: usize = 64;

/// Longest name or number in a [`Play`]; a compression with all its parameters is shorter.
const WORD_BYTES: usize = 256;

/// Longest URL of a relay.
const URL_BYTES: usize = 2_048;

/// Longest scenario: the longest of this repository has 5 KB.
const SCENARIO_BYTES: usize = 64 << 10;

/// Longest answers of a relay.
const ANSWERS_BYTES: usize = 64 << 10;

/// Most formats that a plan is made comparable with.
const FORMATS: usize = 64;

/// Most factors of a cell.
const FACTORS: usize = 64;

/// Largest file of events that travels: some 100,000 events, compressed. Over 10 Mbit/s an agent
/// has it within the minute for claiming a slot.
pub const CORPUS_FILE_BYTES: u64 = 64 << 20;

/// Longest ending of a file's name: that of a batch in the format with the longest name is shorter.
const EXTENSION_BYTES: usize = 32;

/// Longest block: a day.
const SECONDS: u32 = 86_400;

/// Names a run in subjects and keys: 1 to 64 letters, digits, `-` or `_`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
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

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for RunId {
    type Error = SpecError;

    fn try_from(text: String) -> Result<RunId, SpecError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if (1..=RUN_ID_BYTES).contains(&text.len()) && text.chars().all(plain) {
            return Ok(RunId(text));
        }
        Err(SpecError::RunId)
    }
}

impl FromStr for RunId {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<RunId, SpecError> {
        RunId::try_from(text.to_owned())
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> String {
        id.0
    }
}

/// Which program and data a process has. Agents and coordinator of a run have the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// The file of a run's events, which agents fetch that have not these events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorpusFile {
    /// SHA-256 of its bytes, as hex. Another file may hold the same events.
    pub sha256: String,
    /// Its length.
    pub bytes: u64,
    /// The ending of its name, which says how events are laid out, as in `.jsonl.zst`.
    pub extension: String,
}

impl CorpusFile {
    /// Checks every value, so that none names a file elsewhere or fills a disk.
    ///
    /// # Errors
    /// Names the first value that is not allowed.
    pub fn check(&self) -> Result<(), SpecError> {
        let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        if self.sha256.len() != 64 || !self.sha256.chars().all(is_hex) {
            return Err(SpecError::Value("corpus_file.sha256"));
        }
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        let is_ending =
            |ending: &str| (1..EXTENSION_BYTES).contains(&ending.len()) && ending.chars().all(plain);
        if !self.extension.strip_prefix('.').is_some_and(is_ending) {
            return Err(SpecError::Value("corpus_file.extension"));
        }
        match self.bytes {
            0..=CORPUS_FILE_BYTES => Ok(()),
            bytes => Err(SpecError::CorpusTooLarge { bytes }),
        }
    }

    /// The name under which an agent keeps it.
    pub fn name(&self) -> String {
        format!("{}{}", self.sha256, self.extension)
    }
}

/// The run as all agents know it from the beginning. Its hash names this start of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The file of the events, unless every program has them.
    pub corpus_file: Option<CorpusFile>,
}

impl Spec {
    /// How many slots there are; the relay's is the last.
    pub fn slots(&self) -> u16 {
        self.of.saturating_add(u16::from(self.has_relay))
    }

    /// The subject of who claims a slot. Those of another start of the run have other names.
    pub(crate) fn claim(&self, index: impl fmt::Display) -> String {
        format!("nsim.v1.{}.{:016x}.claim.{index}", self.run, self.nonce)
    }

    /// The subject of an agent.
    pub(crate) fn agent(&self, index: u16) -> String {
        format!("nsim.v1.{}.{:016x}.agent.{index}", self.run, self.nonce)
    }
}

/// SHA-256 of a file, as hex, and its length.
///
/// # Errors
/// When it cannot be read.
pub fn file_sha256(file: &Path) -> io::Result<(String, u64)> {
    let mut hash = Sha256::new();
    let bytes = io::copy(&mut File::open(file)?, &mut hash)?;
    Ok((hex(&hash.finalize()), bytes))
}

/// Bytes of a hash as people and messages have them.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One play of a scenario: what the agents do together between two barriers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// Which round of the plan, from 0.
    pub round: u32,
    /// Which place in the round, from 0.
    pub position: u32,
    /// The player's part.
    pub play: Play,
}

impl Block {
    /// Round and position, which no other block of the run has.
    pub fn key(&self) -> BlockKey {
        BlockKey { round: self.round, position: self.position }
    }
}

/// Names a block within a run. Each block's is greater than those before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockKey {
    /// Which round of the run, from 0; those of a pilot are counted, too.
    pub round: u32,
    /// Which place in the round, from 0.
    pub position: u32,
}

impl fmt::Display for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.round, self.position)
    }
}

/// All words that a player may be told.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Play {
    /// The relay, `ws://…` or `wss://…`; the agent's own command line must allow it. Empty until the
    /// relay's agent says where it listens.
    pub url: String,
    /// Whether an agent starts the relay.
    pub starts_relay: bool,
    /// Whether that relay does no Nostr work, and sends prepared answers.
    pub floor: bool,
    /// Name of the scenario.
    pub scenario: String,
    /// Text of the scenario, as TOML, when it is none that every player knows by name.
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
    /// Checks every value, so that none is longer than it may be or could be read as a flag.
    ///
    /// # Errors
    /// Names the first value that is not allowed.
    pub fn check(&self) -> Result<(), SpecError> {
        let formats = self.comparable_with.iter().map(|word| ("comparable-with", word));
        let factors = self.cell.iter().flat_map(|(name, value)| [("cell", name), ("cell", value)]);
        let own = [("scenario", &self.scenario), ("block-id", &self.block_id)];
        for (flag, word) in own.into_iter().chain(formats).chain(factors) {
            if !is_word(word) {
                return Err(SpecError::Value(flag));
            }
        }
        if self.cell.len() > FACTORS {
            return Err(SpecError::Value("cell"));
        }
        // The scenario's name becomes the name of a file.
        if self.scenario.contains([':', '=', '.']) {
            return Err(SpecError::Value("scenario"));
        }
        let starts = self.starts_relay && self.url.is_empty();
        let url = starts || self.url.starts_with("ws://") || self.url.starts_with("wss://");
        if !url || self.url.len() > URL_BYTES || self.url.contains(|c: char| c.is_control() || c == ' ') {
            return Err(SpecError::Value("url"));
        }
        if self.scenario_toml.as_ref().is_some_and(|text| text.len() > SCENARIO_BYTES) {
            return Err(SpecError::Value("scenario_toml"));
        }
        if self.answers.len() > ANSWERS_BYTES {
            return Err(SpecError::Value("answers"));
        }
        if self.comparable_with.len() > FORMATS {
            return Err(SpecError::Value("comparable-with"));
        }
        if !(1..=SECONDS).contains(&self.seconds) {
            return Err(SpecError::Value("seconds"));
        }
        Ok(())
    }

    /// The player's flags, each in one argument with its value, so that no value becomes a flag.
    /// The scenario is a name, or the file that holds [`Play::scenario_toml`].
    pub fn arguments(&self, scenario: &str) -> Vec<String> {
        let target = if self.starts_relay { "relay-at" } else { "url" };
        let target = (!self.url.is_empty()).then(|| format!("--{target}={}", self.url));
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

/// A name or number with parameters, as in `deflate:level=6`.
fn is_word(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:=+".contains(c);
    (1..=WORD_BYTES).contains(&word.len()) && word.chars().all(plain) && !word.starts_with('-')
}

/// Why a value in a spec is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The name of a run.
    #[error("a run is named by 1 to 64 letters, digits, '-' or '_'")]
    RunId,
    /// A flag or a field of [`Play`], or a field of [`CorpusFile`].
    #[error("the value of {0} is not allowed")]
    Value(&'static str),
    /// Agents would have to fetch too much.
    #[error(
        "the run's events have {bytes} bytes, and at most {CORPUS_FILE_BYTES} travel: compress the file \
         (`corpus convert`), or copy it to every agent and start these with --corpus"
    )]
    CorpusTooLarge { bytes: u64 },
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

    pub(crate) fn block() -> Block {
        let text = |text: &str| text.to_owned();
        let play = Play {
            url: text("ws://127.0.0.1:1"),
            scenario: text("note-stream"),
            scenario_toml: Some(text("question = \"?\"")),
            answers: text("{}"),
            cell: [("format".to_owned(), "json".to_owned())].into(),
            comparable_with: vec![text("json"), text("capnp")],
            live: true,
            seed: 1,
            seconds: 2,
            block_id: text("1"),
            ..Play::default()
        };
        Block { round: 0, position: 0, play }
    }

    #[test]
    fn a_run_is_named_by_plain_characters() {
        for name in ["a", "run-1", &"x".repeat(64)] {
            assert_eq!(name.parse::<RunId>().unwrap().to_string(), name);
        }
        for name in ["", "a.b", "a b", "*", ">", "é", &"x".repeat(65)] {
            assert_eq!(name.parse::<RunId>(), Err(SpecError::RunId), "{name}");
            let json = serde_json::to_string(name).unwrap();
            assert!(serde_json::from_str::<RunId>(&json).is_err(), "{name}");
        }
    }

    #[test]
    fn a_value_that_is_no_word_is_refused() {
        let good = block().play;
        assert_eq!(good.check(), Ok(()));
        let hostile = ["", "--record", "a b", "a\n", "a/b", "é", &"x".repeat(257)];
        for text in hostile.map(str::to_owned) {
            for (field, play) in [
                ("cell", Play { cell: [("format".to_owned(), text.clone())].into(), ..good.clone() }),
                ("cell", Play { cell: [(text.clone(), "json".to_owned())].into(), ..good.clone() }),
                ("scenario", Play { scenario: text.clone(), ..good.clone() }),
                ("block-id", Play { block_id: text.clone(), ..good.clone() }),
                ("comparable-with", Play { comparable_with: vec![text.clone()], ..good.clone() }),
            ] {
                assert_eq!(play.check(), Err(SpecError::Value(field)));
            }
        }
        let many = (0..=FACTORS).map(|n| (format!("f{n}"), "x".to_owned())).collect();
        let started = Play { starts_relay: true, url: String::new(), ..good.clone() };
        assert_eq!(started.check(), Ok(()), "its agent says where it listens");
        for (field, play) in [
            ("scenario", Play { scenario: "..".to_owned(), ..good.clone() }),
            ("url", Play { url: "http://a".to_owned(), ..good.clone() }),
            ("url", Play { url: String::new(), ..good.clone() }),
            ("cell", Play { cell: many, ..good.clone() }),
            ("url", Play { url: "ws://a --record=x".to_owned(), ..good.clone() }),
            ("scenario_toml", Play { scenario_toml: Some("x".repeat(SCENARIO_BYTES + 1)), ..good.clone() }),
            ("answers", Play { answers: "x".repeat(ANSWERS_BYTES + 1), ..good.clone() }),
            ("seconds", Play { seconds: 0, ..good.clone() }),
            ("seconds", Play { seconds: u32::MAX, ..good.clone() }),
        ] {
            assert_eq!(play.check(), Err(SpecError::Value(field)));
        }
    }

    #[test]
    fn a_file_of_events_elsewhere_or_too_large_is_refused() {
        let good =
            CorpusFile { sha256: "0f".repeat(32), bytes: CORPUS_FILE_BYTES, extension: ".pb.gz".to_owned() };
        assert_eq!((good.check(), good.name()), (Ok(()), format!("{}.pb.gz", "0f".repeat(32))));
        for sha256 in [String::new(), "../../x".to_owned(), "0F".repeat(32), "0f".repeat(33), "é".repeat(32)]
        {
            let hostile = CorpusFile { sha256, ..good.clone() };
            assert_eq!(hostile.check(), Err(SpecError::Value("corpus_file.sha256")), "{hostile:?}");
        }
        for extension in ["", ".", "jsonl", "./x", ".\0", ".JSONL", &format!(".{}", "x".repeat(32))] {
            let hostile = CorpusFile { extension: extension.to_owned(), ..good.clone() };
            assert_eq!(hostile.check(), Err(SpecError::Value("corpus_file.extension")), "{hostile:?}");
        }
        let reason = CorpusFile { bytes: CORPUS_FILE_BYTES + 1, ..good }.check().unwrap_err().to_string();
        for expected in ["67108865 bytes", "67108864", "corpus convert", "--corpus"] {
            assert!(reason.contains(expected), "{expected}: {reason}");
        }
    }

    #[test]
    fn arguments_hold_each_value_behind_its_flag() {
        let play = Play { rate_per_s: Some(50), live: true, ..block().play };
        let arguments = play.arguments("folder/note-stream.toml");
        assert!(arguments.iter().all(|argument| argument.starts_with("--")), "{arguments:?}");
        for expected in [
            "--url=ws://127.0.0.1:1",
            r#"--cell={"format":"json"}"#,
            "--progress-json",
            "--rate=50",
            "--block-id=1",
        ] {
            assert!(arguments.iter().any(|argument| argument == expected), "{expected}: {arguments:?}");
        }
    }

    #[test]
    fn a_relay_is_started_by_its_settings_and_played_against_by_the_same_and_its_url() {
        let starts = Play { starts_relay: true, floor: true, url: String::new(), ..block().play };
        let settings = [r#"--cell={"format":"json"}"#, "--floor"];
        for play in [starts.clone(), Play { url: "ws://a:1".to_owned(), ..starts }] {
            let arguments = play.arguments("note-stream");
            let has = |argument: &str| arguments.iter().any(|one| one == argument);
            assert!(settings.iter().all(|setting| has(setting)), "{arguments:?}");
            assert_eq!(has("--relay-at=ws://a:1"), !play.url.is_empty(), "{arguments:?}");
            assert!(!arguments.iter().any(|one| one.starts_with("--url")), "{arguments:?}");
        }
    }

    #[test]
    fn an_unknown_field_is_refused() {
        let mut json = serde_json::to_value(block()).unwrap();
        json["play"]["record"] = "/etc/passwd".into();
        assert!(serde_json::from_value::<Block>(json).is_err());
    }
}
