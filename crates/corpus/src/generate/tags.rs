//! Tags in the forms that real events use.

use codecs::{Tag, hex};

use super::{
    builder::{Builder, Context, again, remember},
    calibration::{Shape, TagName},
    text,
};
use crate::{keys, random::Weighted};

/// A name in at least this share of events is in all of them.
const REQUIRED: f64 = 0.9;

/// Up to this many tags, names are as frequent as in events; longer lists consist of the names that
/// make lists long.
const SHORT: usize = 6;

/// As [`SHORT`], for deletions: longer ones have more names, the longest more ids.
const SHORT_DELETION: usize = 8;

/// Lists consist of one name in this share of their tags.
const MOSTLY: f64 = 0.8;

/// 2100-01-01: a relay may drop expired events (NIP-40), and a loaded corpus must stay whole.
const EXPIRATION: usize = 4_102_444_800;

impl Builder<'_> {
    /// `count` tags of the names this kind has; more where the kind needs more, fewer where it has
    /// no more.
    pub(super) fn tags(&mut self, context: &mut Context, shape: &Shape, count: usize) -> Vec<Tag<'static>> {
        let addressable = (30_000..40_000).contains(&context.kind);
        let mut names = Vec::new();
        for name in &shape.tag_names {
            let address = addressable && name.name == "d";
            if address || (!name.repeats && name.event_share >= REQUIRED) {
                names.push(name);
            }
        }
        for name in shape.tag_names.iter().filter(|name| name.repeats && name.event_share >= REQUIRED) {
            if names.len() < count {
                names.push(name);
            }
        }
        let mut left: Vec<_> = shape
            .tag_names
            .iter()
            .filter(|name| name.name != "d" && (name.repeats || name.event_share < REQUIRED))
            .collect();
        let short = if context.kind == 5 { SHORT_DELETION } else { SHORT };
        while names.len() < count && !left.is_empty() {
            let weights = left.iter().map(|name| extra_weight(name, context.kind, count > short));
            let weights = Weighted::new(weights);
            let drawn = weights.draw(&mut self.random);
            // If a value repeats, the rest of a long list mostly consists of it.
            let many = left[drawn].repeats && (context.kind != 5 || count > short);
            let repeats = if many { (count - names.len()).div_ceil(2) } else { 1 };
            names.extend(std::iter::repeat_n(left[drawn], repeats));
            if !left[drawn].repeats {
                left.remove(drawn);
            }
        }
        names.into_iter().map(|name| self.tag(context, name)).collect()
    }

    fn tag(&mut self, context: &mut Context, name: &TagName) -> Tag<'static> {
        let mut shape = name.draw_shape(&mut self.random);
        let refers = matches!(name.name.as_str(), "e" | "p");
        if self.generator.strict && refers && !shape.starts_with("H64") {
            shape = "H64";
        }
        let mut tag = vec![name.name.clone().into()];
        for (position, element) in shape.split(',').enumerate() {
            tag.push(self.value(context, &name.name, position, element).into());
        }
        tag
    }

    fn value(&mut self, context: &mut Context, name: &str, position: usize, element: &str) -> String {
        match element {
            "empty" => String::new(),
            "H64" => self.hex_value(context, name, position),
            "wss" => self.generator.relays.draw(&mut self.random).to_owned(),
            "http" => self.http_value(name),
            "num" => self.number(context, name, position),
            "addr" => self.address(context),
            "txt" => self.text_value(context, name, position),
            word => word.to_owned(),
        }
    }

    /// kind:key:name, as `a` tags have it.
    fn address(&mut self, context: &Context) -> String {
        let recent = self.recent.entry(context.kind).or_default();
        if let Some(address) = again(&mut self.random, &recent.addresses, context.reuse.id) {
            return address;
        }
        let kind = if context.kind == 1311 { 30_311 } else { 30_023 };
        // A deletion names what its author wrote (NIP-09).
        let author = match (context.kind, context.author) {
            (5, Some(author)) => keys::public(&self.generator.world.authors()[author]),
            _ => self.generator.people()[self.generator.by_popularity.draw(&mut self.random)],
        };
        let name = match context.kind {
            5 => self.generator.vocabulary.slug(&mut self.random, 18),
            _ => text::digits(&mut self.random, 36, 36),
        };
        let address = format!("{kind}:{}:{name}", hex::encode(&author));
        remember(&mut recent.addresses, address.clone());
        address
    }

    fn hex_value(&mut self, context: &mut Context, name: &str, position: usize) -> String {
        match (name, position) {
            ("p", 0) if context.kind == 9735 => hex::encode(&self.zap(context).recipient),
            ("e", 0) if context.kind == 9735 => self.zap(context).note,
            ("P", 0) if context.kind == 9735 => {
                hex::encode(&keys::public(&self.generator.world.authors()[self.zap(context).sender]))
            }
            // A deletion must not delete anything that is here.
            ("e", 0) if context.kind != 5 => self.answered_id(context),
            ("p", 0) if context.kind == 6 && !context.mentioned.is_empty() => self.mentioned_there(context),
            ("p", 0) => match context.answers {
                Some(note) if context.kind != 3 && context.mentioned.is_empty() => {
                    let author = self.events[note].pubkey;
                    context.mentioned.insert(author);
                    hex::encode(&author)
                }
                _ => hex::encode(&self.mention(context)),
            },
            ("P", 0) => {
                let author = self.random.below(self.generator.world.authors().len());
                hex::encode(&keys::public(&self.generator.world.authors()[author]))
            }
            _ => hex::encode(&self.random.bytes32()),
        }
    }

    /// Reposts mention the people of the note, then others.
    fn mentioned_there(&mut self, context: &mut Context) -> String {
        let note = context.answers.map(|note| &self.events[note]);
        let there = note.into_iter().flat_map(|note| &note.tags).filter(|tag| tag.len() > 1 && tag[0] == "p");
        for tag in there {
            if let Some(key) = hex::decode_array(tag[1].as_bytes())
                && context.mentioned.insert(key)
            {
                return tag[1].to_string();
            }
        }
        hex::encode(&self.mention(context))
    }

    /// The id of the note that the event answers, the first time; otherwise an event elsewhere.
    pub(super) fn answered_id(&mut self, context: &mut Context) -> String {
        let answered = std::mem::replace(&mut context.answered, true);
        if let (Some(note), false) = (context.answers, answered) {
            return hex::encode(&self.events[note].id);
        }
        let recent = self.recent.entry(context.kind).or_default();
        let id = again(&mut self.random, &recent.ids, context.reuse.id).unwrap_or_else(|| {
            let id = self.random.bytes32();
            remember(&mut recent.ids, id);
            id
        });
        hex::encode(&id)
    }

    fn http_value(&mut self, name: &str) -> String {
        let random = &mut self.random;
        match name {
            "proxy" => {
                let (host, user) = (random.pick(&text::PIECES.hosts), self.generator.vocabulary.name(random));
                format!("https://{host}/users/{user}/statuses/11{}", text::digits(random, 10, 16))
            }
            "server" => format!("https://{}", random.pick(&text::PIECES.hosts)),
            _ => text::address(random, "jpg"),
        }
    }

    fn number(&mut self, context: &Context, name: &str, position: usize) -> String {
        match name {
            "k" | "K" => ["1", "1", "1", "7", "30023"][self.random.below(5)].to_owned(),
            "expiration" => (EXPIRATION + self.random.below(100_000_000)).to_string(),
            "published_at" | "starts" | "ends" => context.created_at.to_string(),
            "nonce" if position == 1 => "16".to_owned(),
            _ => self.random.between(1, 999_999).to_string(),
        }
    }

    fn text_value(&mut self, context: &mut Context, name: &str, position: usize) -> String {
        match name {
            "description" if context.kind == 9735 => return self.zap_request(context),
            "request" => return self.job_request(context),
            _ => {}
        }
        let random = &mut self.random;
        let vocabulary = &self.generator.vocabulary;
        match name {
            "t" | "name" | "display_name" => vocabulary.name(random).to_owned(),
            "client" => random.pick(&text::PIECES.clients).to_owned(),
            "d" => format!("{}-{}", vocabulary.name(random), context.index),
            "imeta" => match position {
                0 => format!("url {}", text::address(random, "jpg")),
                1 => "m image/jpeg".to_owned(),
                2 => format!("dim {}x{}", random.between(320, 4_032), random.between(320, 4_032)),
                _ => format!("x {}", hex::encode(&random.bytes32())),
            },
            "bolt11" => {
                let (amount, length) = (random.between(1, 999), random.between(350, 440));
                format!("lnbc{amount}0n1p{}", text::digits(random, 32, length))
            }
            "proxy" => "activitypub".to_owned(),
            "lud16" | "nip05" => format!("{}@{}", vocabulary.name(random), random.pick(&text::PIECES.hosts)),
            "status" => random.pick(&["live", "ended", "success", "processing"]).to_owned(),
            "L" => "ISO-639-1".to_owned(),
            "l" => "en".to_owned(),
            "emoji" => "wave".to_owned(),
            _ => {
                let bytes = match name {
                    "alt" if context.kind == 5 => random.between(14, 20),
                    "alt" => random.between(12, 60),
                    "title" => random.between(15, 90),
                    "summary" | "about" | "description" => random.between(60, 300),
                    _ => random.between(4, 30),
                };
                vocabulary.text(random, bytes, 1).replace("\n\n", " - ")
            }
        }
    }
}

/// Weight of this name for a tag beyond the required ones.
fn extra_weight(name: &TagName, kind: u16, long: bool) -> f64 {
    let required = name.event_share >= REQUIRED;
    match kind {
        // Long deletions are of addresses more often than of ids, short ones name few of either.
        5 if long && name.name == "a" => 2.0 * name.tag_share(),
        5 if !long && required => 0.03,
        5 if !long && name.repeats => 0.42 * name.event_share,
        // Long relay lists are of relays.
        10_002 if long && !name.repeats => 0.2 * name.tag_share(),
        _ if long => name.tag_share(),
        _ if required && name.tag_share() >= MOSTLY => 3.0,
        // Elsewhere a second tag of a required name is the exception where there are few.
        _ if required => 0.1,
        _ => name.event_share,
    }
}
