//! Sources of the events: `FILE.provenance.json`, one entry per run of the capture.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};
use wire::RelayUrl;

/// Clocks that are further apart than answers take are named.
const CLOCKS_APART_SECONDS: i64 = 60;

/// Relays commonly refuse events from this on (strfry's `rejectEventsNewerThanSeconds`).
const AHEAD_SECONDS: i64 = 900;

const ABOUT: &str = "Where the events of the file beside this one are from; times are seconds since 1970 (UTC). Ids and \
                     signatures of all events in it were verified.";

/// The file.
#[derive(Debug)]
pub(super) struct Provenance {
    path: PathBuf,
    document: Document,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Document {
    about: String,
    /// Events in the file after the last session.
    events: u64,
    sessions: Vec<Session>,
}

/// One run of the program.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) program: String,
    pub(super) started: i64,
    pub(super) ended: i64,
    pub(super) ended_because: String,
    pub(super) filters: Vec<String>,
    pub(super) compression: String,
    /// Names of the header fields that `--header` added.
    #[serde(default)]
    pub(super) headers: Vec<String>,
    pub(super) events_new: u64,
    pub(super) relays: Vec<RelayReport>,
}

/// One relay's part in one session.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct RelayReport {
    pub(super) url: String,
    /// Software of the relay, from its NIP-11 document.
    pub(super) software: Option<String>,
    pub(super) version: Option<String>,
    /// Its answer to the offer of compression.
    pub(super) extensions: Option<String>,
    pub(super) connections: u64,
    pub(super) requests: u64,
    /// Requests without EOSE.
    pub(super) requests_without_end: u64,
    /// Seconds in which the relay has at least as many events as it sends at once, so that some may
    /// be missing here.
    pub(super) crowded_seconds: u64,
    /// The first of these seconds.
    #[serde(default)]
    pub(super) crowded_examples: Vec<i64>,
    pub(super) events_received: u64,
    pub(super) events_new: u64,
    pub(super) duplicates: u64,
    /// Rejected events by reason.
    pub(super) rejected: BTreeMap<String, u64>,
    pub(super) rejected_examples: Vec<String>,
    pub(super) notices: Vec<String>,
    /// Why it was given up.
    pub(super) failure: Option<String>,
    /// Seconds by which the relay's newest event is ahead of the clock here.
    #[serde(default)]
    pub(super) newest_ahead_seconds: Option<i64>,
    /// Start of this session's requests; earlier sessions have everything before.
    #[serde(default)]
    pub(super) left_out_before: Option<i64>,
    /// Seconds by which the clock here is ahead of the relay's (the Date of its answer).
    #[serde(default)]
    pub(super) clock_ahead_seconds: Option<i64>,
    #[serde(default)]
    pub(super) settled: Vec<Settled>,
}

/// A time range whose events a relay has sent. It is older than late events usually are, so it is not
/// requested again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Settled {
    pub(super) filter: String,
    /// The newest second.
    pub(super) from: i64,
    /// The oldest second; events of it may be missing.
    pub(super) to: i64,
}

impl Provenance {
    /// Reads the provenance, or begins it. `events` is the number in the file of events. If the
    /// provenance states more, or with `again`, nothing is settled.
    pub(super) fn open(events_path: &Path, events: u64, again: bool) -> anyhow::Result<Provenance> {
        let mut path = events_path.as_os_str().to_owned();
        path.push(".provenance.json");
        let path = PathBuf::from(path);
        let mut document = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice::<Document>(&bytes).map_err(|error| {
                anyhow!("{path:?} is not a provenance that this program wrote ({error}); move it away to begin a new one")
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Document::default(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {path:?}")),
        };
        document.about = ABOUT.to_owned();
        if again || events < document.events {
            let relays = document.sessions.iter_mut().flat_map(|session| &mut session.relays);
            relays.for_each(|relay| relay.settled.clear());
        }
        Ok(Provenance { path, document })
    }

    /// The spans that the relay has sent in earlier sessions.
    pub(super) fn settled(&self, url: &RelayUrl) -> Vec<Settled> {
        let url = url.to_string();
        // Earlier versions wrote an address as it was given.
        let is_same = |of: &str| of == url || of.parse().is_ok_and(|of: RelayUrl| of.to_string() == url);
        let relays = self.document.sessions.iter().flat_map(|session| &session.relays);
        relays.filter(|relay| is_same(&relay.url)).flat_map(|relay| relay.settled.iter().cloned()).collect()
    }

    /// Adds a session. Writes the file whole, or keeps the old one, with its mode, owner and links.
    pub(super) fn add(&mut self, session: Session, events: u64) -> anyhow::Result<()> {
        self.document.sessions.push(session);
        self.document.events = events;
        let text = serde_json::to_string_pretty(&self.document)? + "\n";
        measure::write_whole(&self.path, text.as_bytes())
            .with_context(|| format!("cannot write {:?}", self.path))
    }
}

impl RelayReport {
    pub(super) fn for_url(url: &RelayUrl) -> RelayReport {
        RelayReport { url: url.to_string(), ..RelayReport::default() }
    }

    /// An event of that second was not written after all, so nothing older than it is settled
    /// either.
    pub(super) fn unsettle(&mut self, created_at: i64) {
        self.settled.iter_mut().for_each(|span| span.to = span.to.max(created_at));
        self.settled.retain(|span| span.to < span.from);
    }

    /// Which clock is to be doubted, in words.
    fn clocks(&self) -> Option<String> {
        let order = |seconds: i64| if seconds > 0 { "ahead of" } else { "behind" };
        let apart = |seconds: i64| format!("{} s {}", seconds.saturating_abs(), order(seconds));
        let clock = self.clock_ahead_seconds.filter(|ahead| ahead.saturating_abs() > CLOCKS_APART_SECONDS);
        let newest = self.newest_ahead_seconds.filter(|ahead| *ahead > AHEAD_SECONDS);
        let clock = clock.map(|ahead| format!("the clock here is {} the relay's", apart(ahead)));
        clock.or_else(|| newest.map(|ahead| format!("its newest event is {} the clock here", apart(ahead))))
    }
}

impl fmt::Display for RelayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rejected: u64 = self.rejected.values().sum();
        write!(
            f,
            "{}: {} new, {} duplicates, {rejected} rejected, {} requests",
            self.url, self.events_new, self.duplicates, self.requests
        )?;
        for (reason, count) in &self.rejected {
            write!(f, "; {count} × {reason}")?;
        }
        if let Some(words) = self.notices.first() {
            write!(f, "; it said: {words}")?;
        }
        if self.crowded_seconds > 0 {
            write!(
                f,
                "; in {} seconds it has more events than it sends at once, so some are missing: {:?}",
                self.crowded_seconds, self.crowded_examples
            )?;
        }
        if let Some(clocks) = self.clocks() {
            write!(f, "; {clocks}")?;
        }
        if let Some(second) = self.left_out_before {
            write!(f, "; not asked for again: what is before {second} (--again)")?;
        }
        match &self.failure {
            Some(failure) => write!(f, "; given up: {failure}"),
            None => Ok(()),
        }
    }
}
