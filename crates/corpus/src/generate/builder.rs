//! One block of events in the making.

use std::collections::{BTreeMap, HashSet, VecDeque};

use codecs::{Event, Tag};
use sha2::{Digest, Sha256};

use super::{
    Generator,
    calibration::{Calibration, Reuse, Shape},
    plan::{Author, Planned, has_one_per_author},
};
use crate::{
    json::json,
    keys::{self, World},
    random::Random,
    rules::COMMON,
};

/// Authors, keys and ids of a kind that are remembered: conversations are small and short.
const REMEMBERED: usize = 24;

/// Real follow lists reach 6,165 tags, one in forty more than this. A few of those would be most of
/// a small corpus.
const MAX_TAGS: usize = 2_000;

/// All of an event's tags and content, as measured.
const WHOLE: usize = 1_000;

/// An event of a five-digit kind without tags and content, as JSON.
const EMPTY_BYTES: usize = 346;

/// Progress, and the sources of the next event.
#[derive(Debug)]
pub(super) struct Builder<'g> {
    pub(super) generator: &'g Generator,
    pub(super) random: Random,
    pub(super) calibration: &'static Calibration,
    pub(super) events: Vec<Event<'static>>,
    /// Kind 1, for replies, reactions, reposts and zaps.
    pub(super) notes: Vec<Note>,
    pub(super) recent: BTreeMap<u16, Recent>,
}

/// A note of this block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Note {
    /// Its position.
    pub(super) event: usize,
    /// Its size.
    pub(super) json_bytes: usize,
}

/// Subjects of the last events of one kind.
#[derive(Debug, Default)]
pub(super) struct Recent {
    authors: VecDeque<usize>,
    pub(super) keys: VecDeque<[u8; 32]>,
    pub(super) ids: VecDeque<[u8; 32]>,
    pub(super) addresses: VecDeque<String>,
    /// Follow lists, for the runs that later ones share with them.
    pub(super) lists: VecDeque<Vec<[u8; 32]>>,
    /// Authors of the zap requests in receipts.
    pub(super) senders: VecDeque<usize>,
    /// Positions of notes that were answered or reposted.
    pub(super) notes: VecDeque<usize>,
}

/// State that the parts of one event share.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) kind: u16,
    pub(super) created_at: i64,
    /// The event's place in the corpus, which makes addresses unique.
    pub(super) index: u64,
    pub(super) author: Option<usize>,
    /// The note that it answers.
    pub(super) answers: Option<usize>,
    /// Whether an `e` tag names that note already.
    pub(super) answered: bool,
    /// Keys in its `p` tags so far, also in order for a follow list.
    pub(super) mentioned: HashSet<[u8; 32]>,
    pub(super) list: Vec<[u8; 32]>,
    /// The rest of a run of follows shared with an earlier list.
    pub(super) run: Vec<[u8; 32]>,
    pub(super) reuse: Reuse,
    /// The parts that a zap receipt repeats from the request in it.
    pub(super) zap: Option<Zap>,
}

/// Author, receiver and note of a zap.
#[derive(Debug, Clone)]
pub(super) struct Zap {
    pub(super) sender: usize,
    pub(super) recipient: [u8; 32],
    pub(super) note: String,
}

impl<'g> Builder<'g> {
    pub(super) fn new(generator: &'g Generator, block: u64) -> Builder<'g> {
        Builder {
            generator,
            random: Random::new("relay-sim events", generator.seed ^ block.rotate_left(32)),
            calibration: Calibration::get(),
            events: Vec::with_capacity(super::plan::BLOCK),
            notes: Vec::new(),
            recent: BTreeMap::new(),
        }
    }

    pub(super) fn build(&mut self, planned: &Planned) {
        let mut kept = WHOLE;
        let (mut event, context) = loop {
            let (event, context) = self.draft(planned, kept);
            let refused = || COMMON.refuses(&event, json(&event).len() as u64);
            if !self.generator.strict || refused().is_none() {
                break (event, context);
            }
            kept = kept * 9 / 10;
            assert!(kept > 0, "a relay takes an event of a kind's necessary tags without content");
        };
        match context.author {
            Some(author) => keys::sign(&mut event, &self.generator.world.authors()[author]),
            None => {
                let key = keys::once(&event);
                keys::sign(&mut event, &key);
            }
        }
        if planned.kind == 1 {
            let note = Note { event: self.events.len(), json_bytes: json(&event).len() };
            self.notes.push(note);
        }
        if planned.kind == 3 {
            let recent = self.recent.entry(3).or_default();
            remember(&mut recent.lists, context.list);
        }
        self.events.push(event);
    }

    /// An unsigned event, with `kept` of [`WHOLE`] parts of its tags and content.
    fn draft(&mut self, planned: &Planned, kept: usize) -> (Event<'static>, Context) {
        let shape = self.calibration.shape(planned.kind);
        let mut context = self.context(planned, shape);
        let tag_count = self.calibration.tags(shape, planned.tags_place).min(MAX_TAGS) * kept / WHOLE;
        // Relay maps are from the older clients, whose lists are longer.
        let follows = planned.kind == 3 && self.random.chance(0.5);
        let content_place = if follows { planned.tags_place } else { planned.content_place };
        let mut content_bytes = self.calibration.content_bytes(shape, content_place) * kept / WHOLE;
        if planned.kind == 6 || planned.kind == 16 {
            self.choose_repost(&mut context, content_bytes);
        }
        let tags = self.tags(&mut context, shape, tag_count);
        if planned.kind == 30_023
            && let Some(size) = self.calibration.json_bytes(shape, planned.content_place)
        {
            // Real articles keep text in long tags and in escapes; here all of it is content.
            let rest = size.saturating_sub(EMPTY_BYTES + tags.iter().map(tag_json_bytes).sum::<usize>());
            content_bytes = rest * kept / WHOLE;
        }
        let content = self.content(&context, content_bytes);
        (Event::unsigned(planned.kind, planned.created_at, tags, content), context)
    }

    /// The state of an event before its tags and content are drawn.
    fn context(&mut self, planned: &Planned, shape: &Shape) -> Context {
        Context {
            kind: planned.kind,
            created_at: planned.created_at,
            index: planned.index,
            // Drawn in this order.
            answers: self.draw_answered(planned.kind, shape.reuse.id),
            author: self.draw_author(planned, shape.reuse.author),
            answered: false,
            mentioned: HashSet::new(),
            list: Vec::new(),
            run: Vec::new(),
            reuse: shape.reuse,
            zap: None,
        }
    }

    /// The note that an event answers; in `reuse` of the draws one that was answered before.
    fn draw_answered(&mut self, kind: u16, reuse: f64) -> Option<usize> {
        // Most real answers point at events that a sample does not hold.
        if self.notes.is_empty() || !self.random.chance(0.5) {
            return None;
        }
        let recent = &mut self.recent.entry(kind).or_default().notes;
        let earlier = again(&mut self.random, recent, reuse);
        Some(earlier.unwrap_or_else(|| {
            let note = self.notes[self.random.below(self.notes.len())].event;
            remember(recent, note);
            note
        }))
    }

    /// The planned author, or in `reuse` of the draws one of the last authors of the kind. An author
    /// has one list of a kind, so lists keep the planned author.
    fn draw_author(&mut self, planned: &Planned, reuse: f64) -> Option<usize> {
        let Author::Known(author) = planned.author else { return None };
        if has_one_per_author(planned.kind) {
            return Some(author);
        }
        let recent = &mut self.recent.entry(planned.kind).or_default().authors;
        let earlier = again(&mut self.random, recent, reuse);
        if earlier.is_none() {
            remember(recent, author);
        }
        Some(earlier.unwrap_or(author))
    }

    pub(super) fn finish(self) -> Vec<Event<'static>> {
        self.events
    }

    /// A public key for a `p` tag, drawn by popularity. No key comes twice in an event.
    pub(super) fn mention(&mut self, context: &mut Context) -> [u8; 32] {
        if context.kind == 3 {
            return self.follow(context);
        }
        let recent = self.recent.entry(context.kind).or_default();
        if let Some(key) = again(&mut self.random, &recent.keys, context.reuse.key)
            && context.mentioned.insert(key)
        {
            return key;
        }
        loop {
            let key = self.generator.people()[self.generator.by_popularity.draw(&mut self.random)];
            if context.mentioned.insert(key) {
                remember(&mut recent.keys, key);
                return key;
            }
        }
    }

    /// The next key of a follow list. Lists share runs of keys, because people copy packs and other
    /// people's lists.
    fn follow(&mut self, context: &mut Context) -> [u8; 32] {
        if context.run.is_empty() && self.random.chance(context.reuse.key) {
            let lists = &self.recent.entry(3).or_default().lists;
            if !lists.is_empty() {
                let list = &lists[self.random.below(lists.len())];
                if !list.is_empty() {
                    let start = self.random.below(list.len());
                    let end = list.len().min(start + self.random.between(5, 40));
                    context.run = list[start..end].iter().rev().copied().collect();
                }
            }
        }
        loop {
            let key = match context.run.pop() {
                Some(key) => key,
                None => self.generator.people()[self.generator.by_popularity.draw(&mut self.random)],
            };
            if context.mentioned.insert(key) {
                context.list.push(key);
                return key;
            }
        }
    }
}

/// Bytes that a tag of plain text adds to an event's JSON.
fn tag_json_bytes(tag: &Tag<'_>) -> usize {
    2 + tag.iter().map(|element| element.len() + 3).sum::<usize>()
}

/// One of the remembered values, in this share of calls.
pub(super) fn again<T: Clone>(random: &mut Random, remembered: &VecDeque<T>, share: f64) -> Option<T> {
    (random.chance(share) && !remembered.is_empty())
        .then(|| remembered[random.below(remembered.len())].clone())
}

pub(super) fn remember<T>(remembered: &mut VecDeque<T>, item: T) {
    if remembered.len() == REMEMBERED {
        remembered.pop_front();
    }
    remembered.push_back(item);
}

/// The authors' keys in order of their activity, then keys of people who are only followed. The latter
/// need not be points of the curve: SHA-256("relay-sim follow target" || index as 8 bytes, big-endian).
pub(super) fn people(world: World) -> Vec<[u8; 32]> {
    let others = (keys::AUTHOR_KEYS..World::PEOPLE).map(|index| {
        let hasher = Sha256::new().chain_update("relay-sim follow target");
        hasher.chain_update(((world.first_key() + index) as u64).to_be_bytes()).finalize().into()
    });
    world.authors().iter().map(keys::public).chain(others).collect()
}
