//! Faults of deliveries: events that are lost, doubled, altered, invented or sent for a wrong
//! subscription.
//!
//! Whether a fault hits a delivery follows from the fault's seed, the connection's number, the
//! subscription's name and the event's id alone, so that threads and the order of events play no
//! part in it.

use std::{fmt, str::FromStr};

use codecs::Event;

use super::Fault;

/// A misbehaviour of a single delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryFault {
    /// It is left out.
    Lose,
    /// It is sent twice.
    Double,
    /// The event is sent with one field changed, which is never its id.
    Alter,
    /// Beside it goes an event with a random id, which nobody published.
    Invent,
    /// It is sent for another subscription of the connection, whose filters the event does not
    /// match. Without such a one it is sent for a subscription that was never opened.
    Misroute,
}

impl DeliveryFault {
    /// Every kind, with its name in `--fault`.
    pub(super) const NAMES: [(&str, DeliveryFault); 5] = [
        ("lose", DeliveryFault::Lose),
        ("double", DeliveryFault::Double),
        ("alter", DeliveryFault::Alter),
        ("invent", DeliveryFault::Invent),
        ("misroute", DeliveryFault::Misroute),
    ];

    pub(super) fn name(self) -> &'static str {
        let named = DeliveryFault::NAMES.iter().find(|(_, kind)| *kind == self);
        named.expect("NAMES lists every kind").0
    }
}

/// A share of deliveries, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(u32);

const MILLION: f64 = 1e6;

impl FromStr for Rate {
    type Err = ();

    /// Reads `1%` or `0.01`: above 0, and at most 1.
    fn from_str(text: &str) -> Result<Rate, ()> {
        let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 0.01));
        if !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(());
        }
        let millionths = (number.parse::<f64>().map_err(|_| ())? * unit * MILLION).round();
        if !(1.0..=MILLION).contains(&millionths) {
            return Err(());
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is 1 to 1,000,000")]
        Ok(Rate(millionths as u32))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / (MILLION / 100.0))
    }
}

/// All faults of a relay that hit deliveries.
#[derive(Debug)]
pub(crate) struct DeliveryFaults(Vec<(DeliveryFault, Rate, u64)>);

impl DeliveryFaults {
    pub(crate) fn of(faults: &[Fault]) -> Self {
        let of_deliveries = |fault: &Fault| match *fault {
            Fault::Delivery { kind, rate, seed } => Some((kind, rate, seed)),
            _ => None,
        };
        DeliveryFaults(faults.iter().filter_map(of_deliveries).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Chooses the fault that hits this delivery: the first in their given order that does, and the
    /// numbers from which its details are drawn.
    pub(crate) fn hitting(
        &self,
        connection: u64,
        subscription: &str,
        id: &[u8; 32],
    ) -> Option<(DeliveryFault, Draw)> {
        self.0.iter().find_map(|&(kind, Rate(rate), seed)| {
            let parts = [kind.name().as_bytes(), &seed.to_le_bytes(), &connection.to_le_bytes(), id];
            let draw = Draw::from(parts.into_iter().chain([subscription.as_bytes()]));
            (draw.next(0) % 1_000_000 < rate.into()).then_some((kind, draw))
        })
    }
}

/// A source of numbers that look random.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draw(u64);

/// The fields of an event without its id.
const FIELDS: u64 = 6;

impl Draw {
    /// FNV-1a (RFC 9923) over the parts.
    fn from<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Self {
        Draw(parts.flatten().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        }))
    }

    /// The `n`th number: SplitMix64 (Steele, Lea and Flood 2014).
    fn next(self, n: u64) -> u64 {
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
    fn rates_are_read_and_written() {
        for (text, millionths) in [
            ("1%", 10_000),
            ("0.01", 10_000),
            ("100%", 1_000_000),
            ("1", 1_000_000),
            ("0.0001%", 1),
            (".5", 500_000),
        ] {
            let rate = text.parse::<Rate>().unwrap();
            assert_eq!(rate, Rate(millionths), "{text}");
            assert_eq!(rate.to_string().parse(), Ok(rate), "{text}");
        }
        for text in ["", "%", "0", "0%", "101%", "1.1", "-1%", "1e-3", "nan", "inf", "1%%", "0.00000001"] {
            assert_eq!(text.parse::<Rate>(), Err(()), "{text}");
        }
    }

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

    #[test]
    fn a_rate_hits_its_share_and_each_delivery_by_itself() {
        let faults: Vec<Fault> = ["lose=10%", "double=10%:seed=2"].map(|text| text.parse().unwrap()).into();
        let faults = DeliveryFaults::of(&faults);
        let mut hits = [0_u32; 2];
        for n in 0..100_000_u64 {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&(n / 10).to_le_bytes());
            match faults.hitting(n % 2, ["a", "b", "c", "d", "e"][(n / 2 % 5) as usize], &id) {
                Some((DeliveryFault::Lose, _)) => hits[0] += 1,
                Some((DeliveryFault::Double, _)) => hits[1] += 1,
                Some((other, _)) => panic!("{other:?} is not among the faults"),
                None => {}
            }
        }
        // Ten standard deviations (95) are allowed for; a lost delivery cannot be doubled too.
        assert!(hits[0].abs_diff(10_000) < 950 && hits[1].abs_diff(9_000) < 950, "{hits:?}");
    }
}
