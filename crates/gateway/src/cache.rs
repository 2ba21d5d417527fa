//! Events encoded and compressed once for all clients that receive them.
//!
//! The key is what the relay sent after the subscription id: the event's bytes and `]`. Two generations
//! stand for a list in order of use: an event that is used again in the older one moves to the
//! younger, and the older one makes room as a whole.

use std::{
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use ahash::HashMap;
use bytes::Bytes;
use codecs::{Event, Format};
use recording::PRIVATE;
use wire::Shared;

use crate::transcode;

/// Memory of an entry beside its bytes.
const ENTRY_BYTES: usize = 256;

/// The events that were sent last.
#[derive(Debug)]
pub(crate) struct Cache {
    max_bytes: usize,
    generations: Mutex<Generations>,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Bytes, Arc<Entry>>,
    old: HashMap<Bytes, Arc<Entry>>,
    young_bytes: usize,
    old_bytes: usize,
}

/// An event that any client may receive.
#[derive(Debug)]
pub(crate) struct Entry {
    json: Bytes,
    /// In each format that a client needed; `None` if the format does not hold the event.
    encoded: Mutex<Vec<(Format, Option<Arc<Encoded>>)>>,
    /// Bytes as its generation counts them.
    counted: AtomicUsize,
}

/// An event in one format, with its compressions.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) bytes: Bytes,
    pub(crate) shared: Shared,
}

impl Cache {
    pub(crate) fn new(max_bytes: usize) -> Cache {
        Cache { max_bytes, generations: Mutex::default(), hits: 0.into(), misses: 0.into() }
    }

    /// The entry of [`EventMessage::rest`](transcode::EventMessage); `None` if it is no event, or a
    /// private one.
    pub(crate) fn entry(&self, json: &[u8]) -> Option<Arc<Entry>> {
        if let Some(entry) = self.lock().used(json) {
            self.hits.fetch_add(1, Relaxed);
            return Some(entry);
        }
        decoded(json).filter(|event| !PRIVATE.contains(&event.kind))?;
        self.misses.fetch_add(1, Relaxed);
        let json = Bytes::copy_from_slice(json);
        let entry = Arc::new(Entry { json: json.clone(), encoded: Mutex::default(), counted: 0.into() });
        // Another client may have been faster.
        let entry = Arc::clone(self.lock().young.entry(json).or_insert(entry));
        self.weigh(&entry);
        Some(entry)
    }

    /// Counts the bytes of an entry again, after something was made for it.
    pub(crate) fn weigh(&self, entry: &Arc<Entry>) {
        let bytes = entry.held_bytes();
        if entry.counted.load(Relaxed) == bytes {
            return;
        }
        let mut all = self.lock();
        let is_young = all.young.get(&entry.json).is_some_and(|kept| Arc::ptr_eq(kept, entry));
        if is_young {
            all.young_bytes = all.young_bytes - entry.counted.swap(bytes, Relaxed) + bytes;
            if all.young_bytes > self.max_bytes / 2 {
                all.age();
            }
        }
    }

    /// Events and bytes that are kept.
    pub(crate) fn size(&self) -> (usize, usize) {
        let all = self.lock();
        (all.young.len() + all.old.len(), all.young_bytes + all.old_bytes)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Generations> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn used(&mut self, json: &[u8]) -> Option<Arc<Entry>> {
        if let Some(entry) = self.young.get(json) {
            return Some(Arc::clone(entry));
        }
        let (json, entry) = self.old.remove_entry(json)?;
        let bytes = entry.counted.load(Relaxed);
        self.old_bytes -= bytes;
        self.young_bytes += bytes;
        self.young.insert(json, Arc::clone(&entry));
        Some(entry)
    }

    fn age(&mut self) {
        self.old = mem::take(&mut self.young);
        self.old_bytes = mem::take(&mut self.young_bytes);
    }
}

impl Entry {
    /// The event in a format, encoded by the first client that needs it; `None` if the format does
    /// not give it back equal.
    pub(crate) fn encoded(&self, format: Format) -> Option<Arc<Encoded>> {
        let mut all = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, encoded)) = all.iter().find(|(of, _)| *of == format) {
            return encoded.clone();
        }
        let bytes = if format == Format::JSON {
            Some(self.json.clone())
        } else {
            let json = transcode::event_of(&self.json)?;
            decoded(&self.json)
                .and_then(|event| Some(transcode::event(&event, json, transcode::codec(format))?.into()))
        };
        let encoded = bytes.map(|bytes| Arc::new(Encoded { bytes, shared: Shared::default() }));
        all.push((format, encoded.clone()));
        encoded
    }

    fn held_bytes(&self) -> usize {
        let all = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        let encoded = all.iter().flat_map(|(_, encoded)| encoded);
        let more = encoded.map(|one| ENTRY_BYTES + one.bytes.len() + one.shared.held_bytes());
        ENTRY_BYTES + self.json.len() + more.sum::<usize>()
    }
}

fn decoded(json: &[u8]) -> Option<Event<'_>> {
    transcode::codec(Format::JSON).decode_event(transcode::event_of(json)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: u16, content: &str) -> String {
        let key = "07".repeat(32);
        format!(
            r#"{{"id":"{key}","pubkey":"{key}","created_at":1,"kind":{kind},"tags":[],"content":"{content}","sig":"{key}{key}"}}]"#
        )
    }

    #[test]
    fn private_kinds_and_what_is_no_event_are_not_kept() {
        let cache = Cache::new(1 << 20);
        for kind in PRIVATE {
            assert!(cache.entry(event(kind, "").as_bytes()).is_none(), "{kind}");
        }
        let broken = [
            r#"{"kind":1}]"#,
            "{}]",
            "{",
            "",
            &(event(1, "") + "x"),
            &event(1, "").replace(",\"tags", ",\"kind\":4,\"tags"),
        ];
        for json in broken {
            assert!(cache.entry(json.as_bytes()).is_none(), "{json}");
        }
        assert_eq!(cache.size(), (0, 0));
        assert!(cache.entry(event(1, "").as_bytes()).is_some());
        assert_eq!(cache.size().0, 1);
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let cache = Cache::new(64 << 10);
        let used = cache.entry(event(1, "used").as_bytes()).unwrap();
        for n in 0..2_000 {
            let entry = cache.entry(event(1, &n.to_string()).as_bytes()).unwrap();
            for format in [Format::JSON, "dannypack".parse().unwrap()] {
                assert!(entry.encoded(format).is_some());
            }
            cache.weigh(&entry);
            let again = cache.entry(event(1, "used").as_bytes()).unwrap();
            assert!(Arc::ptr_eq(&used, &again));
            let (_, bytes) = cache.size();
            assert!(bytes <= (64 << 10) + 4_096, "{n}: {bytes}");
        }
        assert_eq!((cache.hits.load(Relaxed), cache.misses.load(Relaxed)), (2_000, 2_001));
        assert!(cache.size().0 < 100, "{:?}", cache.size());
    }
}
