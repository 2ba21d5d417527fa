//! Numbers drawn for a fault, and events spoiled by them.

use codecs::Event;

/// A source of numbers that look random.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draw(u64);

/// The fields of an event without its id.
const FIELDS: u64 = 6;

impl Draw {
    /// FNV-1a (RFC 9923) over the parts.
    pub(super) fn from<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Self {
        Draw(parts.flatten().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        }))
    }

    /// The `n`th number: SplitMix64 (Steele, Lea and Flood 2014).
    pub(super) fn next(self, n: u64) -> u64 {
        let z = self.0.wrapping_add((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The event with one field changed.
    pub(crate) fn altered(self, event: Event<'_>) -> Event<'static> {
        alter(event, self.next(1) % FIELDS)
    }

    /// An event like that one, with an id that nobody else uses.
    pub(crate) fn invented(self, event: Event<'_>) -> Event<'static> {
        let mut id = [0; 32];
        for (n, part) in (1..).zip(id.chunks_exact_mut(8)) {
            part.copy_from_slice(&self.next(n).to_le_bytes());
        }
        Event { id, ..event.into_owned() }
    }
}

/// The event with its signature changed: every format that holds the event holds that.
pub(crate) fn with_altered_sig(event: Event<'_>) -> Event<'static> {
    alter(event, FIELDS - 1)
}

fn alter(event: Event<'_>, field: u64) -> Event<'static> {
    let mut event = event.into_owned();
    match field {
        0 => event.pubkey[31] ^= 1,
        1 => event.created_at ^= 1,
        2 => event.kind ^= 1,
        3 => match event.tags.first_mut() {
            Some(tag) => match tag.last_mut() {
                Some(value) => alter_text(value.to_mut()),
                None => tag.push("0".into()),
            },
            None => event.tags.push(vec!["t".into(), "0".into()]),
        },
        4 => alter_text(event.content.to_mut()),
        _ => event.sig[63] ^= 1,
    }
    event
}

/// Changes the last character to a digit: hex stays hex, and no text becomes longer.
fn alter_text(text: &mut String) {
    let last = text.pop();
    text.push(if last == Some('0') { '1' } else { '0' });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::event;

    #[test]
    fn each_field_is_altered_and_nothing_else() {
        let plain = event(1);
        let tagged = Event { tags: vec![vec!["e".into(), "ab00".into()], vec![]], ..event(2) };
        let bare = Event { tags: vec![vec![]], content: "".into(), ..event(3) };
        for before in [plain, tagged, bare] {
            for field in 0..FIELDS {
                let after = alter(before.clone(), field);
                let differs = [
                    before.pubkey != after.pubkey,
                    before.created_at != after.created_at,
                    before.kind != after.kind,
                    before.tags != after.tags,
                    before.content != after.content,
                    before.sig != after.sig,
                ];
                let expected: Vec<_> = (0..FIELDS).map(|n| n == field).collect();
                assert_eq!((before.id, differs.as_slice()), (after.id, expected.as_slice()), "field {field}");
            }
        }
    }
}
