//! An event that the relay has, and what it is in each format.

use std::{
    cell::RefCell,
    cmp::Reverse,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use codecs::{Codec, EncodeError, Event, EventHead, FlatEvent, Format};
use wire::SharedDeflate;

/// The order of every answer: newest first, ties by lowest id.
pub(super) type Key = (Reverse<i64>, [u8; 32]);

/// An event, and its encoding in each format that was asked for so far.
///
/// It is kept flat: a relay's memory is mostly events, and an allocation for each value of each tag
/// was a third of it.
#[derive(Debug)]
pub(crate) struct StoredEvent {
    event: FlatEvent,
    encodings: Encodings,
    /// Tags that filters may ask for.
    indexed_tags: usize,
    /// See [`expires_at`].
    expires_at: Option<u64>,
    /// What the encodings hold in memory.
    encoded_bytes: AtomicUsize,
    all: Arc<AllEncodings>,
}

/// The encodings of all events of a relay.
#[derive(Debug, Default)]
pub(crate) struct AllEncodings {
    /// What those of living events hold in memory.
    pub(crate) bytes: AtomicUsize,
    /// How often an event was encoded.
    pub(crate) cold: AtomicU64,
}

/// Encodings in the order in which they were asked for. Mostly that is one: a table of all formats
/// would take more memory than the event, and filling it more time than everything else that is
/// done with it.
#[derive(Debug, Default)]
struct Encodings {
    entry: OnceLock<(Format, Result<Encoded, EncodeError>)>,
    next: OnceLock<Box<Encodings>>,
}

impl Encodings {
    fn get(
        &self,
        format: Format,
        encode: impl Fn() -> Result<Encoded, EncodeError>,
    ) -> Result<&Encoded, &EncodeError> {
        let mut node = self;
        loop {
            let (of, encoded) = node.entry.get_or_init(|| (format, encode()));
            if *of == format {
                return encoded.as_ref();
            }
            node = node.next.get_or_init(Box::default);
        }
    }
}

/// An event in one format.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    pub(crate) bytes: Box<[u8]>,
    /// What its messages have in common, compressed, where a connection shares that.
    pub(crate) shared: SharedDeflate,
    /// What of `shared` is counted.
    counted_bytes: AtomicUsize,
    /// Whether the bytes are those that the publisher sent.
    pub(crate) is_received: bool,
}

thread_local! {
    /// Where events are encoded, so that each is kept at its true size.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl StoredEvent {
    /// An event of the relay whose encodings are counted in `all`; their bytes as long as it lives.
    pub(crate) fn new(event: &Event<'_>, all: &Arc<AllEncodings>) -> Self {
        StoredEvent {
            event: FlatEvent::from(event),
            encodings: Encodings::default(),
            indexed_tags: event
                .tags
                .iter()
                .filter(|tag| tag.len() > 1 && tag[0].chars().nth(1).is_none())
                .count(),
            expires_at: expires_at(event),
            encoded_bytes: AtomicUsize::new(0),
            all: Arc::clone(all),
        }
    }

    /// The event of a message, with the bytes that stand for it there, which are what the format's
    /// codec writes.
    pub(crate) fn received(
        event: &Event<'_>,
        (format, bytes): (Format, &[u8]),
        all: &Arc<AllEncodings>,
    ) -> Self {
        let encoded = Encoded { bytes: bytes.into(), is_received: true, ..Encoded::default() };
        let mut stored = StoredEvent::new(event, all);
        stored.encodings.entry = OnceLock::from((format, Ok(encoded)));
        stored.count(size_of::<Encodings>() + bytes.len());
        stored
    }

    /// Its id, author, time and kind.
    pub(crate) fn head(&self) -> &EventHead {
        &self.event.head
    }

    /// When it expires, in seconds since 1970.
    pub(super) fn expires_at(&self) -> Option<u64> {
        self.expires_at
    }

    /// The event.
    pub(crate) fn event(&self) -> &FlatEvent {
        &self.event
    }

    /// The event as the format's codec writes it; the first call for a format does the work, and
    /// says so.
    pub(crate) fn encoded(&self, format: Format, codec: &dyn Codec) -> Result<&Encoded, &EncodeError> {
        self.encodings.get(format, || self.encode(&self.event.to_event(), codec))
    }

    /// [`StoredEvent::encoded`] while the `event` that it was made of is still at hand.
    pub(crate) fn encoded_from(
        &self,
        event: &Event<'_>,
        format: Format,
        codec: &dyn Codec,
    ) -> Result<&Encoded, &EncodeError> {
        self.encodings.get(format, || self.encode(event, codec))
    }

    fn encode(&self, event: &Event<'_>, codec: &dyn Codec) -> Result<Encoded, EncodeError> {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            scratch.shrink_to(MAX_SCRATCH_BYTES);
            codec.encode_event(event, scratch)?;
            let bytes: Box<[u8]> = scratch.as_slice().into();
            self.count(size_of::<Encodings>() + bytes.len());
            self.all.cold.fetch_add(1, Ordering::Relaxed);
            Ok(Encoded { bytes, ..Encoded::default() })
        })
    }

    /// Counts what was compressed of an encoding since this was last asked.
    pub(crate) fn count_compressed(&self, encoded: &Encoded) {
        let held = encoded.shared.held_bytes();
        if held > 0 {
            let counted = encoded.counted_bytes.fetch_max(held, Ordering::Relaxed);
            self.count(held.saturating_sub(counted));
        }
    }

    fn count(&self, bytes: usize) {
        self.encoded_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.all.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn key(&self) -> Key {
        (Reverse(self.head().created_at), self.head().id)
    }

    /// What the event itself holds in memory, roughly: enough to bound the store.
    pub(super) fn held_bytes(&self) -> usize {
        const INDEXES_BYTES: usize = 4 * 80;
        const TAG_BYTES: usize = 80;
        size_of::<Self>() + INDEXES_BYTES + self.indexed_tags * TAG_BYTES + self.event.heap_bytes()
    }
}

/// From when on an event is to be dropped, in seconds since 1970 (NIP-40). What is no number is no
/// expiration.
pub(crate) fn expires_at(event: &Event<'_>) -> Option<u64> {
    event.first_tag_value("expiration")?.parse().ok()
}

/// What a thread keeps to encode the next event in: more than nearly all of them need.
const MAX_SCRATCH_BYTES: usize = 64 << 10;

impl Drop for StoredEvent {
    fn drop(&mut self) {
        self.all.bytes.fetch_sub(*self.encoded_bytes.get_mut(), Ordering::Relaxed);
    }
}
