//! Messages under pseudonyms: who and what is replaced, what a relay does with it is kept.
//!
//! All of it follows from a random key that is never written. Equal keys, ids and values of tags have
//! equal pseudonyms in the whole recording, so that filters match the same events. Words of contents
//! have others in each event, out of few, so that they compress as before and are no code that
//! counting breaks.

use std::{borrow::Cow, collections::HashMap};

use codecs::{ClientMessage, Event, Filter, RelayMessage, hex};
use sha2::{Digest, Sha256};

use crate::nip19;

/// Words that say nothing of people: beginnings of addresses.
const KEPT_WORDS: [&str; 5] = ["http", "https", "nostr", "ws", "wss"];

/// Names of tags that the protocol defines, next to names of one letter.
const KEPT_NAMES: [&str; 24] = [
    "alt",
    "amount",
    "bolt11",
    "challenge",
    "client",
    "content-warning",
    "delegation",
    "description",
    "emoji",
    "expiration",
    "image",
    "imeta",
    "name",
    "nonce",
    "preimage",
    "protected",
    "proxy",
    "published_at",
    "relay",
    "relays",
    "subject",
    "summary",
    "title",
    "zap",
];

/// Beginnings of a relay's reasons (NIP-01, NIP-42), which clients act on.
const KEPT_REASONS: [&str; 10] = [
    "auth-required",
    "blocked",
    "deleted",
    "duplicate",
    "error",
    "invalid",
    "mute",
    "pow",
    "rate-limited",
    "restricted",
];

/// Letters of replaced words. No word of a language is without a vowel, so none comes about by chance.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz";

/// Letters of replaced ciphertext, keys and numbers in hex.
const HEX: &[u8] = b"0123456789abcdef";
const DIGITS_AND_LETTERS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// Words of an event's content are replaced out of so many of their length.
const VOCABULARY: usize = 256;

/// Longer runs of letters and digits are no words: ciphertext, hashes, invoices.
const WORD_BYTES: usize = 16;

/// Characters after which a run without spaces is cut, as Chinese is written.
const RUN_CHARS: usize = 4;

/// From here on characters that are no letters are pictures.
const FIRST_EMOJI: char = '\u{1f000}';

/// Values of tags up to this size could get the pseudonym of another by chance, so they are remembered.
const SHORT_BYTES: usize = 12;

/// Most values that are remembered.
const MOST_SHORT: usize = 65_536;

/// Most bytes of events that are remembered with their pseudonyms, since a relay sends each to many.
const MOST_EVENT_BYTES: usize = 16 << 20;

/// Replaces what says who and what.
pub(crate) struct Pseudonyms {
    key: [u8; 32],
    /// Letters of the words of contents.
    vocabulary: Vec<[u8; WORD_BYTES]>,
    /// Pseudonyms of short values, with a digest of what they stand for.
    taken: HashMap<String, [u8; 8]>,
    /// Events by id, as they came and under pseudonyms.
    events: HashMap<[u8; 32], [Event<'static>; 2]>,
    event_bytes: usize,
}

/// What a text belongs to, which decides where it has the same pseudonym.
#[derive(Clone, Copy)]
enum Scope<'s> {
    /// The text of one event or message, by the digest of what precedes each word.
    Text(&'s Sha256),
    /// A value that filters ask for: equal everywhere. The number is that of the attempt.
    Value(&'s str, u8),
}

impl Pseudonyms {
    /// Pseudonyms under a new random key, which is never written.
    pub(crate) fn new() -> Pseudonyms {
        let mut pseudonyms = Pseudonyms {
            key: rand::random(),
            vocabulary: Vec::new(),
            taken: HashMap::new(),
            events: HashMap::new(),
            event_bytes: 0,
        };
        let words = (0..VOCABULARY).map(|n| pseudonyms.stream(b"word", &[&n.to_le_bytes()]));
        pseudonyms.vocabulary = words.map(|mut stream| std::array::from_fn(|_| stream.byte())).collect();
        pseudonyms
    }

    // --- messages ---

    pub(crate) fn client<'m>(&'m mut self, mut message: ClientMessage<'m>) -> ClientMessage<'m> {
        match &mut message {
            ClientMessage::Event(event) | ClientMessage::Auth(event) => {
                *event = Cow::Borrowed(self.event(event));
            }
            ClientMessage::Req { subscription, filters } | ClientMessage::Count { subscription, filters } => {
                self.name(subscription);
                filters.iter_mut().for_each(|filter| self.filter(filter));
            }
            ClientMessage::Close { subscription } | ClientMessage::NegClose { subscription } => {
                self.name(subscription);
            }
            ClientMessage::NegOpen { subscription, filter, message } => {
                self.name(subscription);
                self.filter(filter);
                self.round(message);
            }
            ClientMessage::NegMsg { subscription, message } => {
                self.name(subscription);
                self.round(message);
            }
        }
        message
    }

    pub(crate) fn relay<'m>(&'m mut self, mut message: RelayMessage<'m>) -> RelayMessage<'m> {
        match &mut message {
            RelayMessage::Event { subscription, event } => {
                self.name(subscription);
                *event = Cow::Borrowed(self.event(event));
            }
            RelayMessage::Events { subscription, events } => {
                self.name(subscription);
                events.iter_mut().for_each(|event| *event = self.event(event).clone());
            }
            RelayMessage::Ok { id, text, .. } => {
                *id = self.hash(id);
                self.reason(text);
            }
            RelayMessage::Eose { subscription, .. } => self.name(subscription),
            RelayMessage::Closed { subscription, text } | RelayMessage::NegErr { subscription, text } => {
                self.name(subscription);
                self.reason(text);
            }
            RelayMessage::Notice { text } => self.reason(text),
            RelayMessage::Auth { challenge } => self.name(challenge),
            RelayMessage::Count { subscription, hll, .. } => {
                self.name(subscription);
                if let Some(registers) = hll {
                    let mut stream = self.stream(b"noise", &[&registers[..]]);
                    registers.fill_with(|| stream.byte());
                }
            }
            RelayMessage::NegMsg { subscription, message } => {
                self.name(subscription);
                self.round(message);
            }
        }
        message
    }

    fn event(&mut self, event: &Event<'_>) -> &Event<'static> {
        // Whoever sends another event under the same id gets no pseudonyms of this one.
        if self.events.get(&event.id).is_none_or(|[source, _]| source != event) {
            self.remember(event);
        }
        &self.events[&event.id][1]
    }

    fn remember(&mut self, event: &Event<'_>) {
        let mapped = self.mapped(event);
        let values = event.tags.iter().flatten().map(|value| value.len() + size_of::<Cow<'_, str>>());
        let bytes = 2 * (size_of::<Event<'_>>() + event.content.len() + values.sum::<usize>());
        if self.event_bytes + bytes > MOST_EVENT_BYTES {
            self.events.clear();
            self.event_bytes = 0;
        }
        self.event_bytes += bytes;
        self.events.insert(event.id, [event.clone().into_owned(), mapped]);
    }

    fn mapped(&mut self, event: &Event<'_>) -> Event<'static> {
        let id = self.hash(&event.id);
        let mut signature = self.stream(b"noise", &[&event.sig]);
        let salt = self.digest(b"text", &[&event.id]);
        Event {
            id,
            pubkey: self.hash(&event.pubkey),
            created_at: event.created_at,
            kind: event.kind,
            tags: event.tags.iter().map(|tag| self.tag(tag, &salt)).collect(),
            content: Cow::Owned(self.text(&event.content, Scope::Text(&salt))),
            sig: std::array::from_fn(|_| signature.byte()),
        }
    }

    fn tag(&mut self, tag: &[Cow<'_, str>], salt: &Sha256) -> Vec<Cow<'static, str>> {
        let Some((name, values)) = tag.split_first() else { return Vec::new() };
        let is_kept = name.len() == 1 || KEPT_NAMES.contains(&&**name);
        let name_mapped = if is_kept { name.to_string() } else { self.value(name) };
        let mut mapped = vec![Cow::Owned(name_mapped)];
        for (place, value) in values.iter().enumerate() {
            mapped.push(Cow::Owned(match (name.as_bytes(), place) {
                ([letter], 0) => self.tag_value(char::from(*letter), value),
                (b"expiration", _) if is_number(value) => value.to_string(),
                _ => self.text(value, Scope::Text(salt)),
            }));
        }
        mapped
    }

    fn filter(&mut self, filter: &mut Filter) {
        for hash in filter.ids.iter_mut().chain(&mut filter.authors).flatten() {
            *hash = self.hash(hash);
        }
        if let Some(search) = &mut filter.search {
            *search = self.value(search);
        }
        for condition in &mut filter.tags {
            for value in &mut condition.values {
                *value = self.tag_value(condition.letter, value);
            }
        }
    }

    /// The value of a tag that filters may ask for.
    fn tag_value(&mut self, letter: char, value: &str) -> String {
        match letter {
            'k' | 'K' if is_number(value) => value.to_owned(),
            'a' | 'A' => {
                let mut parts = value.splitn(3, ':');
                match (
                    parts.next(),
                    parts.next().and_then(|key| hex::decode_array(key.as_bytes())),
                    parts.next(),
                ) {
                    (Some(kind), Some(key), Some(name)) if is_number(kind) => {
                        let key = hex::encode(&self.hash(&key));
                        format!("{kind}:{key}:{}", self.value(name))
                    }
                    _ => self.value(value),
                }
            }
            _ => self.value(value),
        }
    }

    /// A relay's reason, with the beginning that clients act on.
    fn reason(&self, text: &mut Cow<'_, str>) {
        let (kept, rest) = match text.split_once(':') {
            Some((reason, rest)) if KEPT_REASONS.contains(&reason) => (format!("{reason}:"), rest),
            _ => (String::new(), &**text),
        };
        *text = Cow::Owned(kept + &self.text(rest, Scope::Text(&self.digest(b"text", &[]))));
    }

    /// A round of a reconciliation (NIP-77), which names ids: noise behind the protocol's version.
    fn round(&self, message: &mut Cow<'_, [u8]>) {
        let mut stream = self.stream(b"noise", &[message]);
        message.to_mut().iter_mut().skip(1).for_each(|byte| *byte = stream.byte());
    }

    // --- values ---

    /// The pseudonym of a key or an id.
    fn hash(&self, value: &[u8; 32]) -> [u8; 32] {
        self.stream(b"hash", &[value]).block
    }

    fn name(&mut self, text: &mut Cow<'_, str>) {
        *text = Cow::Owned(self.value(text));
    }

    /// The pseudonym of a value, which no other value has.
    fn value(&mut self, text: &str) -> String {
        let digest = self.stream(b"short", &[text.as_bytes()]).block;
        let digest: [u8; 8] = std::array::from_fn(|n| digest[n]);
        let mut attempts = 0;
        loop {
            let pseudonym = self.text(text, Scope::Value(text, attempts));
            match self.taken.get(&pseudonym) {
                _ if text.len() > SHORT_BYTES || attempts == u8::MAX => return pseudonym,
                Some(other) if *other != digest => attempts += 1,
                Some(_) => return pseudonym,
                None => {
                    if self.taken.len() < MOST_SHORT {
                        self.taken.insert(pseudonym.clone(), digest);
                    }
                    return pseudonym;
                }
            }
        }
    }

    // --- texts ---

    /// A text of the same length in bytes and the same script, word by word.
    fn text(&self, text: &str, scope: Scope<'_>) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            // Punctuation and marks that join others stay; emoji are words.
            let is_word =
                |c: char| (c.is_alphanumeric() || c >= FIRST_EMOJI) && c.is_ascii() == first.is_ascii();
            let run = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let end = match run {
                0 => first.len_utf8(),
                _ if first.is_ascii() => run,
                _ => rest[..run].char_indices().nth(RUN_CHARS).map_or(run, |(n, _)| n),
            };
            let (word, behind) = rest.split_at(end);
            if run == 0 {
                out.push_str(word);
            } else {
                self.word(word, scope, &mut out);
            }
            rest = behind;
        }
        out
    }

    /// Appends what stands for a run of ASCII letters and digits, or of other letters.
    fn word(&self, word: &str, scope: Scope<'_>, out: &mut String) {
        if KEPT_WORDS.contains(&word) {
            return out.push_str(word);
        }
        if let Some(hash) = hex::decode_array::<32>(word.as_bytes()) {
            return hex::push_text(&self.hash(&hash), out);
        }
        if let Some(reference) = self.reference(word) {
            return out.push_str(&reference);
        }
        let mut stream = match scope {
            Scope::Text(salt) => Stream::begin(with(salt.clone(), word.as_bytes())),
            Scope::Value(value, attempt) => {
                self.stream(b"value", &[&[attempt], value.as_bytes(), word.as_bytes()])
            }
        };
        let bytes = word.bytes();
        if word.len() > WORD_BYTES && word.is_ascii() {
            let is_hex = bytes.clone().all(|byte| HEX.contains(&byte));
            let alphabet = match bytes.clone().any(|byte| byte.is_ascii_uppercase()) {
                _ if is_hex => HEX,
                true => DIGITS_AND_LETTERS,
                false => &DIGITS_AND_LETTERS[..36],
            };
            out.extend(bytes.map(|_| char::from(stream.of(alphabet))));
            return;
        }
        if matches!(scope, Scope::Text(_)) {
            let number = usize::from(stream.byte()) % VOCABULARY;
            // At most 16 bytes, so at most 16 characters.
            out.extend(word.chars().zip(self.vocabulary[number]).map(|(c, byte)| replaced(c, byte)));
        } else {
            out.extend(word.chars().map(|c| replaced(c, stream.byte())));
        }
    }

    /// A reference to a key or an event (NIP-19), whose relays and names become noise.
    fn reference(&self, word: &str) -> Option<String> {
        if !nip19::PREFIXES.iter().any(|prefix| word.starts_with(prefix)) {
            return None;
        }
        let (prefix, mut data) = nip19::decode(word)?;
        let mut noise = self.stream(b"noise", &[&data]);
        for (kind, value) in nip19::values(prefix, &mut data) {
            if nip19::is_hash(prefix, kind, value) {
                let hash = self.stream(b"hash", &[value]).block;
                value.copy_from_slice(&hash);
            } else if (kind, value.len()) != (Some(3), 4) {
                // A kind (type 3) stays, as it does in events.
                value.fill_with(|| noise.byte());
            }
        }
        Some(nip19::encode(prefix, &data))
    }

    /// Bytes that follow from the key and from these parts.
    fn stream(&self, purpose: &[u8], parts: &[&[u8]]) -> Stream {
        Stream::begin(self.digest(purpose, parts))
    }

    fn digest(&self, purpose: &[u8], parts: &[&[u8]]) -> Sha256 {
        let digest = with(Sha256::new_with_prefix(self.key), purpose);
        parts.iter().fold(digest, |digest, part| with(digest, part))
    }
}

/// The digest with one more part.
fn with(digest: Sha256, part: &[u8]) -> Sha256 {
    digest.chain_update(part.len().to_le_bytes()).chain_update(part)
}

/// Bytes without end.
struct Stream {
    block: [u8; 32],
    at: usize,
}

impl Stream {
    fn begin(digest: Sha256) -> Stream {
        Stream { block: digest.finalize().into(), at: 0 }
    }

    fn byte(&mut self) -> u8 {
        if self.at == self.block.len() {
            *self = Stream { block: Sha256::digest(self.block).into(), at: 0 };
        }
        self.at += 1;
        self.block[self.at - 1]
    }

    fn of(&mut self, alphabet: &[u8]) -> u8 {
        alphabet[usize::from(self.byte()) % alphabet.len()]
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A character of the same length, script and kind in the place of another.
fn replaced(c: char, byte: u8) -> char {
    let of = |alphabet: &[u8]| char::from(alphabet[usize::from(byte) % alphabet.len()]);
    match c {
        'a'..='z' => of(LETTERS),
        'A'..='Z' => of(LETTERS).to_ascii_uppercase(),
        '0'..='9' => of(&HEX[..10]),
        _ if c.is_ascii() => c,
        _ => {
            let code = u32::from(c);
            // Chinese and Korean have thousands of characters: a block of them would tell much.
            let (first, count) = match code {
                0x4e00..=0x9fff => (0x4e00, 256),
                0xac00..=0xd7a3 => (0xac00, 256),
                _ => (code & !0x7f, 128),
            };
            let kind = |c: char| (c.len_utf8(), c.is_alphabetic(), c.is_numeric(), c.is_lowercase());
            let others = (0..count).map(|n| first + (u32::from(byte) + n) % count);
            others.filter_map(char::from_u32).find(|other| kind(*other) == kind(c)).unwrap_or('\u{fffd}')
        }
    }
}
