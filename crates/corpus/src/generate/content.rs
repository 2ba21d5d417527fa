//! The content of each kind.

use std::collections::HashSet;

use super::{
    builder::{Builder, Context, again, remember},
    text,
};
use crate::random::Random;

/// Shortest relay map. Two thirds of lists have none; a line between quantiles of 0 and 420 bytes
/// would give too many lists one.
const SHORTEST_RELAY_MAP_BYTES: usize = 250;

/// `["e","…"]` with the comma after it.
const RESULT_ENTRY_BYTES: usize = 73;

/// Share of the ids of a repeated search that are new.
const RESULT_CHANGES: f64 = 0.2;

impl Builder<'_> {
    pub(super) fn content(&mut self, context: &Context, bytes: usize) -> String {
        match context.kind {
            0 => self.profile(bytes),
            3 => self.relay_map(bytes),
            4 => nip04(&mut self.random, bytes),
            6 | 16 => self.repost(context),
            7 => draw(&mut self.random, &self.calibration.reactions).clone(),
            1059 => self.gift_wrap(bytes),
            // Lists keep their private part encrypted; wallets, drafts and groups are encrypted
            // whole.
            13 | 445 | 1060 | 7374..=7376 | 10_000..=10_015 | 17_375 | 30_000..=30_003 | 31_234 | 37_375 => {
                base64(&mut self.random, bytes)
            }
            6_000..=6_999 => self.search_result(context, bytes),
            30_023 | 30_024 | 30_040 | 30_041 | 30_818 => {
                self.generator.vocabulary.article(&mut self.random, bytes)
            }
            _ => self.generator.vocabulary.note(&mut self.random, bytes),
        }
    }

    /// Kind 0: JSON, the text about oneself as long as the rest of `bytes` allows.
    fn profile(&mut self, bytes: usize) -> String {
        if bytes < 20 {
            return "{}".to_owned();
        }
        let random = &mut self.random;
        let name = self.generator.vocabulary.name(random).to_owned();
        let host = random.pick(&text::PIECES.hosts);
        let mut fields = vec![("name", name.clone())];
        for (field, share, value) in [
            ("display_name", 0.76, format!("{name} {}", self.generator.vocabulary.name(random))),
            ("picture", 0.91, text::upload(random)),
            ("nip05", 0.75, format!("{name}@{host}")),
            ("lud16", 0.77, format!("{name}@{host}")),
            ("banner", 0.77, text::upload(random)),
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
        fields.insert(1, ("about", self.generator.vocabulary.text(random, rest, 3)));
        profile_json(&fields)
    }

    /// Kind 3: what clients once kept there, `{"wss://…":{"read":true,"write":true},…}`; nothing in
    /// two thirds.
    fn relay_map(&mut self, bytes: usize) -> String {
        if bytes < SHORTEST_RELAY_MAP_BYTES {
            return String::new();
        }
        let mut relays: Vec<String> = Vec::new();
        let mut length = 2;
        while length < bytes && relays.len() < 400 {
            let relay = self.generator.relays.draw(&mut self.random);
            let entry = format!("\"{relay}\":{{\"read\":true,\"write\":{}}}", self.random.chance(0.8));
            length += entry.len() + 1;
            relays.push(entry);
        }
        format!("{{{}}}", relays.join(","))
    }

    fn gift_wrap(&mut self, bytes: usize) -> String {
        let random = &mut self.random;
        let steps = self.calibration.gift_wrap_bytes.iter().copied();
        let step = steps.min_by_key(|step| step.abs_diff(bytes)).unwrap_or(bytes);
        let bytes = if step.abs_diff(bytes) * 8 < bytes { step } else { bytes };
        if random.chance(0.36) {
            // NIP-44: the first byte, 2, is the version.
            format!("Ag{}", base64(random, bytes.saturating_sub(2)))
        } else {
            format!("v2:{}", base64(random, bytes.saturating_sub(3)))
        }
    }

    /// Kinds 6000 to 6999: a JSON list of `["e", id]`, each id once. Services answer alike for a
    /// while, so that runs of a result come again in later ones.
    fn search_result(&mut self, context: &Context, bytes: usize) -> String {
        let recent = self.recent.entry(context.kind).or_default();
        let count = bytes.saturating_sub(1) / RESULT_ENTRY_BYTES;
        let earlier = again(&mut self.random, &recent.lists, context.reuse.id).unwrap_or_default();
        let known: HashSet<_> = earlier.iter().copied().collect();
        let mut ids = earlier;
        ids.truncate(count);
        while ids.len() < count {
            ids.push(self.random.bytes32());
        }
        // Some results went out of date since.
        for id in &mut ids {
            if known.contains(id) && self.random.chance(RESULT_CHANGES) {
                *id = self.random.bytes32();
            }
        }
        remember(&mut recent.lists, ids.clone());
        let entries: Vec<_> =
            ids.iter().map(|id| format!("[\"e\",\"{}\"]", codecs::hex::encode(id))).collect();
        format!("[{}]", entries.join(","))
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

/// Random base64 of exactly this length, padded if that is a multiple of four.
fn base64(random: &mut Random, length: usize) -> String {
    match length % 4 {
        0 => padded_base64(random, length / 4 * 3),
        _ => random.base64(length),
    }
}

/// Random bytes as base64.
fn padded_base64(random: &mut Random, bytes: usize) -> String {
    let mut text = random.base64((bytes * 8).div_ceil(6));
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

/// One of the items, by weight.
fn draw<'i, T>(random: &mut Random, items: &'i [(T, usize)]) -> &'i T {
    let total = items.iter().map(|(_, weight)| weight).sum();
    let mut rest = random.below(total);
    for (item, weight) in items {
        if rest < *weight {
            return item;
        }
        rest -= weight;
    }
    unreachable!("the draw is below the sum of weights")
}
