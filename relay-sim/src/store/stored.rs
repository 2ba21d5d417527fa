//! An event that the relay has, and what it is in each format.

use std::{
    cmp::Reverse,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use codecs::{Codec, EncodeError, Event, Format};
use wire::SharedDeflate;

use super::Key;

/// An event, and its encoding in each format that somebody asked for so far.
#[derive(Debug)]
pub(crate) struct StoredEvent {
    pub(crate) event: Event<'static>,
    encodings: Encodings,
    /// What the encodings hold in memory, and the relay's sum of that.
    encoded_bytes: AtomicUsize,
    all_encoded_bytes: Arc<AtomicUsize>,
}

/// Encodings in the order in which they were asked for. Mostly that is one: a table of all formats would take more memory
/// than the event, and filling it more time than everything else that is done with it.
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
    ) -> &Result<Encoded, EncodeError> {
        let mut node = self;
        loop {
            let (of, encoded) = node.entry.get_or_init(|| (format, encode()));
            if *of == format {
                return encoded;
            }
            node = node.next.get_or_init(Box::default);
        }
    }
}

/// An event in one format.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    pub(crate) bytes: Bytes,
    /// What its messages have in common, compressed, where a connection shares that.
    pub(crate) shared: SharedDeflate,
    /// What of `shared` is counted.
    counted_bytes: AtomicUsize,
}

impl StoredEvent {
    /// An event of the relay whose encodings are counted in `all_encoded_bytes`, as long as it lives.
    pub(crate) fn new(event: Event<'static>, all_encoded_bytes: &Arc<AtomicUsize>) -> Self {
        StoredEvent {
            event,
            encodings: Encodings::default(),
            encoded_bytes: AtomicUsize::new(0),
            all_encoded_bytes: Arc::clone(all_encoded_bytes),
        }
    }

    /// The event as the format's codec writes it; the first call for a format does the work, and says so.
    pub(crate) fn encoded(&self, format: Format, codec: &dyn Codec) -> Result<&Encoded, &EncodeError> {
        let encode = || {
            let mut out = Vec::with_capacity(512 + self.event.content.len());
            codec.encode_event(&self.event, &mut out)?;
            out.shrink_to_fit(); // it is kept as long as the event
            self.count(size_of::<Encodings>() + out.capacity());
            Ok(Encoded { bytes: out.into(), ..Encoded::default() })
        };
        self.encodings.get(format, encode).as_ref()
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
        self.all_encoded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn key(&self) -> Key {
        (Reverse(self.event.created_at), self.event.id)
    }

    /// What the event itself holds in memory, roughly: enough to bound the store.
    pub(super) fn held_bytes(&self) -> usize {
        let values = self.event.tags.iter().flatten();
        let text: usize = values.map(|value| value.len() + size_of_val(value)).sum();
        const INDEXES_BYTES: usize = 4 * 80;
        size_of::<Self>() + INDEXES_BYTES + self.event.content.len() + 24 * self.event.tags.len() + text
    }
}

impl Drop for StoredEvent {
    fn drop(&mut self) {
        self.all_encoded_bytes.fetch_sub(*self.encoded_bytes.get_mut(), Ordering::Relaxed);
    }
}
