//! The reasons why a ledger does not balance: each delivery that was lost, doubled, altered or not owed,
//! with the relay's words.
//!
//! Five of each sort are kept to be printed. The file of `--ledger` gets every one at once.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    fmt::{self, Write as _},
    fs::File,
    io::{self, BufWriter, Write},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use codecs::{ClientMessage, Filter, Format, Implementation, hex, quoted};
use serde::Serialize;

/// Incidents of one kind that are named on standard error.
const NAMED: usize = 5;

/// Texts of the relay that are kept, each cut to [`TEXT_CHARS`].
const TEXTS: usize = 10_000;
const TEXT_CHARS: usize = 300;

/// Faults of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wrong {
    /// Owed, and did not come.
    Lost,
    /// Came more than once.
    Duplicated,
    /// Came with other content than was published.
    Altered,
    /// Came under the id of a subscription that did not ask for it.
    Misrouted,
    /// Nobody published it.
    Invented,
    /// Came and was not owed: of a refused publication, or behind EOSE or CLOSED.
    Unexpected,
}

impl Wrong {
    pub const ALL: [Wrong; 6] = [
        Wrong::Lost,
        Wrong::Duplicated,
        Wrong::Altered,
        Wrong::Misrouted,
        Wrong::Invented,
        Wrong::Unexpected,
    ];
}

/// One wrong delivery: a line of the file of `--ledger`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Incident {
    pub wrong: Wrong,
    /// Whether it came when stored events were sent once before the clock started.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub before_start: bool,
    /// The number of the client's connection in the plan.
    pub connection: usize,
    /// The event's id in hex.
    pub id: String,
    /// The event's kind; `null` where the relay only named its id (NIP-77).
    pub kind: Option<u16>,
    /// The id of the subscription.
    pub subscription: String,
    /// The filter of the subscription; `null` for one that was not opened.
    pub filter: Option<serde_json::Value>,
    /// The last that the relay said of it: CLOSED of the subscription, OK to the event, or else the
    /// last NOTICE on the connection.
    pub relay_said: Option<String>,
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Incident { id, kind, subscription, connection, .. } = self;
        write!(f, "{id}")?;
        kind.iter().try_for_each(|kind| write!(f, " of kind {kind}"))?;
        write!(f, " for {}", quoted(subscription))?;
        if let Some(filter) = &self.filter {
            write!(f, " {filter}")?;
        }
        write!(f, " on connection {connection}")?;
        self.relay_said.iter().try_for_each(|said| write!(f, "; the relay said {}", quoted(said)))
    }
}

/// Subject of a text of the relay.
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum About {
    /// CLOSED: a connection and its subscription.
    Subscription(usize, String),
    /// OK.
    Event([u8; 32]),
    /// NOTICE.
    Connection(usize),
}

/// The incidents of a run, from all its clients.
#[derive(Debug, Default)]
pub struct Incidents(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    before_start: bool,
    named: Vec<Incident>,
    /// Counts of the run, and of the time before its start.
    counts: [[u64; Wrong::ALL.len()]; 2],
    lost_by_kind: BTreeMap<u16, u64>,
    said: HashMap<About, String>,
    file: Option<Ledger>,
    /// Why a line could not be written.
    failed: Option<io::Error>,
}

/// The file of `--ledger`, made anew by the first incident or at the end: a run that measures
/// nothing leaves what was there.
#[derive(Debug)]
struct Ledger {
    path: PathBuf,
    file: Option<BufWriter<File>>,
}

impl Ledger {
    fn open(&mut self) -> io::Result<&mut BufWriter<File>> {
        match &mut self.file {
            Some(file) => Ok(file),
            none => Ok(none.insert(BufWriter::new(File::create(&self.path)?))),
        }
    }
}

impl Incidents {
    /// Incidents before the start of a run. A missing delivery is not a loss there, because a relay may
    /// bound its answer to one filter.
    pub fn before_start() -> Incidents {
        Incidents(Mutex::new(Kept { before_start: true, ..Kept::default() }))
    }

    /// Takes what is added from now on as the run's.
    pub fn start(&self) {
        let mut kept = self.kept();
        kept.before_start = false;
        kept.said.clear();
    }

    /// Writes every incident from now on as a line of JSON into a file of this name.
    pub fn write_to(&self, path: PathBuf) {
        self.kept().file = Some(Ledger { path, file: None });
    }

    /// Ends the file.
    ///
    /// # Errors
    /// When a line could not be written.
    pub fn finish(&self) -> io::Result<()> {
        let mut kept = self.kept();
        if let Some(error) = kept.failed.take() {
            return Err(error);
        }
        kept.file.as_mut().map_or(Ok(()), |file| file.open()?.flush())
    }

    /// Keeps what the relay said; a later text about the same replaces an earlier one.
    pub fn said(&self, about: About, text: &str) {
        let mut kept = self.kept();
        if kept.said.len() < TEXTS || kept.said.contains_key(&about) {
            kept.said.insert(about, text.chars().take(TEXT_CHARS).collect());
        }
    }

    /// Adds a wrong delivery of an event to a subscription of a connection.
    pub fn add<'f>(
        &self,
        wrong: Wrong,
        (id, kind): (&[u8; 32], Option<u16>),
        (connection, subscription): (usize, &str),
        filter: impl FnOnce() -> Option<Cow<'f, Filter>>,
    ) {
        let mut kept = self.kept();
        let before_start = kept.before_start;
        if before_start && wrong == Wrong::Lost {
            return;
        }
        let count = &mut kept.counts[usize::from(before_start)][wrong as usize];
        *count += 1;
        let is_named = *count <= NAMED as u64;
        if let Some(kind) = kind.filter(|_| wrong == Wrong::Lost) {
            *kept.lost_by_kind.entry(kind).or_default() += 1;
        }
        if !is_named && kept.file.is_none() {
            return;
        }
        let about = [
            About::Subscription(connection, subscription.to_owned()),
            About::Event(*id),
            About::Connection(connection),
        ];
        let incident = Incident {
            wrong,
            before_start,
            connection,
            id: hex::encode(id),
            kind,
            subscription: subscription.chars().take(TEXT_CHARS).collect(),
            filter: filter().map(|filter| json(&filter)),
            relay_said: about.iter().find_map(|about| kept.said.get(about)).cloned(),
        };
        let Kept { file, failed, named, .. } = &mut *kept;
        if let Some(out) = file {
            let line = serde_json::to_string(&incident).expect("an incident is plain data");
            if let Err(error) = out.open().and_then(|out| writeln!(out, "{line}")) {
                failed.get_or_insert(error);
            }
        }
        if is_named {
            named.push(incident);
        }
    }

    /// How many of a kind there are.
    pub fn count(&self, wrong: Wrong) -> u64 {
        self.kept().counts[0][wrong as usize]
    }

    /// Lost deliveries by kind, the most first, as in `lost 12: kind 4 (8), 1059 (4)`; `None` where
    /// none is named.
    pub fn lost(&self) -> Option<String> {
        let kept = self.kept();
        let mut kinds: Vec<_> = kept.lost_by_kind.iter().collect();
        kinds.sort_by_key(|(_, count)| Reverse(**count));
        let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{kind} ({count})")).collect();
        let lost = kept.counts[0][Wrong::Lost as usize];
        (!kinds.is_empty()).then(|| format!("lost {lost}: kind {}", kinds.join(", ")))
    }

    /// The first five of each kind as text, a line each; empty without incidents.
    pub fn named(&self) -> String {
        let kept = self.kept();
        let mut text = String::new();
        let all = [true, false].into_iter().flat_map(|before| Wrong::ALL.map(|wrong| (before, wrong)));
        for (before_start, wrong) in all {
            let count = kept.counts[usize::from(before_start)][wrong as usize];
            let is_one = |one: &&Incident| (one.before_start, one.wrong) == (before_start, wrong);
            for (n, incident) in kept.named.iter().filter(is_one).enumerate() {
                let when = if before_start { "before the start " } else { "" };
                let name = format!("{wrong:?}").to_lowercase();
                writeln!(text, "  {when}{name} {} of {count}: {incident}", n + 1).expect("into a String");
            }
        }
        text
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A filter as it stands in a REQ (NIP-01).
fn json(filter: &Filter) -> serde_json::Value {
    let request = request("", filter);
    serde_json::from_str::<Vec<serde_json::Value>>(&request)
        .ok()
        .and_then(|mut parts| parts.pop())
        .unwrap_or_default()
}

/// A REQ as JSON, for people.
pub fn request(subscription: &str, filter: &Filter) -> String {
    let message = ClientMessage::Req { subscription: subscription.into(), filters: vec![filter.clone()] };
    let mut text = Vec::new();
    let codec = Format::JSON.codec(Implementation::Library);
    if codec.is_ok_and(|codec| codec.encode_client(&message, &mut text).is_ok()) {
        String::from_utf8_lossy(&text).into_owned()
    } else {
        format!("{message:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: ([u8; 32], Option<u16>) = ([0xab; 32], Some(4));

    #[test]
    fn five_of_each_kind_are_named_and_all_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.jsonl");
        let incidents = Incidents::default();
        incidents.write_to(path.clone());
        assert!(!path.exists(), "nothing is wrong yet");
        let filter = Filter { kinds: Some(vec![4]), limit: Some(0), ..Filter::default() };
        incidents.said(About::Connection(7), "NOTICE slow down");
        for n in 0..20 {
            incidents.add(Wrong::Lost, (&EVENT.0, EVENT.1), (n, "live-0"), || Some(Cow::Borrowed(&filter)));
        }
        incidents.said(About::Event([0xab; 32]), "OK false: blocked: no");
        incidents.add(Wrong::Unexpected, (&EVENT.0, EVENT.1), (7, "s0-0-0"), || None);
        incidents.said(About::Subscription(7, "s0-0-0".to_owned()), "CLOSED: error: no");
        incidents.add(Wrong::Unexpected, (&EVENT.0, EVENT.1), (7, "s0-0-0"), || None);
        for kind in [1059, 7] {
            incidents.add(Wrong::Lost, (&EVENT.0, Some(kind)), (0, "live-0"), || None);
        }
        incidents.finish().unwrap();
        assert_eq!(incidents.lost().unwrap(), "lost 22: kind 4 (20), 7 (1), 1059 (1)");
        let named = incidents.named();
        assert_eq!(named.lines().count(), 5 + 2, "{named}");
        let id = "ab".repeat(32);
        let first = format!(
            "  lost 1 of 22: {id} of kind 4 for live-0 {{\"kinds\":[4],\"limit\":0}} on connection 0"
        );
        assert!(named.starts_with(&first), "{named}");
        assert!(named.contains("the relay said OK false: blocked: no"), "{named}");
        assert!(named.ends_with("the relay said CLOSED: error: no\n"), "{named}");
        let lines = std::fs::read_to_string(path).unwrap();
        let lines: Vec<serde_json::Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 24);
        assert_eq!(lines[7]["relay_said"], "NOTICE slow down");
        assert_eq!((&lines[0]["wrong"], &lines[0]["filter"]["kinds"][0]), (&"lost".into(), &4.into()));
        assert_eq!((incidents.count(Wrong::Lost), incidents.count(Wrong::Altered)), (22, 0));
    }

    #[test]
    fn before_the_start_nothing_is_lost_and_what_came_wrong_is_named_apart() {
        let incidents = Incidents::before_start();
        let add = |wrong| incidents.add(wrong, (&EVENT.0, EVENT.1), (0, "s0-0-0"), || None);
        add(Wrong::Lost);
        add(Wrong::Altered);
        incidents.start();
        add(Wrong::Altered);
        let named = incidents.named();
        let lines: Vec<&str> = named.lines().collect();
        assert_eq!((lines.len(), incidents.count(Wrong::Lost), incidents.count(Wrong::Altered)), (2, 0, 1));
        assert!(lines[0].starts_with("  before the start altered 1 of 1: abab"), "{named}");
        assert!(lines[1].starts_with("  altered 1 of 1: abab"), "{named}");
    }

    #[test]
    fn what_a_relay_says_takes_bounded_memory() {
        let incidents = Incidents::default();
        for n in 0..TEXTS + 5 {
            incidents.said(About::Connection(n), &"x".repeat(10 * TEXT_CHARS));
        }
        let kept = incidents.kept();
        assert_eq!(kept.said.len(), TEXTS);
        assert!(kept.said.values().all(|text| text.len() <= TEXT_CHARS));
    }
}
