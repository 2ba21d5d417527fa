//! Huffman codes of a block (RFC 1951 §3.2.2), and the head that tells a decoder their lengths
//! (§3.2.7).

use super::{Bits, DISTANCES, END_OF_BLOCK, LITERALS};

/// A symbol's code, ready to be sent: its first bit is the lowest.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Code {
    pub(super) bits: u16,
    pub(super) count: u8,
}

/// Lengths of the codes of literals and distances, in bits; 0 for symbols that do not occur.
#[derive(Debug)]
pub(super) struct Lengths {
    literals: [u8; LITERALS],
    distances: [u8; DISTANCES],
    head: Head,
}

/// The longest code of a literal or a distance, and of a length in the head.
const MAX_BITS: u8 = 15;
const MAX_HEAD_BITS: u8 = 7;

/// Symbols of the head: lengths, and repetitions.
const HEAD_SYMBOLS: usize = 19;
const REPEAT_LAST: u8 = 16;
const FEW_ZEROS: u8 = 17;
const MANY_ZEROS: u8 = 18;

/// The order in which lengths of the head's own codes are sent.
const HEAD_ORDER: [usize; HEAD_SYMBOLS] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// What is sent before the tokens of a block with codes of its own.
#[derive(Debug)]
struct Head {
    /// Lengths of literals and distances that are sent.
    literals: usize,
    distances: usize,
    items: [Item; LITERALS + DISTANCES],
    item_count: usize,
    lengths: [u8; HEAD_SYMBOLS],
    /// Lengths of the head's own codes that are sent.
    length_count: usize,
}

/// A symbol of the head, with the number of its repetitions above the least.
#[derive(Debug, Clone, Copy, Default)]
struct Item {
    symbol: u8,
    more: u8,
}

impl Item {
    fn extra_bits(self) -> u32 {
        match self.symbol {
            REPEAT_LAST => 2,
            FEW_ZEROS => 3,
            MANY_ZEROS => 7,
            _ => 0,
        }
    }
}

impl Lengths {
    /// The codes that every decoder knows (RFC 1951 §3.2.6).
    pub(super) const FIXED: Lengths = {
        let mut literals = [8; LITERALS];
        let mut symbol = 144;
        while symbol < LITERALS {
            literals[symbol] = match symbol {
                144..=255 => 9,
                256..=279 => 7,
                _ => 8,
            };
            symbol += 1;
        }
        Lengths { literals, distances: [5; DISTANCES], head: Head::EMPTY }
    };

    /// The best codes for symbols that occur so often.
    pub(super) fn of(literals: &[u32; LITERALS], distances: &[u32; DISTANCES]) -> Lengths {
        let mut lengths = Lengths { literals: [0; LITERALS], distances: [0; DISTANCES], head: Head::EMPTY };
        code_lengths(literals, MAX_BITS, &mut lengths.literals);
        code_lengths(distances, MAX_BITS, &mut lengths.distances);
        lengths.head = Head::of(&lengths.literals, &lengths.distances);
        lengths
    }

    /// Bits of the head.
    pub(super) fn head_bits(&self) -> usize {
        let Head { items, item_count, lengths, length_count, .. } = &self.head;
        let items = items[..*item_count].iter();
        let item_bits = |item: &Item| u32::from(lengths[usize::from(item.symbol)]) + item.extra_bits();
        5 + 5 + 4 + 3 * length_count + items.map(item_bits).sum::<u32>() as usize
    }

    /// Bits of so many symbols, without those behind lengths and distances.
    pub(super) fn body_bits(&self, literals: &[u32; LITERALS], distances: &[u32; DISTANCES]) -> usize {
        let bits = |counts: &[u32], lengths: &[u8]| {
            counts.iter().zip(lengths).map(|(count, length)| count * u32::from(*length)).sum::<u32>()
        };
        (bits(literals, &self.literals) + bits(distances, &self.distances)) as usize
    }

    /// The codes of these lengths.
    pub(super) fn codes(&self) -> ([Code; LITERALS], [Code; DISTANCES]) {
        (codes(&self.literals), codes(&self.distances))
    }

    /// Writes the head.
    pub(super) fn write_head(&self, bits: &mut Bits<'_>) {
        let Head { literals, distances, items, item_count, lengths, length_count } = &self.head;
        bits.put((literals - END_OF_BLOCK - 1) as u64, 5);
        bits.put((distances - 1) as u64, 5);
        bits.put((length_count - 4) as u64, 4);
        HEAD_ORDER[..*length_count].iter().for_each(|&symbol| bits.put(lengths[symbol].into(), 3));
        let codes: [Code; HEAD_SYMBOLS] = codes(lengths);
        for item in &items[..*item_count] {
            bits.put_code(codes[usize::from(item.symbol)]);
            bits.put(item.more.into(), item.extra_bits());
        }
    }
}

impl Head {
    const EMPTY: Head = Head {
        literals: 0,
        distances: 0,
        items: [Item { symbol: 0, more: 0 }; LITERALS + DISTANCES],
        item_count: 0,
        lengths: [0; HEAD_SYMBOLS],
        length_count: 0,
    };

    fn of(literals: &[u8; LITERALS], distances: &[u8; DISTANCES]) -> Head {
        let used = |lengths: &[u8], least: usize| {
            lengths.iter().rposition(|&length| length > 0).map_or(least, |last| least.max(last + 1))
        };
        let mut head =
            Head { literals: used(literals, END_OF_BLOCK + 1), distances: used(distances, 1), ..Head::EMPTY };
        let mut all = [0; LITERALS + DISTANCES];
        let count = head.literals + head.distances;
        all[..head.literals].copy_from_slice(&literals[..head.literals]);
        all[head.literals..count].copy_from_slice(&distances[..head.distances]);
        let mut rest = &all[..count];
        while let Some(&length) = rest.first() {
            let run = rest.iter().take_while(|&&other| other == length).count();
            rest = &rest[run..];
            head.add_run(length, run);
        }
        let mut counts = [0; HEAD_SYMBOLS];
        head.items[..head.item_count].iter().for_each(|item| counts[usize::from(item.symbol)] += 1);
        code_lengths(&counts, MAX_HEAD_BITS, &mut head.lengths);
        let last = HEAD_ORDER.iter().rposition(|&symbol| head.lengths[symbol] > 0);
        head.length_count = last.map_or(4, |last| 4.max(last + 1));
        head
    }

    /// Adds the same length so many times.
    fn add_run(&mut self, length: u8, mut run: usize) {
        if length > 0 {
            self.add(length, 0);
            run -= 1;
        }
        while run > 0 {
            let (symbol, least, most) = match (length, run) {
                (0, 11..) => (MANY_ZEROS, 11, 138),
                (0, 3..) => (FEW_ZEROS, 3, 10),
                (1.., 3..) => (REPEAT_LAST, 3, 6),
                _ => (length, 1, 1),
            };
            let now = run.min(most);
            self.add(symbol, now - least);
            run -= now;
        }
    }

    fn add(&mut self, symbol: u8, more: usize) {
        let more = u8::try_from(more).expect("a repetition is of at most 138 lengths");
        self.items[self.item_count] = Item { symbol, more };
        self.item_count += 1;
    }
}

/// The codes of these lengths, in the order of RFC 1951 §3.2.2.
fn codes<const N: usize>(lengths: &[u8; N]) -> [Code; N] {
    // Of each length the next code; before that, one place further, how many there are.
    let mut next = [0_u16; MAX_BITS as usize + 2];
    lengths.iter().for_each(|&length| next[usize::from(length) + 1] += 1);
    next[1] = 0; // symbols that do not occur
    for length in 1..usize::from(MAX_BITS) {
        next[length + 1] = (next[length] + next[length + 1]) << 1;
    }
    let mut codes = [Code::default(); N];
    for (code, &count) in codes.iter_mut().zip(lengths) {
        if count > 0 {
            let value = next[usize::from(count)];
            next[usize::from(count)] += 1;
            *code = Code { bits: value.reverse_bits() >> (16 - count), count };
        }
    }
    codes
}

/// Bits of a symbol beside its count.
const SYMBOL_BITS: u32 = 9;

/// Lengths of the best code for symbols that occur so often, none longer than `max_bits`. Two
/// symbols have one at least: some decoders refuse less.
pub(super) fn code_lengths(counts: &[u32], max_bits: u8, lengths: &mut [u8]) {
    // From the rarest, each with its symbol in the lowest bits.
    let mut leaves = [0_u32; LITERALS];
    let mut leaf_count = 0;
    let missing = 2_usize.saturating_sub(counts.iter().filter(|count| **count > 0).count());
    let absent = (0_u32..).zip(counts).filter(|(_, count)| **count == 0).take(missing);
    let present = (0_u32..).zip(counts).filter(|(_, count)| **count > 0);
    for (symbol, &count) in present.chain(absent) {
        leaves[leaf_count] = count.max(1) << SYMBOL_BITS | symbol;
        leaf_count += 1;
    }
    let leaves = &mut leaves[..leaf_count];
    leaves.sort_unstable();
    let mut of_length = depths(leaves, max_bits);
    make_room(&mut of_length, max_bits);
    // The rarest symbols have the longest codes.
    let mut leaves = leaves.iter();
    for length in (1..=max_bits).rev() {
        for leaf in leaves.by_ref().take(of_length[usize::from(length)]) {
            lengths[(leaf & ((1 << SYMBOL_BITS) - 1)) as usize] = length;
        }
    }
}

/// How many leaves of Huffman's tree are how deep; those that are deeper count as `max_bits`.
fn depths(leaves: &[u32], max_bits: u8) -> [usize; MAX_BITS as usize + 1] {
    const NODES: usize = 2 * LITERALS;
    let (mut weights, mut parents, mut depths) = ([0_u32; NODES], [0_u16; NODES], [0_u8; NODES]);
    weights.iter_mut().zip(leaves).for_each(|(weight, leaf)| *weight = leaf >> SYMBOL_BITS);
    let count = u16::try_from(leaves.len()).expect("at most LITERALS");
    let root = 2 * count - 2;
    // Inner nodes stand behind the leaves, from the lightest, too.
    let (mut leaf, mut inner) = (0, count);
    for node in count..=root {
        for _ in 0..2 {
            let weight = |node: u16| weights[usize::from(node)];
            let takes_leaf = leaf < count && (inner == node || weight(leaf) <= weight(inner));
            let child = if takes_leaf { &mut leaf } else { &mut inner };
            weights[usize::from(node)] += weights[usize::from(*child)];
            parents[usize::from(*child)] = node;
            *child += 1;
        }
    }
    let mut of_depth = [0; MAX_BITS as usize + 1];
    for node in (0..usize::from(root)).rev() {
        depths[node] = depths[usize::from(parents[node])].saturating_add(1);
        if node < leaves.len() {
            of_depth[usize::from(depths[node].min(max_bits))] += 1;
        }
    }
    of_depth
}

/// Makes codes of `max_bits` fewer until all have room: one of them and the longest of the others
/// become two of one more bit than that.
fn make_room(of_length: &mut [usize; MAX_BITS as usize + 1], max_bits: u8) {
    let max_bits = usize::from(max_bits);
    let taken: usize = (1..=max_bits).map(|bits| of_length[bits] << (max_bits - bits)).sum();
    for _ in 1 << max_bits..taken {
        let longest = (1..max_bits).rev().find(|&bits| of_length[bits] > 0);
        let longest = longest.expect("fewer symbols than codes of max_bits");
        of_length[max_bits] -= 1;
        of_length[longest] -= 1;
        of_length[longest + 1] += 2;
    }
}
