//! Relays, clients, events and filters for the tests of this crate.

use std::{borrow::Cow, ops::Range, sync::Arc, time::Instant};

use bytes::Bytes;
use codecs::{ClientMessage, Codec, Event, Filter, Format, RelayMessage, TagFilter, VerifyLevel, hex};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use crate::{
    config::Config,
    machine::{Close, Connection, Opening, Relay, Time},
};

pub(crate) const UNIX_SECONDS: u64 = 1_700_000_000;

/// A note; its id is no hash, but starts with `n`.
pub(crate) fn event(n: u8) -> Event<'static> {
    let mut id = [0; 32];
    id[0] = n;
    Event {
        id,
        pubkey: [7; 32],
        created_at: 1_000,
        kind: 1,
        tags: vec![],
        content: format!("note {n}").into(),
        sig: [0; 64],
    }
}

/// The event with a valid key, id and signature.
pub(crate) fn signed(mut event: Event<'static>) -> Event<'static> {
    corpus::sign_as(&mut event, "a test");
    event
}

/// The answer of a client to a challenge of a relay that it calls `url` (NIP-42).
pub(crate) fn proof(challenge: &str, url: &str, created_at: u64) -> Event<'static> {
    let tag = |name: &'static str, value: &str| vec![name.into(), value.to_owned().into()];
    let tags = vec![tag("challenge", challenge), tag("relay", url)];
    signed(Event { kind: 22_242, created_at: created_at.cast_signed(), tags, ..event(0) })
}

/// A relay in memory that verifies nothing unless `change` says so.
pub(crate) fn relay(change: impl FnOnce(&mut Config)) -> Arc<Relay> {
    let mut config = Config { verify: VerifyLevel::None, ..Config::default() };
    change(&mut config);
    Arc::new(Relay::new(config).unwrap())
}

/// A connection, and its client's end of it.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) codec: &'static dyn Codec,
    pub(crate) format: Format,
    pub(crate) time: Time,
}

impl Client {
    pub(crate) fn open(relay: &Arc<Relay>, format: Format, batched: bool) -> Client {
        Client {
            connection: relay.connect(&Opening { batched, ..Opening::new(format) }),
            codec: format.spec().library,
            format,
            time: Time { instant: Instant::now(), unix_seconds: UNIX_SECONDS },
        }
    }

    pub(crate) fn encoded(&self, message: &ClientMessage<'_>) -> Vec<u8> {
        let mut payload = Vec::new();
        self.codec.encode_client(message, &mut payload).unwrap();
        payload
    }

    /// Sends bytes. Returns how the relay ends the connection, if it does.
    pub(crate) fn send(&mut self, payload: &[u8]) -> Result<(), Close> {
        self.connection.receive(payload, self.format.spec().opcode, self.time)
    }

    pub(crate) fn say(&mut self, message: &ClientMessage<'_>) {
        self.send(&self.encoded(message)).unwrap();
    }

    pub(crate) fn publish(&mut self, event: &Event<'static>) {
        self.say(&ClientMessage::Event(Cow::Borrowed(event)));
    }

    pub(crate) fn request(&mut self, subscription: &str, filter: Filter) {
        self.say(&ClientMessage::Req { subscription: subscription.into(), filters: vec![filter] });
    }

    /// All that is to be heard now.
    pub(crate) fn hear(&mut self) -> Vec<Bytes> {
        let mut all = Vec::new();
        loop {
            let messages = self.connection.poll_transmit(self.time);
            if messages.is_empty() {
                return all;
            }
            all.extend(messages);
        }
    }

    /// All deliveries that are to be heard now, and how many messages brought them.
    pub(crate) fn deliveries(&mut self) -> (Vec<(String, Event<'static>)>, usize) {
        let (mut deliveries, mut messages) = (Vec::new(), 0);
        for payload in self.hear() {
            match self.codec.decode_relay(&payload).unwrap() {
                RelayMessage::Event { subscription, event } => {
                    deliveries.push((subscription.into_owned(), event.into_owned().into_owned()));
                    messages += 1;
                }
                RelayMessage::Events { subscription, events } => {
                    deliveries.extend(
                        events.into_iter().map(|event| (subscription.to_string(), event.into_owned())),
                    );
                    messages += 1;
                }
                _ => {}
            }
        }
        (deliveries, messages)
    }
}

/// Events and filters of few values, so that they often meet.
pub(crate) struct Random {
    pub(crate) rng: StdRng,
    times: Range<i64>,
    /// How many authors there are, and values of each tag.
    values: u8,
    /// Tags that filters ask for.
    pub(crate) letters: Vec<char>,
    made: Vec<Event<'static>>,
}

/// Of every class, and mostly regular.
const KINDS: [u16; 8] = [0, 1, 1, 1, 5, 7, 20_000, 30_023];

impl Random {
    pub(crate) fn new(seed: u64, times: Range<i64>, values: u8) -> Random {
        let rng = StdRng::seed_from_u64(seed);
        Random { rng, times, values, letters: vec!['t', 'p', 'd'], made: Vec::new() }
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.rng.random_range(0..n)
    }

    fn author(&mut self) -> [u8; 32] {
        [self.rng.random_range(0..self.values); 32]
    }

    fn value(&mut self) -> String {
        self.rng.random_range(0..self.values).to_string()
    }

    fn earlier(&mut self) -> Option<Event<'static>> {
        self.made.choose(&mut self.rng).cloned()
    }

    /// An event, now and then an earlier one. Some expire within 20 s of `now`.
    pub(crate) fn event(&mut self, now: u64) -> Event<'static> {
        if self.below(5) == 0
            && let Some(earlier) = self.earlier()
        {
            return earlier;
        }
        let (kind, pubkey) = (*KINDS.choose(&mut self.rng).unwrap(), self.author());
        let mut tags: Vec<Vec<Cow<'static, str>>> = Vec::new();
        for _ in 0..self.below(5) {
            let mut tag =
                vec![Cow::Borrowed(*["t", "p", "d", "é", "topic", ""].choose(&mut self.rng).unwrap())];
            tag.extend((0..self.below(3)).map(|_| Cow::from(self.value())));
            tags.push(tag.split_off(usize::from(self.below(20) == 0)));
        }
        if self.below(6) == 0 {
            tags.push(vec!["expiration".into(), (now + self.rng.random_range(0..20)).to_string().into()]);
        }
        for _ in 0..if kind == 5 { self.below(4) } else { 0 } {
            let named = self.earlier().map_or([0; 32], |event| event.id);
            tags.push(vec!["e".into(), hex::encode(&named).into()]);
            tags.push(vec!["a".into(), format!("30023:{}:{}", hex::encode(&pubkey), self.value()).into()]);
        }
        // Ids that begin alike, too.
        let mut id = [0; 32];
        id[if self.rng.random() { 0 } else { 28 }..][..4].copy_from_slice(&self.rng.random::<[u8; 4]>());
        let created_at = self.rng.random_range(self.times.clone());
        let content = format!("{} \"ü\"", self.made.len()).into();
        let event = Event { id, pubkey, created_at, kind, tags, content, sig: [9; 64] };
        self.made.push(event.clone());
        event
    }

    /// So many values at most for a condition that one of `ratio` filters has.
    fn some(&mut self, ratio: usize, most: usize) -> Option<usize> {
        (self.below(ratio) == 0).then(|| self.below(most))
    }

    pub(crate) fn filter(&mut self) -> Filter {
        let times = self.times.start - 1..self.times.end + 2;
        let mut tags = Vec::new();
        for letter in self.letters.clone() {
            if let Some(count) = self.some(5, 4) {
                tags.push(TagFilter { letter, values: (0..count).map(|_| self.value()).collect() });
            }
        }
        Filter {
            ids: self.some(8, 50).map(|n| (0..n).filter_map(|_| Some(self.earlier()?.id)).collect()),
            authors: self.some(3, 30).map(|n| (0..n).map(|_| self.author()).collect()),
            kinds: self.some(2, 30).map(|n| (0..n).map(|_| *KINDS.choose(&mut self.rng).unwrap()).collect()),
            since: self.some(3, 1).map(|_| self.rng.random_range(times.clone())),
            until: self.some(3, 1).map(|_| self.rng.random_range(times)),
            limit: self.some(2, 300).map(|limit| limit as u64),
            tags,
            ..Filter::default()
        }
    }
}
