//! The fuzzers' seeds through the fuzzers' own checks, on stable Rust. A seed is a file with a name that
//! says what it is, and so is a finding.

use std::{collections::BTreeMap, fs, path::Path, sync::LazyLock};

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

/// Seeds of each target as `TARGET/NAME`.
static STORED: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds");
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
