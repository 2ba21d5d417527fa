//! An event that the relay has, and what it is in each format.

use std::{
    borrow::Cow,
    cell::RefCell,
    cmp::Reverse,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use codecs::{Codec, EncodeError, Event, EventHead, FlatEvent, Format, KindClass};
use wire::Shared;

use super::disk::{Disk, StoreError};

/// The order of every answer: newest first, ties by lowest id.
pub(super) type Key = (Reverse<i64>, [u8; 32]);

/// An event, and its encoding in each format that was asked for so far.
///
/// It is kept flat: a relay's memory is mostly events, and an allocation for each value of each tag
/// was a third of it.
#[derive(Debug)]
pub(crate) struct StoredEvent {
    /// The event. If it is on disk, only the parts that filters use.
    event: FlatEvent,
    /// Where the event is on disk, if it is read from there.
    row: Option<Arc<Row>>,
    encodings: Encodings,
    /// Tags that filters may ask for.
    indexed_tags: usize,
    /// See [`expires_at`].
    expires_at: Option<u64>,
    /// Bytes of the encodings in memory.
    encoded_bytes: AtomicUsize,
    all: Arc<AllEncodings>,
}

/// The encodings of all events of a relay.
#[derive(Debug, Default)]
pub(crate) struct AllEncodings {
    /// Bytes of those of living events in memory.
    pub(crate) bytes: AtomicUsize,
    /// How often an event was encoded or read from disk to be sent.
    pub(crate) cold: AtomicU64,
}

/// An event's place on disk, which is not removed as long as an event has it. The store keeps only the
/// parts that filters use. Answers carry a copy with the head and the encodings that were read.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) disk: Arc<Disk>,
    pub(super) number: u64,
}

/// Why an event cannot be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unavailable {
    /// The format cannot hold it.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// A relay with a higher limit of messages stored it.
    #[error("the event takes {0} bytes, more than a message may have")]
    TooLong(usize),
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] StoreError),
}

/// Encodings in the order in which they were asked for. Mostly that is one: a table of all formats
/// would take more memory than the event, and filling it more time than everything else that is
/// done with it.
///
/// A thread claims a format's place before it encodes. Threads that need the same format wait; threads
/// with another format go on to the next place.
#[derive(Debug, Default)]
struct Encodings {
    format: OnceLock<Format>,
    encoded: OnceLock<Result<Encoded, Unavailable>>,
    next: OnceLock<Box<Encodings>>,
}

impl Encodings {
    /// The encoding in this format, made by `encode` at the first call. The list grows by a node per
    /// format.
    fn get(
        &self,
        format: Format,
        encode: impl Fn() -> Result<Encoded, Unavailable>,
    ) -> Result<&Encoded, &Unavailable> {
        let mut node = self;
        loop {
            // The first format that finds a node unused takes it.
            if *node.format.get_or_init(|| format) == format {
                return node.encoded.get_or_init(encode).as_ref();
            }
            node = node.next.get_or_init(Box::default);
        }
    }

    /// The encoding in this format, if it was asked for before.
    fn find(&self, format: Format) -> Option<&Encoded> {
        let mut node = self;
        loop {
            if *node.format.get()? == format {
                return node.encoded.get()?.as_ref().ok();
            }
            node = node.next.get()?;
        }
    }
}

/// An event in one format.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    pub(crate) bytes: Box<[u8]>,
    /// The part that its messages share, compressed, where a connection wants that.
    pub(crate) shared: Shared,
    /// Bytes of `shared` that are counted.
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
        StoredEvent::with_row(event, None, expires_at(event), all)
    }

    fn with_row(
        event: &Event<'_>,
        row: Option<Arc<Row>>,
        expires_at: Option<u64>,
        all: &Arc<AllEncodings>,
    ) -> Self {
        StoredEvent {
            event: FlatEvent::from(event),
            row,
            encodings: Encodings::default(),
            indexed_tags: event
                .tags
                .iter()
                .filter(|tag| tag.len() > 1 && tag[0].chars().nth(1).is_none())
                .count(),
            expires_at,
            encoded_bytes: AtomicUsize::new(0),
            all: Arc::clone(all),
        }
    }

    /// The event of a message, with its bytes there, which equal the output of the format's codec.
    pub(crate) fn received(
        event: &Event<'_>,
        (format, bytes): (Format, &[u8]),
        all: &Arc<AllEncodings>,
    ) -> Self {
        let encoded = Encoded { bytes: bytes.into(), is_received: true, ..Encoded::default() };
        let mut stored = StoredEvent::new(event, all);
        stored.encodings.format = OnceLock::from(format);
        stored.encodings.encoded = OnceLock::from(Ok(encoded));
        stored.count(size_of::<Encodings>() + bytes.len());
        stored
    }

    /// The part of an event on disk that stays in memory, for filters, deletions and addresses.
    pub(super) fn of_row(event: &Event<'_>, row: Arc<Row>, all: &Arc<AllEncodings>) -> Self {
        let is_letter = |name: &str| name.chars().nth(1).is_none();
        let tags = event.tags.iter().filter(|tag| tag.first().is_some_and(|name| is_letter(name)));
        let tags =
            tags.map(|tag| tag.iter().take(2).map(|value| Cow::Borrowed(&**value)).collect()).collect();
        let Event { id, pubkey, created_at, kind, .. } = *event;
        let kept = Event { id, pubkey, created_at, kind, tags, content: "".into(), sig: [0; 64] };
        StoredEvent::with_row(&kept, Some(row), expires_at(event), all)
    }

    /// Its row, if it is read from there.
    pub(super) fn row(&self) -> Option<&Arc<Row>> {
        self.row.as_ref()
    }

    /// The head of an event on disk, for answers. The rest is read when it is sent.
    pub(super) fn copy_of_head(&self) -> StoredEvent {
        let EventHead { id, pubkey, created_at, kind } = *self.head();
        let head = Event { id, pubkey, created_at, kind, tags: vec![], content: "".into(), sig: [0; 64] };
        let copy = StoredEvent::with_row(&head, self.row.clone(), None, &self.all);
        copy.count(size_of::<Self>());
        copy
    }

    /// Whether it is of a kind that relays keep.
    pub(crate) fn is_kept(&self) -> bool {
        KindClass::from_kind(self.head().kind) != KindClass::Ephemeral
    }

    /// Its id, author, time and kind.
    pub(crate) fn head(&self) -> &EventHead {
        &self.event.head
    }

    /// When it expires, in seconds since 1970.
    pub(super) fn expires_at(&self) -> Option<u64> {
        self.expires_at
    }

    /// The part of the event that filters look at: of one in memory, all of it.
    pub(crate) fn event(&self) -> &FlatEvent {
        &self.event
    }

    /// The whole event.
    pub(crate) fn whole(&self) -> Result<Event<'_>, StoreError> {
        match &self.row {
            None => Ok(self.event.to_event()),
            Some(row) => self.read(row, |event| event.into_owned()),
        }
    }

    /// Takes the event from its row, or from what was read of it before.
    fn read<R>(&self, row: &Row, take: impl FnOnce(Event<'_>) -> R) -> Result<R, StoreError> {
        let Row { disk, number } = row;
        let decode = |bytes: &[u8]| disk.decode(*number, bytes).map(take);
        match self.encodings.find(disk.format()) {
            Some(encoded) => decode(&encoded.bytes),
            None => disk.read(*number, decode)?,
        }
    }

    /// The event as the format's codec writes it; the first call for a format does the work, and
    /// says so.
    pub(crate) fn encoded(&self, format: Format, codec: &dyn Codec) -> Result<&Encoded, &Unavailable> {
        self.encodings.get(format, || match &self.row {
            None => self.encode_cold(&self.event.to_event(), codec),
            Some(row) if row.disk.format() == format => {
                let bytes: Box<[u8]> = row.disk.read(row.number, |bytes| bytes.into())?;
                self.count(size_of::<Encodings>() + bytes.len());
                self.all.cold.fetch_add(1, Ordering::Relaxed);
                Ok(Encoded { bytes, ..Encoded::default() })
            }
            Some(row) => self.read(row, |event| self.encode_cold(&event, codec))?,
        })
    }

    /// As [`StoredEvent::encoded`], for a caller that still has the decoded `event`: no row is read.
    pub(crate) fn encoded_from(
        &self,
        event: &Event<'_>,
        format: Format,
        codec: &dyn Codec,
    ) -> Result<&Encoded, &Unavailable> {
        self.encodings.get(format, || self.encode_cold(event, codec))
    }

    /// The row of the `event` that this was made of. Encoding it is no part of any delivery.
    pub(crate) fn encoded_for_disk(&self, event: &Event<'_>, disk: &Disk) -> Result<&Encoded, &Unavailable> {
        self.encodings.get(disk.format(), || self.encode(event, disk.codec()))
    }

    /// Encodes for a first delivery.
    fn encode_cold(&self, event: &Event<'_>, codec: &dyn Codec) -> Result<Encoded, Unavailable> {
        let encoded = self.encode(event, codec)?;
        self.all.cold.fetch_add(1, Ordering::Relaxed);
        Ok(encoded)
    }

    fn encode(&self, event: &Event<'_>, codec: &dyn Codec) -> Result<Encoded, Unavailable> {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            scratch.shrink_to(MAX_SCRATCH_BYTES);
            codec.encode_event(event, scratch)?;
            let bytes: Box<[u8]> = scratch.as_slice().into();
            self.count(size_of::<Encodings>() + bytes.len());
            Ok(Encoded { bytes, ..Encoded::default() })
        })
    }

    /// Counts what was compressed of an encoding since this was last asked.
    pub(crate) fn count_compressed(&self, encoded: &Encoded) {
        let held = encoded.shared.held_bytes();
        if held > encoded.counted_bytes.load(Ordering::Relaxed) {
            let counted = encoded.counted_bytes.fetch_max(held, Ordering::Relaxed);
            self.count(held.saturating_sub(counted));
        }
    }

    /// Counts memory of the event that is no part of [`StoredEvent::held_bytes`].
    pub(super) fn count(&self, bytes: usize) {
        self.encoded_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.all.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn key(&self) -> Key {
        (Reverse(self.head().created_at), self.head().id)
    }

    /// Bytes of the event itself in memory, roughly: enough to bound the store.
    pub(crate) fn held_bytes(&self) -> usize {
        const INDEXES_BYTES: usize = 4 * 80;
        const TAG_BYTES: usize = 96;
        let row_bytes = self.row.as_ref().map_or(0, |_| size_of::<Row>());
        size_of::<Self>()
            + row_bytes
            + INDEXES_BYTES
            + self.indexed_tags * TAG_BYTES
            + self.event.heap_bytes()
    }

    /// At least what [`StoredEvent::of_row`] of the same event would hold in memory.
    pub(super) fn max_row_bytes(&self) -> usize {
        self.held_bytes() + size_of::<Row>() - self.event.content().len()
    }
}

/// From when on an event is to be dropped, in seconds since 1970 (NIP-40). What is no number is no
/// expiration.
pub(crate) fn expires_at(event: &Event<'_>) -> Option<u64> {
    event.first_tag_value("expiration")?.parse().ok()
}

/// Bytes that a thread keeps to encode the next event in: more than nearly all of them need.
const MAX_SCRATCH_BYTES: usize = 64 << 10;

impl Drop for StoredEvent {
    fn drop(&mut self) {
        self.all.bytes.fetch_sub(*self.encoded_bytes.get_mut(), Ordering::Relaxed);
    }
}
