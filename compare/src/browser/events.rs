//! The events that a page decodes, in every format, and the REQ that it sends.

use anyhow::{Context, Result, ensure};
use codecs::{ClientMessage, Codec, Event, Filter, Format, Implementation};
use corpus::Corpus;
use measure::CorpusRecord;
use serde_json::{Value, json};
use wire::Compression;

use crate::usage::read_corpus;

/// Every event of the corpus that all formats of the run can hold: what decoders are checked on.
pub(crate) const ALL: &str = "all";
/// Kinds and sizes as the corpus has them.
pub(crate) const MIXED: &str = "mixed";
/// Events with many tags.
pub(crate) const LISTS: &str = "lists";

/// Events of a set at most: a client's start, and what fits the caches as little as there.
const MIXED_EVENTS: usize = 1_000;
const LISTS_EVENTS: usize = 200;
/// The tags from which an event is a list.
const LIST_TAGS: usize = 20;

/// Ends the name of a format whose messages are those of the zstd layer.
pub(crate) const ZSTD_LAYER: &str = "+zstd";

/// The subscription of every REQ.
const SUBSCRIPTION: &str = "feed";
/// The limit of every REQ: more events than a set has.
const REQUEST_LIMIT: u64 = 5_000;

/// The events by set.
#[derive(Debug)]
pub(crate) struct Events {
    events: Vec<Event<'static>>,
    /// Events that one of the formats cannot hold.
    pub(crate) set_aside: usize,
    /// Name and fingerprint of the corpus, as results record them.
    pub(crate) corpus: CorpusRecord,
}

impl Events {
    /// Reads the corpus, the bundled one without a file, and leaves out what one of the formats
    /// cannot hold.
    ///
    /// # Errors
    /// When the file cannot be read, or the formats hold nothing of it together.
    pub(crate) fn read(file: Option<&str>, skip_invalid: bool, formats: &[String]) -> Result<Events> {
        let mut corpus = match file {
            Some(file) => read_corpus(file, skip_invalid)?,
            None => Corpus::bundled(),
        };
        let record = workload::corpus_record(&corpus);
        let before = corpus.events.len();
        for name in formats {
            let codec = codec(name)?;
            corpus.events.retain(|event| codec.encode_event(event, &mut Vec::new()).is_ok());
        }
        ensure!(!corpus.events.is_empty(), "{}: no event that all of the formats can hold", corpus.name);
        let set_aside = before - corpus.events.len();
        Ok(Events { events: corpus.events, set_aside, corpus: record })
    }

    /// The events of a set, evenly from all over the corpus; none of a name that is no set.
    pub(crate) fn in_set(&self, set: &str) -> Vec<&Event<'static>> {
        let (most, least_tags) = match set {
            ALL => (usize::MAX, 0),
            MIXED => (MIXED_EVENTS, 0),
            LISTS => (LISTS_EVENTS, LIST_TAGS),
            _ => (0, 0),
        };
        let fitting: Vec<_> = self.events.iter().filter(|event| event.tags.len() >= least_tags).collect();
        let taken = fitting.len().min(most);
        (0..taken).map(|place| fitting[place * fitting.len() / taken]).collect()
    }

    /// The events of a set in a format, which may have [`ZSTD_LAYER`] behind it, each behind its
    /// length as u32 LE.
    pub(crate) fn frames(&self, set: &str, name: &str) -> Result<Vec<u8>> {
        let (format, compression) = match name.strip_suffix(ZSTD_LAYER) {
            Some(format) => (format, "zstd".parse()?),
            None => (name, Compression::None),
        };
        let codec = codec(format)?;
        let (mut frames, mut event) = (Vec::new(), Vec::new());
        for one in self.in_set(set) {
            event.clear();
            codec.encode_event(one, &mut event)?;
            if let Compression::Zstd(layer) = compression {
                event = wire::zstd_message(layer, &event)?.into();
            }
            frames.extend_from_slice(
                &u32::try_from(event.len()).context("an event below 4 GiB")?.to_le_bytes(),
            );
            frames.extend_from_slice(&event);
        }
        Ok(frames)
    }
}

/// A REQ for everything that is stored, as a page sends it: text in JSON, else a list of bytes.
pub(crate) fn request(format: Format) -> Result<Value> {
    let filter = Filter { limit: Some(REQUEST_LIMIT), ..Filter::default() };
    let message = ClientMessage::Req { subscription: SUBSCRIPTION.into(), filters: vec![filter] };
    let mut bytes = Vec::new();
    format.codec(Implementation::Library)?.encode_client(&message, &mut bytes)?;
    Ok(if format == Format::JSON { json!(String::from_utf8(bytes)?) } else { json!(bytes) })
}

fn codec(format: &str) -> Result<&'static dyn Codec> {
    Ok(format.parse::<Format>()?.codec(Implementation::Library)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_come_from_all_over_the_corpus() {
        let events = Events::read(None, false, &["dannypack".to_owned()]).unwrap();
        let (all, mixed, lists) = (events.in_set(ALL), events.in_set(MIXED), events.in_set(LISTS));
        assert_eq!((all.len() + events.set_aside, mixed.len()), (5_000, MIXED_EVENTS));
        assert!((50..=LISTS_EVENTS).contains(&lists.len()), "{}", lists.len());
        assert!(lists.iter().all(|event| event.tags.len() >= LIST_TAGS));
        assert_eq!(mixed[0], all[0]);
        assert!(mixed[MIXED_EVENTS - 1].id != all[MIXED_EVENTS - 1].id);
        assert!(events.in_set("xml").is_empty());
    }

    #[test]
    fn what_a_format_cannot_hold_is_left_out_for_all() {
        let everything = Events::read(None, false, &[]).unwrap();
        let leaner = Events::read(None, false, &["leaner".to_owned()]).unwrap();
        assert!(leaner.set_aside > 0 && everything.set_aside == 0);
        assert_eq!(leaner.in_set(ALL).len() + leaner.set_aside, everything.in_set(ALL).len());
        assert_eq!(leaner.corpus, everything.corpus);
    }

    #[test]
    fn frames_are_events_behind_their_lengths() {
        let events = Events::read(None, false, &[]).unwrap();
        let frames = events.frames(LISTS, "json").unwrap();
        let (mut rest, mut count) = (&frames[..], 0);
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let (event, behind) = behind.split_at(u32::from_le_bytes(*length).try_into().unwrap());
            serde_json::from_slice::<Value>(event).unwrap();
            (rest, count) = (behind, count + 1);
        }
        assert_eq!((rest.len(), count), (0, events.in_set(LISTS).len()));
    }

    #[test]
    fn a_request_is_text_in_json_and_bytes_elsewhere() {
        let request = |name: &str| request(name.parse().unwrap()).unwrap();
        assert_eq!(request("json"), json!("[\"REQ\",\"feed\",{\"limit\":5000}]"));
        assert_eq!(request("dannypack")[0], json!(2));
    }
}
