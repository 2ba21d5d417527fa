//! Deflate (RFC 1951) for a short payload that is compressed once and sent to many.
//!
//! zlib-rs clears tables for 224 KiB before any payload, however short. Those here are for short
//! payloads: 8 KiB are cleared, and the rest is only looked at where it was written for the same
//! payload. Matches are found as zlib finds them, by chains of places with the same four bytes, and
//! lazily.

use std::cell::RefCell;

use self::huffman::{Code, Lengths};

mod huffman;

/// The longest payload; longer ones are zlib-rs's.
pub(crate) const MAX_BYTES: usize = 16 << 10;

/// Memory of the tables of a thread.
pub(crate) const TABLES_BYTES: usize = 2 * (1 << HASH_BITS) + 2 * MAX_BYTES + 4 * MAX_BYTES;

const HASH_BITS: u32 = 12;

/// The shortest match that is looked for, and the longest that there is.
const MIN_MATCH: usize = 4;
const MAX_MATCH: usize = 258;

/// A match of [`MIN_MATCH`] bytes from further away takes as many bits as four digits of hex.
const FAR_FOR_SHORTEST: usize = 512;

/// A match that is long enough to look for no longer one a byte later.
const LONG_MATCH: usize = 32;

/// zlib stays so far below the window, and decoders are used to that.
const WINDOW_MARGIN_BYTES: usize = 262;

thread_local! {
    static TABLES: RefCell<Option<Tables>> = const { RefCell::new(None) };
}

/// Memory of the tables, which a thread has once it compressed.
pub(crate) fn memory_bytes() -> usize {
    TABLES.with_borrow(|tables| if tables.is_some() { TABLES_BYTES } else { 0 })
}

/// Appends the payload as deflate blocks without a final one, up to the tail that the sender of a
/// message drops (RFC 7692 §7.2.1). A `level` of n compares each place with at most 2^n earlier
/// ones.
///
/// # Panics
/// For more than [`MAX_BYTES`].
pub(crate) fn deflate(payload: &[u8], level: u32, window_bits: u8, out: &mut Vec<u8>) {
    assert!(payload.len() <= MAX_BYTES, "longer payloads are zlib-rs's");
    TABLES.with_borrow_mut(|tables| {
        let tables = tables.get_or_insert_with(Tables::new);
        let max_distance = (1 << window_bits.clamp(9, 15)) - WINDOW_MARGIN_BYTES;
        tables.split(&Search { payload, max_distance, max_places: 1 << level.min(9) });
        write(payload, &tables.tokens, out);
    });
}

struct Tables {
    /// By hash of four bytes the last place that has them, plus one; 0 is none.
    last: Box<[u16; 1 << HASH_BITS]>,
    /// By place the one before it with the same hash, plus one.
    before: Box<[u16; MAX_BYTES]>,
    /// The payload as literals and matches.
    tokens: Vec<Token>,
}

/// What is looked for in which payload.
struct Search<'p> {
    payload: &'p [u8],
    max_distance: usize,
    max_places: usize,
}

/// A literal, whose distance is 0, or a match.
#[derive(Debug, Clone, Copy)]
struct Token {
    distance: u16,
    /// The byte, or the length of the match.
    value: u16,
}

#[derive(Debug, Clone, Copy, Default)]
struct Match {
    bytes: usize,
    distance: usize,
}

impl Tables {
    fn new() -> Tables {
        Tables {
            last: Box::new([0; 1 << HASH_BITS]),
            before: Box::new([0; MAX_BYTES]),
            tokens: Vec::with_capacity(MAX_BYTES),
        }
    }

    /// Splits the payload into literals and matches.
    fn split(&mut self, search: &Search<'_>) {
        self.last.fill(0);
        self.tokens.clear();
        let payload = search.payload;
        let mut at = 0;
        while at < payload.len() {
            let mut found = self.find(search, at);
            let mut known = at + 1;
            while (1..LONG_MATCH).contains(&found.bytes) {
                let next = self.find(search, known);
                known += 1;
                if next.bytes <= found.bytes {
                    break;
                }
                self.tokens.push(Token { distance: 0, value: payload[at].into() });
                (at, found) = (at + 1, next);
            }
            if found.bytes == 0 {
                self.tokens.push(Token { distance: 0, value: payload[at].into() });
                at += 1;
                continue;
            }
            let (distance, value) = (found.distance, found.bytes);
            self.tokens.push(Token {
                distance: u16::try_from(distance).expect("within MAX_BYTES"),
                value: u16::try_from(value).expect("at most MAX_MATCH"),
            });
            at += found.bytes;
            for place in known..at {
                self.note(payload, place);
            }
        }
    }

    /// Notes a place for later ones, and returns the last place before it with the same hash, plus
    /// one.
    fn note(&mut self, payload: &[u8], at: usize) -> u16 {
        let Some(four) = payload.get(at..).and_then(|rest| rest.first_chunk::<4>()) else { return 0 };
        let hash = u32::from_le_bytes(*four).wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS);
        let place = u16::try_from(at + 1).expect("within MAX_BYTES");
        let last = std::mem::replace(&mut self.last[hash as usize], place);
        self.before[at] = last;
        last
    }

    /// The longest match at a place, which it notes; one of no bytes where there is none.
    fn find(&mut self, search: &Search<'_>, at: usize) -> Match {
        let mut candidate = usize::from(self.note(search.payload, at));
        let mut best = Match::default();
        let rest = &search.payload[at.min(search.payload.len())..];
        let rest = &rest[..rest.len().min(MAX_MATCH)];
        for _ in 0..search.max_places {
            let Some(place) = candidate.checked_sub(1) else { break };
            let distance = at - place;
            if distance > search.max_distance {
                break;
            }
            let other = &search.payload[place..];
            // The last byte of a match that would be long enough.
            let decisive = best.bytes.max(MIN_MATCH - 1);
            if other[decisive] == rest[decisive] {
                let bytes = common_bytes(other, rest);
                let least = if distance > FAR_FOR_SHORTEST { MIN_MATCH + 1 } else { MIN_MATCH };
                if bytes > best.bytes && bytes >= least {
                    best = Match { bytes, distance };
                    if bytes == rest.len() {
                        break;
                    }
                }
            }
            candidate = usize::from(self.before[place]);
        }
        best
    }
}

/// How many bytes both begin with.
fn common_bytes(one: &[u8], other: &[u8]) -> usize {
    let (ones, others) = (one.as_chunks::<8>().0, other.as_chunks::<8>().0);
    for (n, (one, other)) in ones.iter().zip(others).enumerate() {
        let differs = u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
        if differs != 0 {
            return 8 * n + (differs.trailing_zeros() / 8) as usize;
        }
    }
    let start = 8 * ones.len().min(others.len());
    start + one[start..].iter().zip(&other[start..]).take_while(|(one, other)| one == other).count()
}

const END_OF_BLOCK: usize = 256;
const FIRST_LENGTH: usize = 257;
const LAST_LENGTH: usize = 285;

/// Literals, the end of the block, and lengths, of which the last two never occur; distances (RFC
/// 1951 §3.2.5).
const LITERALS: usize = 288;
const DISTANCES: usize = 30;

/// The symbol of a length or a distance, and the number and value of the bits behind it.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    symbol: usize,
    extra_bits: u32,
    extra: u32,
}

fn length_symbol(bytes: u16) -> Symbol {
    let length = u32::from(bytes) - 3;
    match length {
        0..8 => Symbol { symbol: FIRST_LENGTH + length as usize, extra_bits: 0, extra: 0 },
        255.. => Symbol { symbol: LAST_LENGTH, extra_bits: 0, extra: 0 },
        _ => {
            let extra_bits = length.ilog2() - 2;
            let symbol = FIRST_LENGTH + (4 * (extra_bits + 1) + (length >> extra_bits & 3)) as usize;
            Symbol { symbol, extra_bits, extra: length & ((1 << extra_bits) - 1) }
        }
    }
}

fn distance_symbol(distance: u16) -> Symbol {
    let distance = u32::from(distance) - 1;
    if distance < 4 {
        return Symbol { symbol: distance as usize, extra_bits: 0, extra: 0 };
    }
    let extra_bits = distance.ilog2() - 1;
    let symbol = (2 * (extra_bits + 1) + (distance >> extra_bits & 1)) as usize;
    Symbol { symbol, extra_bits, extra: distance & ((1 << extra_bits) - 1) }
}

/// Appends the block that takes the fewest bits, and the head of the empty one that ends a message.
fn write(payload: &[u8], tokens: &[Token], out: &mut Vec<u8>) {
    let (mut literals, mut distances) = ([0; LITERALS], [0; DISTANCES]);
    literals[END_OF_BLOCK] = 1;
    let mut extra_bits = 0_usize;
    for token in tokens {
        if token.distance == 0 {
            literals[usize::from(token.value)] += 1;
        } else {
            let (length, distance) = (length_symbol(token.value), distance_symbol(token.distance));
            literals[length.symbol] += 1;
            distances[distance.symbol] += 1;
            extra_bits += (length.extra_bits + distance.extra_bits) as usize;
        }
    }
    let own = Lengths::of(&literals, &distances);
    let fixed = &Lengths::FIXED;
    let own_bits = own.head_bits() + own.body_bits(&literals, &distances);
    let fixed_bits = fixed.body_bits(&literals, &distances);
    let stored_bits = 5 + 32 + 8 * payload.len();
    let mut bits = Bits { out, held: 0, count: 0 };
    if stored_bits <= own_bits.min(fixed_bits) + extra_bits {
        write_stored(payload, &mut bits);
    } else if fixed_bits <= own_bits {
        bits.put(0b010, 3);
        write_tokens(tokens, fixed, &mut bits);
    } else {
        bits.put(0b100, 3);
        own.write_head(&mut bits);
        write_tokens(tokens, &own, &mut bits);
    }
    // An empty stored block, whose length is the tail that is dropped.
    bits.put(0, 3);
    bits.end_byte();
}

fn write_stored(payload: &[u8], bits: &mut Bits<'_>) {
    let len = u16::try_from(payload.len()).expect("within MAX_BYTES");
    bits.put(0, 3);
    bits.end_byte();
    bits.out.extend_from_slice(&len.to_le_bytes());
    bits.out.extend_from_slice(&(!len).to_le_bytes());
    bits.out.extend_from_slice(payload);
}

fn write_tokens(tokens: &[Token], lengths: &Lengths, bits: &mut Bits<'_>) {
    let (literals, distances) = lengths.codes();
    for token in tokens {
        if token.distance == 0 {
            bits.put_code(literals[usize::from(token.value)]);
            continue;
        }
        let (length, distance) = (length_symbol(token.value), distance_symbol(token.distance));
        bits.put_code(literals[length.symbol]);
        bits.put(length.extra.into(), length.extra_bits);
        bits.put_code(distances[distance.symbol]);
        bits.put(distance.extra.into(), distance.extra_bits);
    }
    bits.put_code(literals[END_OF_BLOCK]);
}

/// Bits on their way into bytes, the lowest first (RFC 1951 §3.1.1).
struct Bits<'o> {
    out: &'o mut Vec<u8>,
    held: u64,
    count: u32,
}

impl Bits<'_> {
    /// Appends the lowest `count` bits, at most 32, of which the others are 0.
    fn put(&mut self, bits: u64, count: u32) {
        self.held |= bits << self.count;
        self.count += count;
        if self.count >= 32 {
            let [a, b, c, d, ..] = self.held.to_le_bytes();
            self.out.extend_from_slice(&[a, b, c, d]);
            self.held >>= 32;
            self.count -= 32;
        }
    }

    fn put_code(&mut self, code: Code) {
        self.put(code.bits.into(), code.count.into());
    }

    /// Fills the last byte with zeros.
    fn end_byte(&mut self) {
        let bytes = self.count.div_ceil(8) as usize;
        self.out.extend_from_slice(&self.held.to_le_bytes()[..bytes]);
        (self.held, self.count) = (0, 0);
    }
}

#[cfg(test)]
mod tests;
