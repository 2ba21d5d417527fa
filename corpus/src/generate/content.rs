//! The content of each kind.

use codecs::Event;

use super::{Builder, Context, author_keys, json, text};
use crate::{keys, random::Random};

/// Content lengths of real gift wraps cluster on NIP-44's padding steps; out of 131.
const GIFT_WRAP_BYTES: [(usize, usize); 8] =
    [(1707, 40), (1466, 36), (1456, 13), (1796, 11), (2844, 8), (2140, 7), (944, 3), (1284, 3)];

/// Reactions, out of 575.
const REACTIONS: [(&str, usize); 10] = [
    ("+", 260),
    ("🤙", 110),
    ("💜", 40),
    ("😂", 38),
    ("🧡", 25),
    ("🤣", 24),
    ("❤️", 22),
    ("🫂", 20),
    ("💯", 19),
    ("😭", 17),
];

impl Builder {
    pub(super) fn content(&mut self, context: &Context, bytes: usize) -> String {
        match context.kind {
            0 => self.profile(bytes),
            3 => self.relay_map(bytes),
            4 => nip04(&mut self.random, bytes),
            6 | 16 => self.repost(context, bytes),
            7 => draw(&mut self.random, &REACTIONS).to_owned(),
            1059 => self.gift_wrap(bytes),
            // Lists keep their private part encrypted; wallets, drafts and groups are encrypted whole.
            13 | 445 | 1060 | 7374..=7376 | 10_000..=10_015 | 17_375 | 30_000..=30_003 | 31_234 | 37_375 => {
                base64(&mut self.random, bytes)
            }
            6_000..=6_999 => self.search_result(bytes),
            30_023 | 30_024 | 30_040 | 30_041 | 30_818 => self.vocabulary.text(&mut self.random, bytes, 1),
            _ => self.vocabulary.text(&mut self.random, bytes, 3),
        }
    }

    /// Kind 0: JSON, the text about oneself as long as the rest of `bytes` allows.
    fn profile(&mut self, bytes: usize) -> String {
        if bytes < 20 {
            return "{}".to_owned();
        }
        let random = &mut self.random;
        let name = self.vocabulary.name(random).to_owned();
        let host = random.pick(&text::HOSTS);
        let mut fields = vec![("name", name.clone())];
        for (field, share, value) in [
            ("display_name", 0.76, format!("{name} {}", self.vocabulary.name(random))),
            ("picture", 0.91, text::address(random, "jpg")),
            ("nip05", 0.75, format!("{name}@{host}")),
            ("lud16", 0.77, format!("{name}@{host}")),
            ("banner", 0.77, text::address(random, "jpg")),
            ("website", 0.66, format!("https://{host}/{name}")),
        ] {
            if random.chance(share) {
                fields.push((field, value));
            }
        }
        // Short profiles lack the less usual fields.
        while fields.len() > 1 && profile_json(&fields).len() + 12 > bytes {
            fields.pop();
        }
        let rest = bytes.saturating_sub(profile_json(&fields).len() + 11);
        fields.insert(1, ("about", self.vocabulary.text(random, rest, 3)));
        profile_json(&fields)
    }

    /// Kind 3: what clients once kept there, `{"wss://…":{"read":true,"write":true},…}`; nothing in two thirds.
    fn relay_map(&mut self, bytes: usize) -> String {
        if bytes == 0 {
            return String::new();
        }
        let mut relays: Vec<String> = Vec::new();
        let mut length = 2;
        while length < bytes && relays.len() < 400 {
            let relay = self.relays.draw(&mut self.random);
            let entry = format!("\"{relay}\":{{\"read\":true,\"write\":{}}}", self.random.chance(0.8));
            length += entry.len() + 1;
            relays.push(entry);
        }
        format!("{{{}}}", relays.join(","))
    }

    /// Kinds 6 and 16: the reposted event, or nothing.
    fn repost(&mut self, context: &Context, bytes: usize) -> String {
        match context.answers.or(self.notes.last().copied()) {
            Some(note) if bytes > 0 => self.embedded(note),
            _ => String::new(),
        }
    }

    fn gift_wrap(&mut self, bytes: usize) -> String {
        let random = &mut self.random;
        let bytes = if random.chance(121.0 / 131.0) { draw(random, &GIFT_WRAP_BYTES) } else { bytes };
        match random.chance(0.36) {
            // NIP-44: the first byte, 2, is the version.
            true => format!("Ag{}", base64(random, bytes.saturating_sub(2))),
            false => format!("v2:{}", base64(random, bytes.saturating_sub(3))),
        }
    }

    /// Kinds 6000 to 6999: a JSON list of `["e", id]`.
    fn search_result(&mut self, bytes: usize) -> String {
        let mut list = String::from("[");
        while list.len() + 73 <= bytes {
            let separator = if list.len() == 1 { "" } else { "," };
            list += &format!("{separator}[\"e\",\"{}\"]", codecs::hex::encode(&self.random.bytes32()));
        }
        list.push(']');
        list
    }

    /// The zap request (kind 9734) or job request (kind 5300) that a receipt or a result quotes.
    pub(super) fn quoted_request(&mut self, context: &mut Context, kind: u16) -> String {
        let author = self.random.below(author_keys().len());
        let mut tags = vec![vec!["p".into(), codecs::hex::encode(&self.mention(context)).into()]];
        if kind == 9734 {
            let note = self.answered_id(context);
            tags.push(vec!["e".into(), note.into()]);
            tags.push(vec!["amount".into(), format!("{}000", self.random.between(21, 9_999)).into()]);
        } else {
            let alt = self.vocabulary.text(&mut self.random, 30, 0);
            tags.push(vec!["alt".into(), alt.into()]);
        }
        let mut relays = vec!["relays".into()];
        for _ in 0..self.random.between(2, 8) {
            relays.push(self.relays.draw(&mut self.random).to_owned().into());
        }
        tags.push(relays);
        let mut request = Event {
            id: [0; 32],
            pubkey: [0; 32],
            created_at: context.created_at,
            kind,
            tags,
            content: "".into(),
            sig: [0; 64],
        };
        keys::sign(&mut request, &author_keys()[author]);
        json(&request)
    }
}

/// `{"field":"value",…}`
fn profile_json(fields: &[(&str, String)]) -> String {
    let fields: Vec<_> = fields
        .iter()
        .map(|(field, value)| {
            let value = serde_json::to_string(value).expect("text is always JSON");
            format!("\"{field}\":{value}")
        })
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// NIP-04: AES-CBC blocks of 16 bytes in base64, then the initialization vector.
fn nip04(random: &mut Random, bytes: usize) -> String {
    let blocks = (bytes.saturating_sub(28) * 3 / 4 / 16).max(1);
    format!("{}?iv={}", padded_base64(random, 16 * blocks), padded_base64(random, 16))
}

/// Random base64 of exactly this length, padded where that is a multiple of four.
fn base64(random: &mut Random, length: usize) -> String {
    match length % 4 {
        0 => padded_base64(random, length / 4 * 3),
        _ => sextets(random, length),
    }
}

/// Random bytes as base64.
fn padded_base64(random: &mut Random, bytes: usize) -> String {
    let mut text = sextets(random, (bytes * 8).div_ceil(6));
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

fn sextets(random: &mut Random, length: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes.into_iter().map(|byte| char::from(ALPHABET[usize::from(byte & 63)])).collect()
}

/// One of the items, by weight.
fn draw<T: Copy>(random: &mut Random, items: &[(T, usize)]) -> T {
    let total = items.iter().map(|(_, weight)| weight).sum();
    let mut rest = random.below(total);
    for &(item, weight) in items {
        if rest < weight {
            return item;
        }
        rest -= weight;
    }
    unreachable!("the draw is below the sum of weights")
}
