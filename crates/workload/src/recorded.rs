//! A recording, read whole: what each of its clients sent when, and what came to it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::Read,
    mem::size_of,
    path::Path,
    time::Duration,
};

use anyhow::ensure;
use codecs::{ClientMessage, Event, Filter, Format, RelayMessage};
use corpus::Corpus;
use recording::{Body, Entry, Message, Reader, Side, What};
use sha2::{Digest, Sha256};

use crate::CLIENT_AUTH;

/// A recording may have one part in so many of the memory: the plan has its events once more.
const PARTS: u64 = 8;

/// Its limit where the memory of this process is not known, in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// Something that a recorded client does beside publishing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// When it is due, from the start.
    pub at: Duration,
    /// The connection that does it.
    pub connection: usize,
    /// What it does.
    pub says: Says,
    /// The REQ whose EOSE it waits for, as a place in [`Workload::turns`](crate::Workload::turns): the one
    /// that was answered last when the recorded client did it.
    pub after: Option<u32>,
    /// Whether the recorded REQ got its EOSE.
    pub answered: bool,
    /// The events that came to the recorded REQ, in ascending order.
    pub expected: Vec<u32>,
}

/// What a recorded client does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Says {
    /// Connects.
    Connect,
    /// Sends a REQ, a COUNT or a CLOSE.
    Message(Box<ClientMessage<'static>>),
    /// Answers the relay's challenge (NIP-42), or the first that comes from then on.
    Prove,
    /// Closes its connection.
    Leave,
}

impl Turn {
    /// The filters of a REQ or COUNT.
    pub fn filters(&self) -> &[Filter] {
        let Says::Message(message) = &self.says else { return &[] };
        match &**message {
            ClientMessage::Req { filters, .. } | ClientMessage::Count { filters, .. } => filters,
            _ => &[],
        }
    }

    /// Whether it is a REQ.
    pub fn is_request(&self) -> bool {
        matches!(&self.says, Says::Message(message) if matches!(**message, ClientMessage::Req { .. }))
    }
}

/// What the clients of a recording did.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The file's name without its folders.
    pub name: String,
    /// Every event in it, each id once, as it was recorded.
    pub(crate) events: Vec<Event<'static>>,
    /// Where the relay had each of them from.
    pub(crate) sources: Vec<Source>,
    /// Connections and messages other than events; events are places in `events`.
    pub(crate) turns: Vec<Turn>,
    /// How many connections it has.
    pub(crate) connections: usize,
    /// From its start to its last line.
    pub(crate) length: Duration,
    /// What cannot be played again, and how many there are.
    pub left_out: BTreeMap<&'static str, usize>,
    /// Hash of what it says.
    pub(crate) sha256: [u8; 32],
}

/// Where the relay of a recording had an event from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A recorded client published it.
    Client { at: Duration, connection: usize },
    /// Somebody else did, while a client read live events.
    Others { at: Duration },
    /// It held the event before.
    Stored,
    /// The relay refused it, or had it from elsewhere already.
    Nobody,
}

// What is not played again.
const WITHHELD: &str = "messages of clients without text: private kinds, or no message of NIP-01";
const WITHHELD_ANSWERS: &str = "messages of the relay without text";
const RECONCILIATIONS: &str = "messages of clients for NIP-77, whose common events no recording has";
const AGAIN: &str = "events that were published a second time";
const REFUSED: &str = "events that the relay refused or had";
const FOREIGN: &str = "messages of clients that this program does not read";
const LOST: &str = "lines that the recorder lost";

impl Recorded {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, is longer than this process can hold, or has nothing to play.
    pub fn read(file: &Path) -> anyhow::Result<Recorded> {
        let most_bytes = measure::memory_bytes().map_or(MOST_BYTES, |memory| memory / PARTS);
        Recorded::from_entries(Reader::open(file)?, file, most_bytes)
    }

    /// Reads at most so many bytes of memory from an opened file.
    fn from_entries(entries: Reader<impl Read>, file: &Path, most_bytes: u64) -> anyhow::Result<Recorded> {
        let mut scan = Scan::default();
        let mut hash = Sha256::new();
        for entry in entries {
            let entry = entry?;
            hash.update(format!("{entry:?}"));
            scan.add(entry);
            ensure!(
                scan.bytes <= most_bytes,
                "{}: it takes more than {most_bytes} bytes of memory, an eighth of what this process has: record a \
                 shorter time",
                file.display()
            );
        }
        let mut recorded = scan.end();
        recorded.name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
        recorded.sha256 = hash.finalize().into();
        let says = |turn: &Turn| matches!(turn.says, Says::Message(_));
        let publishes = |source: &Source| matches!(source, Source::Client { .. });
        ensure!(
            recorded.turns.iter().any(says) || recorded.sources.iter().any(publishes),
            "{}: no client sends a message in it, so there is nothing to play",
            file.display()
        );
        Ok(recorded)
    }

    /// Its events as they were recorded, for results.
    pub fn corpus(&self) -> Corpus {
        Corpus::from_events(self.name.clone(), self.events.clone())
    }
}

/// About what the values of a text take in memory: each is a piece of its own, and short ones take
/// several times their bytes.
fn parsed(text: &str) -> u64 {
    4 * text.len() as u64
}

/// A recording while it is read.
#[derive(Default)]
struct Scan {
    recorded: Recorded,
    /// About what it takes in memory so far.
    bytes: u64,
    /// The place of each event, by its id.
    places: HashMap<[u8; 32], usize>,
    /// Connections that are open, by their number in the file.
    open: HashMap<u64, Connection>,
    refused: HashSet<usize>,
}

/// An open connection of a recording.
#[derive(Default)]
struct Connection {
    number: usize,
    /// The REQ of each subscription that is open.
    subscriptions: HashMap<String, u32>,
    /// The REQ that was answered last.
    answered: Option<u32>,
}

impl Scan {
    fn add(&mut self, Entry { conn, t_ns, what }: Entry) {
        let at = Duration::from_nanos(t_ns);
        self.recorded.length = self.recorded.length.max(at);
        match what {
            What::Open { .. } => {
                self.leave(conn, at);
                let connection = self.connect(at);
                self.open.insert(conn, connection);
            }
            What::Close { .. } => self.leave(conn, at),
            What::Lost(lines) => self.leave_out(LOST, usize::try_from(lines).unwrap_or(usize::MAX)),
            What::End(_) => {}
            What::Message(Message { from, body, .. }) => {
                // A line before it may be lost.
                let mut connection = self.open.remove(&conn).unwrap_or_else(|| self.connect(at));
                match (from, body) {
                    (Side::Client, Body::Text(text)) => self.client_says(&mut connection, at, &text),
                    (Side::Client, Body::Withheld { kind, .. }) if kind == Some(CLIENT_AUTH.into()) => {
                        self.turn(&connection, at, Says::Prove);
                    }
                    (Side::Client, Body::Withheld { .. }) => self.leave_out(WITHHELD, 1),
                    (_, Body::Text(text)) => self.relay_says(&mut connection, at, &text),
                    (_, Body::Withheld { .. }) => self.leave_out(WITHHELD_ANSWERS, 1),
                }
                self.open.insert(conn, connection);
            }
        }
    }

    fn leave_out(&mut self, reason: &'static str, count: usize) {
        let sum = self.recorded.left_out.entry(reason).or_default();
        *sum = sum.saturating_add(count);
    }

    fn connect(&mut self, at: Duration) -> Connection {
        let connection = Connection { number: self.recorded.connections, ..Connection::default() };
        self.recorded.connections += 1;
        self.turn(&connection, at, Says::Connect);
        connection
    }

    fn leave(&mut self, conn: u64, at: Duration) {
        if let Some(connection) = self.open.remove(&conn) {
            self.turn(&connection, at, Says::Leave);
        }
    }

    /// Adds a turn; returns its place.
    fn turn(&mut self, connection: &Connection, at: Duration, says: Says) -> u32 {
        self.bytes += size_of::<Turn>() as u64;
        let (turns, connection, after) = (&mut self.recorded.turns, connection.number, connection.answered);
        turns.push(Turn { at, connection, says, after, answered: false, expected: Vec::new() });
        u32::try_from(turns.len() - 1).unwrap_or(u32::MAX)
    }

    fn client_says(&mut self, connection: &mut Connection, at: Duration, text: &str) {
        let Ok(message) = Format::JSON.spec().library.decode_client(text.as_bytes()) else {
            return self.leave_out(FOREIGN, 1);
        };
        let message = message.into_owned();
        self.bytes += parsed(text);
        match message {
            ClientMessage::Event(event) => {
                let place = self.place(event.into_owned());
                let source = &mut self.recorded.sources[place];
                let is_again = matches!(source, Source::Client { .. });
                // A relay may refuse an event until AUTH.
                if !is_again || self.refused.remove(&place) {
                    *source = Source::Client { at, connection: connection.number };
                }
                if is_again {
                    self.leave_out(AGAIN, 1);
                }
            }
            ClientMessage::Req { filters, .. } | ClientMessage::Count { filters, .. }
                if filters.iter().any(is_unknown) =>
            {
                self.leave_out(FOREIGN, 1);
            }
            ClientMessage::Req { subscription, filters } => {
                let id = subscription.clone().into_owned();
                let says = Says::Message(Box::new(ClientMessage::Req { subscription, filters }));
                let turn = self.turn(connection, at, says);
                connection.subscriptions.insert(id, turn);
            }
            message @ (ClientMessage::Close { .. } | ClientMessage::Count { .. }) => {
                if let ClientMessage::Close { subscription } = &message {
                    connection.subscriptions.remove(&**subscription);
                }
                self.turn(connection, at, Says::Message(Box::new(message)));
            }
            ClientMessage::Auth(_) => _ = self.turn(connection, at, Says::Prove),
            ClientMessage::NegOpen { .. } | ClientMessage::NegMsg { .. } | ClientMessage::NegClose { .. } => {
                self.leave_out(RECONCILIATIONS, 1);
            }
        }
    }

    fn relay_says(&mut self, connection: &mut Connection, at: Duration, text: &str) {
        let known = self.recorded.events.len();
        match Format::JSON.spec().library.decode_relay(text.as_bytes()).ok() {
            Some(RelayMessage::Event { subscription, event }) => {
                let turn = connection.subscriptions.get(&*subscription).copied();
                self.delivered(turn, at, event.into_owned().into_owned());
            }
            Some(RelayMessage::Events { subscription, events }) => {
                let turn = connection.subscriptions.get(&*subscription).copied();
                events.into_iter().for_each(|event| self.delivered(turn, at, event.into_owned()));
            }
            Some(RelayMessage::Eose { subscription, .. }) => {
                if let Some(turn) = connection.subscriptions.get(&*subscription).copied() {
                    connection.answered = Some(turn);
                    self.recorded.turns[turn as usize].answered = true;
                }
            }
            Some(RelayMessage::Closed { subscription, .. }) => {
                if let Some(turn) = connection.subscriptions.remove(&*subscription) {
                    connection.answered = Some(turn);
                }
            }
            Some(RelayMessage::Ok { id, accepted, text }) => {
                if let Some(place) =
                    self.places.get(&id).filter(|_| !accepted || text.starts_with("duplicate:"))
                {
                    self.refused.insert(*place);
                }
            }
            _ => {}
        }
        if self.recorded.events.len() > known {
            self.bytes += parsed(text);
        }
    }

    /// The place of an event, which is new as a rule.
    fn place(&mut self, event: Event<'static>) -> usize {
        let next = self.recorded.events.len();
        let place = *self.places.entry(event.id).or_insert(next);
        if place == next {
            self.recorded.events.push(event);
            self.recorded.sources.push(Source::Nobody);
        }
        place
    }

    /// Takes a delivery to a REQ; one that answers none tells nothing.
    fn delivered(&mut self, turn: Option<u32>, at: Duration, event: Event<'static>) {
        let Some(turn) = turn.map(|turn| turn as usize) else { return };
        let place = self.place(event);
        if self.recorded.sources[place] == Source::Nobody {
            let is_live = self.recorded.turns[turn].answered;
            self.recorded.sources[place] = if is_live { Source::Others { at } } else { Source::Stored };
        }
        self.bytes += size_of::<u32>() as u64;
        self.recorded.turns[turn].expected.push(u32::try_from(place).unwrap_or(u32::MAX));
    }

    fn end(mut self) -> Recorded {
        let read: HashSet<u32> =
            self.recorded.turns.iter().flat_map(|turn| &turn.expected).copied().collect();
        for place in std::mem::take(&mut self.refused) {
            if let Source::Client { .. } = self.recorded.sources[place] {
                // What the relay had already is stored where somebody read it.
                let is_read = u32::try_from(place).is_ok_and(|place| read.contains(&place));
                self.recorded.sources[place] = if is_read { Source::Stored } else { Source::Nobody };
                self.leave_out(REFUSED, 1);
            }
        }
        self.recorded
    }
}

/// Whether a filter has a field that no encoder writes.
fn is_unknown(filter: &Filter) -> bool {
    filter.unknown.is_some()
}

#[cfg(test)]
pub(crate) mod tests {
    use codecs::EoseHints;
    use corpus::sign_as;
    use recording::{Header, Redaction, VERSION, Writer};

    use super::*;

    /// A note, which names others.
    pub(crate) fn note(author: &str, content: &str, tags: &[[String; 2]]) -> Event<'static> {
        let tags = tags.iter().map(|[name, value]| vec![name.clone().into(), value.clone().into()]).collect();
        let mut note = Event::unsigned(1, 1_700_000_000, tags, content.to_owned());
        sign_as(&mut note, author);
        note
    }

    fn message(ms: u64, from: Side, text: Vec<u8>) -> Entry {
        says(ms, from, Body::Text(String::from_utf8(text).unwrap()))
    }

    fn withheld(ms: u64, kind: u16) -> Entry {
        says(ms, Side::Client, Body::Withheld { text_bytes: 300, kind: Some(kind.into()) })
    }

    fn says(ms: u64, from: Side, body: Body) -> Entry {
        let what = What::Message(Message { from, wire_bytes: 0, body });
        Entry { conn: 3, t_ns: ms * 1_000_000, what }
    }

    pub(crate) fn client(ms: u64, says: &ClientMessage<'_>) -> Entry {
        let mut text = Vec::new();
        Format::JSON.spec().library.encode_client(says, &mut text).unwrap();
        message(ms, Side::Client, text)
    }

    pub(crate) fn asks(ms: u64, id: &'static str, filter: Filter) -> Entry {
        client(ms, &ClientMessage::Req { subscription: id.into(), filters: vec![filter] })
    }

    pub(crate) fn publishes(ms: u64, event: &Event<'static>) -> Entry {
        client(ms, &ClientMessage::Event(std::borrow::Cow::Borrowed(event)))
    }

    pub(crate) fn relay(ms: u64, says: &RelayMessage<'_>) -> Entry {
        let mut text = Vec::new();
        Format::JSON.spec().library.encode_relay(says, &mut text).unwrap();
        message(ms, Side::Relay, text)
    }

    pub(crate) fn delivers(ms: u64, id: &'static str, event: &Event<'static>) -> Entry {
        relay(ms, &RelayMessage::Event { subscription: id.into(), event: std::borrow::Cow::Borrowed(event) })
    }

    pub(crate) fn eose(ms: u64, id: &'static str) -> Entry {
        relay(ms, &RelayMessage::Eose { subscription: id.into(), hints: EoseHints::default() })
    }

    pub(crate) fn read(entries: Vec<Entry>, most_bytes: u64) -> anyhow::Result<Recorded> {
        let header = Header { version: VERSION, redaction: Redaction::None, by: "test".to_owned() };
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, &header).unwrap();
        entries.into_iter().for_each(|entry| writer.write(entry).unwrap());
        writer.finish().unwrap();
        let file = Path::new("x.jsonl.zst");
        Recorded::from_entries(Reader::new(&bytes[..], file)?, file, most_bytes)
    }

    #[test]
    fn what_came_before_eose_was_stored_and_a_turn_waits_for_the_eose_that_came_last() {
        let [stored, live, own, refused, late] =
            ["stored", "live", "own", "refused", "late"].map(|text| note("a", text, &[]));
        let any = Filter::default;
        let recorded = read(
            vec![
                asks(1, "a", any()),
                delivers(2, "a", &stored),
                eose(3, "a"),
                asks(4, "b", any()),
                delivers(5, "a", &live),
                publishes(6, &own),
                publishes(7, &refused),
                relay(8, &RelayMessage::Ok { id: refused.id, accepted: false, text: "blocked: no".into() }),
                client(9, &ClientMessage::Close { subscription: "a".into() }),
                delivers(10, "a", &own),
                delivers(11, "b", &own),
                message(12, Side::Client, b"[\"HELLO\"]".to_vec()),
                asks(13, "c", any()),
                publishes(14, &own),
                publishes(16, &late),
                relay(
                    17,
                    &RelayMessage::Ok { id: late.id, accepted: false, text: "auth-required: who?".into() },
                ),
                withheld(18, CLIENT_AUTH),
                withheld(19, 1059),
                publishes(20, &late),
            ],
            1 << 20,
        );
        let recorded = recorded.unwrap();
        let ms = Duration::from_millis;
        assert_eq!(
            recorded.sources,
            [
                Source::Stored,
                Source::Others { at: ms(5) },
                Source::Client { at: ms(6), connection: 0 },
                Source::Nobody,
                Source::Client { at: ms(20), connection: 0 },
            ]
        );
        let turns: Vec<_> = recorded
            .turns
            .iter()
            .map(|turn| (turn.at, turn.after, turn.answered, &turn.expected[..]))
            .collect();
        assert_eq!(
            turns,
            [
                (ms(1), None, false, &[][..]), // connects, since no line says when
                (ms(1), None, true, &[0, 1]),
                (ms(4), Some(1), false, &[2]),
                (ms(9), Some(1), false, &[]),
                (ms(13), Some(1), false, &[]),
                (ms(18), Some(1), false, &[]),
            ]
        );
        assert_eq!(recorded.turns[5].says, Says::Prove);
        let left_out: Vec<_> = recorded.left_out.into_iter().collect();
        assert_eq!(left_out, [(REFUSED, 1), (AGAIN, 2), (FOREIGN, 1), (WITHHELD, 1)]);
        assert_eq!(recorded.length, ms(20));
    }

    #[test]
    fn a_recording_beyond_its_part_of_the_memory_is_refused() {
        let asks = || (0..100).map(|n| asks(n, "a", Filter::default())).collect();
        assert!(read(asks(), 1 << 20).is_ok());
        let error = read(asks(), 1 << 10).unwrap_err().to_string();
        assert!(error.contains("x.jsonl.zst: it takes more than 1024 bytes of memory"), "{error}");
        let error = read(vec![eose(1, "a")], 1 << 20).unwrap_err().to_string();
        assert!(error.contains("no client sends a message"), "{error}");
    }
}
