//! What comes out is inflated by zlib-rs, and beside what zlib-rs deflates.

use std::cmp::Reverse;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use proptest::{collection::vec, prelude::*};

use super::*;

fn deflated(payload: &[u8], level: u32, window_bits: u8) -> Vec<u8> {
    let mut out = Vec::new();
    deflate(payload, level, window_bits, &mut out);
    out
}

/// Inflates a message with a window of so many bits, as its receiver does (RFC 7692 §7.2.2).
fn inflated(message: &[u8], window_bits: u8) -> Vec<u8> {
    let mut whole = message.to_vec();
    whole.extend([0, 0, 0xff, 0xff]);
    let mut state = Decompress::new_with_window_bits(false, window_bits);
    let mut out = Vec::new();
    // In pieces, so that matches reach into the window and not into the output.
    for piece in whole.chunks(7) {
        let mut rest = piece;
        loop {
            let before = (state.total_in(), out.len());
            out.reserve(300);
            state.decompress_vec(rest, &mut out, FlushDecompress::Sync).unwrap();
            rest = &rest[usize::try_from(state.total_in() - before.0).unwrap()..];
            if rest.is_empty() && out.len() < out.capacity() {
                break;
            }
            assert_ne!((state.total_in(), out.len()), before, "the stream makes no progress");
        }
    }
    out
}

fn by_zlib(payload: &[u8]) -> usize {
    let mut state = Compress::new(Compression::new(6), false);
    let mut out = Vec::with_capacity(payload.len() + payload.len() / 8 + 256);
    state.compress_vec(payload, &mut out, FlushCompress::Sync).unwrap();
    out.len() - 4
}

/// Numbers that repeat for each seed.
fn numbers(seed: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(seed.wrapping_mul(0x9e37_79b1) | 1), |last| {
        Some((last ^ last >> 15).wrapping_mul(0x2c1b_3c6d).wrapping_add(0x9e37_79b9))
    })
    .map(|number| number ^ number >> 13)
}

/// A note in JSON: hex, which is most of it, and words.
fn note(seed: u32, words: usize) -> Vec<u8> {
    const WORDS: [&str; 12] = [
        "the ",
        "relay ",
        "nostr:npub1",
        "was ",
        "https://",
        "zap ",
        "of ",
        "morning ",
        "and ",
        "a ",
        "note",
        ".\\n",
    ];
    let mut numbers = numbers(seed);
    let mut hex = |digits: usize| {
        let digits = numbers.by_ref().take(digits).map(|n| char::from_digit(n >> 8 & 15, 16).unwrap());
        digits.collect::<String>()
    };
    let (id, pubkey, sig, other) = (hex(64), hex(64), hex(128), hex(64));
    let content: String = numbers.take(words).map(|n| WORDS[(n >> 7) as usize % WORDS.len()]).collect();
    format!(
        r#"{{"content":"{content}","created_at":1700000000,"id":"{id}","kind":1,"pubkey":"{pubkey}","sig":"{sig}","tags":[["e","{other}"],["p","{pubkey}"]]}}]"#
    )
    .into()
}

#[test]
fn every_length_up_to_the_longest_comes_back() {
    let long: Vec<u8> = (0..80).flat_map(|seed| note(seed, 30)).take(MAX_BYTES).collect();
    assert_eq!(long.len(), MAX_BYTES);
    for bytes in (1..600).chain([1_000, 4_095, 4_096, 8_191, MAX_BYTES - 1, MAX_BYTES]) {
        for window_bits in [9, 12, 15] {
            let message = deflated(&long[..bytes], 6, window_bits);
            assert!(inflated(&message, window_bits) == long[..bytes], "{bytes} bytes, {window_bits}");
        }
    }
}

#[test]
fn runs_noise_and_few_symbols_come_back() {
    let noise: Vec<u8> = numbers(1).map(|n| n.to_be_bytes()[1]).take(5_000).collect();
    // Frequencies like Fibonacci's numbers make the deepest of Huffman's trees.
    let (mut deep, mut count, mut before) = (Vec::new(), 1, 1);
    for symbol in 0..19_u8 {
        deep.extend(vec![symbol; count]);
        (count, before) = (count + before, count);
    }
    let mut order = numbers(2);
    deep.truncate(MAX_BYTES);
    for at in (1..deep.len()).rev() {
        deep.swap(at, order.next().unwrap() as usize % (at + 1));
    }
    let distant = [&noise[..300], &[b'-'; 3_000], &noise[..300]].concat();
    for payload in [&b"x"[..], b"xy", &[0; MAX_BYTES], &[b'a'; 259], &noise, &deep, &distant] {
        for level in 0..=9 {
            for window_bits in 9..=15 {
                let message = deflated(payload, level, window_bits);
                assert!(inflated(&message, window_bits) == payload, "{} bytes, {level}", payload.len());
                assert!(message.len() <= payload.len() + 6, "{} bytes, {level}", payload.len());
            }
        }
    }
    assert!(deflated(&[0; MAX_BYTES], 6, 15).len() < 60);
    assert!(deflated(&distant, 6, 15).len() < 380, "a match 3,000 bytes back");
    assert!(deflated(&distant, 6, 9).len() > 600, "no match beyond the window");
}

#[test]
fn notes_take_as_few_bytes_as_by_zlib() {
    for words in [0, 5, 40, 200, 1_500] {
        let payloads: Vec<_> = (0..20).map(|seed| note(seed, words)).collect();
        let own: usize = payloads.iter().map(|payload| deflated(payload, 6, 15).len()).sum();
        let zlib: usize = payloads.iter().map(|payload| by_zlib(payload)).sum();
        assert!(own * 100 <= zlib * 102, "{words} words: {own} bytes, by zlib {zlib}");
    }
}

#[test]
fn codes_have_no_gap_and_keep_to_the_longest_that_is_allowed() {
    let fibonacci: Vec<u32> = std::iter::successors(Some((1, 1)), |&(n, next)| Some((next, n + next)))
        .map(|(n, _)| n)
        .take(30)
        .collect();
    let (equal, rare) = ([1; 288], [[1; 287].as_slice(), &[10_000]].concat());
    for (counts, max_bits) in [
        (&fibonacci[..], 15),
        (&fibonacci[..19], 7),
        (&fibonacci[..2], 7),
        (&equal, 15),
        (&rare, 15),
        (&[0, 0, 9], 15),
    ] {
        let mut lengths = [0; 288];
        huffman::code_lengths(counts, max_bits, &mut lengths);
        let room = lengths.iter().filter(|length| **length > 0).map(|length| 1 << (max_bits - length));
        assert_eq!(room.sum::<u32>(), 1 << max_bits, "{counts:?}");
        let mut used: Vec<_> = counts.iter().zip(lengths).filter(|(count, _)| **count > 0).collect();
        used.sort_by_key(|&(count, length)| (count, Reverse(length)));
        assert!(used.is_sorted_by_key(|&(_, length)| Reverse(length)), "{used:?}");
    }
}

#[test]
fn nothing_of_an_earlier_payload_is_referred_to() {
    let (one, other) = (note(1, 40), note(2, 40));
    let alone = deflated(&other, 6, 15);
    for before in [&one, &other, &vec![7; MAX_BYTES]] {
        deflated(before, 6, 15);
        assert_eq!(deflated(&other, 6, 15), alone);
    }
}

#[test]
fn a_thread_has_tables_once_it_compressed() {
    std::thread::spawn(|| {
        assert_eq!(memory_bytes(), 0);
        let counted = allocation_counter::measure(|| deflate(b"payload", 6, 15, &mut Vec::with_capacity(64)));
        assert_eq!(memory_bytes(), TABLES_BYTES);
        let spare = counted.bytes_max - TABLES_BYTES as u64;
        assert!(spare <= 64, "{spare} bytes beside the tables and the output");
    })
    .join()
    .unwrap();
}

proptest! {
    #[test]
    fn any_payload_comes_back(
        payload in prop_oneof![vec(any::<u8>(), 1..3_000), vec(0_u8..4, 1..6_000), vec(b'a'..b'q', 1..3_000)],
        level in 0_u32..=9,
        window_bits in 9_u8..=15,
    ) {
        prop_assert_eq!(inflated(&deflated(&payload, level, window_bits), window_bits), payload);
    }
}
