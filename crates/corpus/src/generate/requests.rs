//! Events inside events: reposts, and the requests that receipts and results quote.

use codecs::{Event, hex};

use super::builder::{Builder, Context, Zap, again, remember};
use crate::{json::json, keys};

/// No note is shorter: its id, key and signature alone take 256 digits.
const SHORTEST_NOTE_BYTES: usize = 250;

/// Bytes by which measured reposts were longer than notes of that size, for the quotes in them are
/// escaped.
const ESCAPES_BYTES: usize = 40;

/// From this size on, a longer note is drawn than measured, to get the measured size.
const LONG_NOTE_BYTES: usize = 1_200;

/// Notes among which the one closest in size is reposted.
const CANDIDATES: usize = 200;

impl Builder<'_> {
    /// Kinds 6 and 16: the note to repost, of about `bytes`; none if the content is empty.
    pub(super) fn choose_repost(&mut self, context: &mut Context, bytes: usize) {
        let recent = self.recent.entry(context.kind).or_default();
        let popular = again(&mut self.random, &recent.notes, context.reuse.id);
        context.answers = None;
        if bytes < SHORTEST_NOTE_BYTES || self.notes.is_empty() {
            return;
        }
        // Long notes are rarer here than among what people repost.
        let wanted = if bytes < LONG_NOTE_BYTES { bytes - ESCAPES_BYTES } else { bytes + bytes / 6 };
        let notes = (0..CANDIDATES).map(|_| self.notes[self.random.below(self.notes.len())]);
        let closest = notes.min_by_key(|note| note.json_bytes.abs_diff(wanted)).map(|note| note.event);
        context.answers = popular.or(closest);
        if let (None, Some(note)) = (popular, closest) {
            remember(&mut recent.notes, note);
        }
    }

    /// Kinds 6 and 16: the reposted event, or nothing.
    pub(super) fn repost(&self, context: &Context) -> String {
        context.answers.map(|note| json(&self.events[note])).unwrap_or_default()
    }

    /// The zap of one receipt; repeated calls return the same.
    pub(super) fn zap(&mut self, context: &mut Context) -> Zap {
        if let Some(zap) = &context.zap {
            return zap.clone();
        }
        let recipient = match context.answers {
            Some(note) => self.events[note].pubkey,
            None => self.mention(context),
        };
        let zap = Zap { sender: self.sender(context), recipient, note: self.answered_id(context) };
        context.zap = Some(zap.clone());
        zap
    }

    /// Some zap often.
    fn sender(&mut self, context: &Context) -> usize {
        let recent = self.recent.entry(context.kind).or_default();
        again(&mut self.random, &recent.senders, context.reuse.id).unwrap_or_else(|| {
            let sender = self.random.below(self.generator.world.authors().len());
            remember(&mut recent.senders, sender);
            sender
        })
    }

    /// The zap request (kind 9734) that a receipt quotes, as JSON.
    pub(super) fn zap_request(&mut self, context: &mut Context) -> String {
        let zap = self.zap(context);
        let amount = format!("{}000", self.random.between(21, 9_999));
        let tags = vec![
            self.relay_set(),
            vec!["amount".into(), amount.into()],
            vec!["p".into(), hex::encode(&zap.recipient).into()],
            vec!["e".into(), zap.note.into()],
        ];
        let content = if self.random.chance(0.4) {
            let bytes = self.random.between(2, 90);
            self.generator.vocabulary.text(&mut self.random, bytes, 20)
        } else {
            String::new()
        };
        self.request(context, 9734, tags, content, zap.sender)
    }

    /// The job request (kind 5300) that a result quotes, as JSON.
    pub(super) fn job_request(&mut self, context: &mut Context) -> String {
        let author = self.random.below(self.generator.world.authors().len());
        let alt = self.generator.vocabulary.text(&mut self.random, 30, 0);
        let provider = self.generator.people()[self.generator.by_popularity.draw(&mut self.random)];
        let tags = vec![
            vec!["p".into(), hex::encode(&provider).into()],
            vec!["alt".into(), alt.into()],
            self.relay_set(),
        ];
        self.request(context, 5300, tags, String::new(), author)
    }

    fn relay_set(&mut self) -> codecs::Tag<'static> {
        let relays = self.generator.relays.set(&mut self.random);
        std::iter::once("relays".into()).chain(relays.map(|relay| relay.to_owned().into())).collect()
    }

    fn request(
        &mut self,
        context: &Context,
        kind: u16,
        tags: Vec<codecs::Tag<'static>>,
        content: String,
        author: usize,
    ) -> String {
        let mut request = Event::unsigned(kind, context.created_at, tags, content);
        keys::sign(&mut request, &self.generator.world.authors()[author]);
        json(&request)
    }
}
