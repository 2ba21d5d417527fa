//! Bytes of a relay's messages under a dictionary and the other compressions, over connections in
//! memory, which have all that a socket would carry.

use std::{collections::HashSet, path::Path};

use anyhow::{Context, bail};
use codecs::{Event, Format, Implementation};
use corpus::Events;
use wire::{Compression, Dictionary, Shared};

use super::{
    in_memory::{at_once, pair},
    tell_skipped,
};

/// The id of the subscription that the events are sent to.
const SUBSCRIPTION: &str = "sub:1";

/// The most events that are tried.
const MOST: usize = 100_000;

/// Events that a dictionary is tried on.
pub(crate) struct Trial {
    events: Vec<Event<'static>>,
    ids: HashSet<[u8; 32]>,
    authors: HashSet<[u8; 32]>,
}

impl Trial {
    /// Reads them, the first hundred thousand.
    ///
    /// # Errors
    /// Names the file and the line that is no event.
    pub(crate) fn read(file: &Path, skip_invalid: bool) -> anyhow::Result<Trial> {
        let mut source = Events::open(file, skip_invalid)?;
        let events = (&mut source).take(MOST).collect::<Result<Vec<_>, _>>()?;
        tell_skipped(file, source.skipped());
        if events.is_empty() {
            bail!("{} has no event to try a dictionary on", file.display());
        }
        let ids = events.iter().map(|event| event.id).collect();
        let authors = events.iter().map(|event| event.pubkey).collect();
        Ok(Trial { events, ids, authors })
    }

    /// Whether the trial has this event, or one by the same author.
    pub(crate) fn has(&self, event: &Event<'_>, by_author: bool) -> bool {
        self.ids.contains(&event.id) || by_author && self.authors.contains(&event.pubkey)
    }

    /// The table that is printed: bytes of a message, frames included, by each compression.
    ///
    /// # Errors
    /// When an event has no message in the format.
    pub(crate) fn table(&self, format: Format, trained: Dictionary) -> anyhow::Result<String> {
        let mut rows = Vec::new();
        for name in ["none", "deflate-shared", "zstd-shared"] {
            rows.push((name.to_owned(), name.parse::<Compression>()?));
        }
        let with = |dictionary| anyhow::Ok("zstd-dict".parse::<Compression>()?.with_dictionary(dictionary));
        if let Some(bundled) = Dictionary::bundled(format.name()) {
            rows.push((format!("zstd-dict, bundled {}", bundled.id()), with(bundled)?));
        }
        rows.push((format!("zstd-dict, this one {}", trained.id()), with(trained)?));
        let mut table = format!(
            "{} messages of {format}, bytes of one at the socket\n{:<30} {:>8} {:>6}",
            self.events.len(),
            "compression",
            "bytes",
            "×none"
        );
        let mut plain = None;
        for (name, compression) in rows {
            let bytes = self.bytes(format, compression)?;
            let whole = *plain.get_or_insert(bytes);
            table += &format!("\n{name:<30} {bytes:>8.0} {:>6.2}", bytes / whole);
        }
        Ok(table)
    }

    /// Bytes of a message, on average.
    fn bytes(&self, format: Format, compression: Compression) -> anyhow::Result<f64> {
        let (mut client, mut relay) = pair(format, compression)?;
        let codec = format.codec(Implementation::Tuned)?;
        let before = relay.traffic().sent.wire_bytes;
        for event in &self.events {
            let (mut encoded, mut payload) = (Vec::new(), Vec::new());
            codec.encode_event(event, &mut encoded)?;
            let prefix_bytes = codec.wrap_event(SUBSCRIPTION, &encoded, &mut payload);
            let (prefix, common) = payload.split_at(prefix_bytes);
            at_once(relay.feed_shared(prefix, [common, b""], &Shared::default()))??;
            at_once(relay.flush())??;
            let message = at_once(client.next())?.context("the connection ended")??;
            if message.payload != payload {
                bail!("a message of {} bytes came otherwise than it was sent", payload.len());
            }
        }
        let sent = relay.traffic().sent.wire_bytes - before;
        #[expect(clippy::cast_precision_loss, reason = "sizes here are far below 2^52")]
        Ok(sent as f64 / self.events.len() as f64)
    }
}
