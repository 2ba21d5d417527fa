//! The fuzzers' seeds through the fuzzers' own checks, on stable Rust.
//!
//! `UPDATE_EXPECT=1 cargo test -p tungstenite-deflate --test it fuzz_seeds` writes those that
//! are made here. A finding is a file that a person adds with a name of its own; it stays.

use std::{collections::BTreeMap, env, fs, path::Path, sync::LazyLock};

use proptest::{collection::vec, prelude::*, sample::Index};
use tungstenite_deflate::{
    DeflateParams, Direction,
    tungstenite::{Message, protocol::Role},
};

use crate::{fuzz_checks, websocket as bytes};

/// A target's name and what it asks.
type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 3] = [
    ("headers", fuzz_checks::headers),
    ("messages", fuzz_checks::messages),
    ("streams", fuzz_checks::streams),
];

/// Larger inputs slow the fuzzers down and teach them nothing.
const MAX_SEED_BYTES: usize = 700;

#[test]
fn every_stored_seed_passes_the_fuzzers_checks() {
    for (target, check) in TARGETS {
        let seeds: Vec<_> = STORED.iter().filter(|(name, _)| name.starts_with(target)).collect();
        assert!(seeds.len() > 5, "{target} has {} seeds", seeds.len());
        for (name, seed) in seeds {
            assert!(seed.len() <= MAX_SEED_BYTES, "{name} has {} bytes", seed.len());
            check(seed);
        }
    }
}

proptest! {
    /// Ten million of them: `PROPTEST_CASES=10000000 cargo test --release -p tungstenite-deflate
    /// --test it damaged`.
    #[test]
    fn damaged_frames_pass_the_fuzzers_checks(
        seed in any::<Index>(),
        edits in vec((0_u8..6, any::<Index>(), any::<u8>()), 1..5),
    ) {
        let mut damaged = seed.get(&STREAMS).clone();
        for (edit, at, byte) in edits {
            let at = at.index(damaged.len().max(1));
            match edit {
                0 if !damaged.is_empty() => damaged[at] = byte,
                1 if !damaged.is_empty() => damaged[at] ^= 1 << (byte % 8),
                2 if !damaged.is_empty() => drop(damaged.remove(at)),
                3 => damaged.truncate(at),
                4 if !damaged.is_empty() => damaged.extend_from_within(at..),
                _ => damaged.insert(at, byte),
            }
        }
        fuzz_checks::streams(&damaged);
        // The thread's decompressor keeps nothing of what it refused.
        let hello = bytes::frame(bytes::FIN | bytes::RSV1 | bytes::TEXT, &bytes::HELLO);
        let fresh = DeflateParams { to_server: Direction::NO_TAKEOVER, ..DeflateParams::DEFAULT };
        let (messages, _) = fuzz_checks::received(Role::Server, Some(fresh), &[], &hello, usize::MAX);
        prop_assert_eq!(messages, [Message::text("Hello")]);
    }
}

/// The stored seeds of what a peer sends.
static STREAMS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let named = STORED.iter().filter(|(name, _)| name.starts_with("streams/"));
    named.map(|(_, seed)| seed.clone()).collect()
});

#[test]
fn seeds_are_current() {
    for (name, seed) in made() {
        let help = "UPDATE_EXPECT=1 cargo test -p tungstenite-deflate --test it fuzz_seeds writes it anew";
        assert!(STORED.get(&name) == Some(&seed), "tests/seeds/{name} is out of date; {help}");
    }
}

/// Seeds of each target as `TARGET/NAME`; brought up to date first where asked.
static STORED: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds");
    if env::var_os("UPDATE_EXPECT").is_some() {
        for (name, seed) in made() {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, seed).unwrap();
        }
    }
    let stored = |(target, _)| {
        let files = fs::read_dir(folder.join(target)).unwrap().map(Result::unwrap);
        let of_file = |file: fs::DirEntry| {
            let name = format!("{target}/{}", file.file_name().to_str().unwrap());
            (name, fs::read(file.path()).unwrap())
        };
        files.map(of_file).collect::<Vec<_>>()
    };
    TARGETS.into_iter().flat_map(stored).collect()
});

fn made() -> BTreeMap<String, Vec<u8>> {
    let mut seeds = BTreeMap::new();
    let mut add = |name: &str, seed: Vec<u8>| seeds.insert(name.to_owned(), seed);
    for (name, header) in HEADERS {
        add(&format!("headers/{name}"), header.into());
    }
    let hello = bytes::HELLO;
    let compressed = bytes::FIN | bytes::RSV1 | bytes::TEXT;
    let one = bytes::frame(compressed, &hello);
    // A stored block, then a block of its own window, as messages that share a body have them.
    let spliced = [&[0, 1, 0, 0xfe, 0xff, b'>'], &hello[..]].concat();
    let streams: [(&str, Vec<u8>); 12] = [
        ("compressed", one.clone()),
        ("compressed-twice", one.repeat(2)),
        ("second-refers-to-first", [one.clone(), bytes::frame(compressed, &[0xf2, 0, 0x11, 0, 0])].concat()),
        (
            "fragments",
            [bytes::frame(bytes::RSV1 | bytes::TEXT, &hello[..3]), bytes::frame(bytes::FIN, &hello[3..])]
                .concat(),
        ),
        ("ping-between", [bytes::frame(bytes::FIN | bytes::PING, b"?"), one.clone()].concat()),
        ("close-behind", [one, bytes::frame(bytes::FIN | bytes::CLOSE, &[3, 232])].concat()),
        ("plain", bytes::frame(bytes::FIN | bytes::TEXT, "ä plain text".as_bytes())),
        (
            "bomb",
            bytes::frame(bytes::FIN | bytes::RSV1 | bytes::BINARY, &bytes::deflated(&vec![b' '; 400 << 10])),
        ),
        ("not-deflate", bytes::frame(compressed, &[7, 1, 2, 3])),
        ("not-utf-8", bytes::frame(compressed, &bytes::deflated(b"caf\xe9"))),
        ("spliced", bytes::frame(compressed, &spliced)),
        ("mark-on-a-ping", bytes::frame(bytes::FIN | bytes::RSV1 | bytes::PING, b"")),
    ];
    for (name, sent) in streams {
        add(&format!("streams/{name}"), [&[0, 6, 2, 0], &sent[..]].concat());
        add(&format!("streams/{name}-early-without-takeover"), [&[2, 0, 0, 5], &sent[..]].concat());
    }
    add(
        "streams/plain-without-the-extension",
        [&[4, 6, 9, 0], &bytes::frame(bytes::FIN | bytes::TEXT, b"x")[..]].concat(),
    );
    add("streams/to-a-client", [&[1, 6, 0, 2, compressed, 7], &hello[..]].concat());
    for (name, recipe) in MESSAGES {
        add(&format!("messages/{name}"), recipe.into());
    }
    seeds
}

const HEADERS: [(&str, &str); 10] = [
    ("bare", "permessage-deflate"),
    ("browser", "permessage-deflate; client_max_window_bits"),
    ("no-takeover", "permessage-deflate; client_no_context_takeover; server_no_context_takeover"),
    ("windows", "permessage-deflate; server_max_window_bits=10; client_max_window_bits=9"),
    ("quoted", "permessage-deflate;client_max_window_bits=\"1\\0\""),
    ("two-offers", "permessage-deflate; server_max_window_bits=8, permessage-deflate"),
    ("other-extensions", " , permessage-bzip2;level=9 ,, x-webkit-deflate-frame; a=b"),
    ("twice", "permessage-deflate; server_no_context_takeover; server_no_context_takeover"),
    ("malformed", "permessage-deflate; client_max_window_bits=\"10"),
    ("not-ascii", "perméssage"),
];

/// Directions, level, smallest payload; then for each message how it goes, length and bytes.
const MESSAGES: [(&str, &[u8]); 7] = [
    ("text-to-server", b"\x0c\x0c\x06\x00\x00\x05hello\x00\x05hello"),
    ("binary-to-server", b"\x0c\x0c\x06\x00\x31\x04\x00\xff\x00\xff"),
    ("text-to-client", b"\x0d\x0c\x06\x00\x02\x05hello\x02\x05hello"),
    ("shared", b"\x0d\x0c\x06\x00\x43\x06common\x03\x03one\x03\x00"),
    ("small-windows", b"\x00\x01\x09\x00\xb2\x07EVENT,1\xb0\x07EVENT,2"),
    ("below-the-smallest", b"\x0c\x0c\x01\xff\x00\x03one\x72\x03two"),
    ("stored", b"\x0c\x0d\x00\x00\x00\x00\x50\x09[\"EVENT\",\x03\x00"),
];
