//! Frames of messages that share one, as they are made and as strangers damage them.

use std::thread;

use super::*;

const LIMIT_BYTES: usize = 16 << 10;

/// `zstd-shared` and `zstd-dict`.
fn both() -> [ZstdParams; 2] {
    let mode = ZstdMode::Dictionary(Dictionary::bundled("json"));
    [ZstdParams::SHARED, ZstdParams { mode, ..ZstdParams::SHARED }]
}

/// Numbers from a seed (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap()
    }
}

/// A payload of so many bytes behind its prefix, like an event in JSON.
fn payload(numbers: &mut Numbers, prefix: &str, bytes: usize) -> Vec<u8> {
    let mut text = format!(r#"{prefix}{{"kind":1,"tags":[["p",""#);
    while text.len() < prefix.len() + bytes {
        text.push_str(&format!(r#"{:016x}{:016x}"],["e",""#, numbers.next(), numbers.next()));
    }
    text.into_bytes()
}

fn spliced(params: ZstdParams, payload: &[u8], prefix_bytes: usize, shared: &SharedZstd) -> Vec<u8> {
    let mut layer = ZstdLayer::new(params);
    let (prefix, common) = payload.split_at(prefix_bytes);
    let (front, end) = common.split_at(common.len() / 2);
    if let Some(spliced) = layer.splice(prefix, [front, end], shared) {
        return spliced.parts().concat();
    }
    let mut out = BytesMut::new();
    layer.compress(payload, &mut out).unwrap();
    out.to_vec()
}

#[test]
fn a_first_message_is_a_frame_where_that_is_smaller() {
    let long = b"0123456789abcdef".repeat(100);
    let message = zstd_message(ZstdParams::DEFAULT, &long).unwrap();
    assert!(message[0] == FRAME && message.len() < long.len() / 4);
    assert_eq!(zstd::decode_all(&message[1..]).unwrap(), long);
    assert_eq!(zstd_message(ZstdParams::DEFAULT, b"short").unwrap(), &b"\0short"[..]);
}

/// Flips a bit, cuts, repeats or inserts, once or several times.
fn damage(numbers: &mut Numbers, message: &mut Vec<u8>) {
    for _ in 0..=numbers.below(3) {
        let at = numbers.below(message.len());
        match numbers.below(5) {
            0 | 1 if !message.is_empty() => message[at] ^= 1 << numbers.below(8),
            2 => message.truncate(at),
            3 => message.extend_from_within(at..),
            _ => message.insert(at, u8::try_from(numbers.below(256)).unwrap()),
        }
    }
}

fn check_damaged(params: ZstdParams, seed: u64, count: usize) {
    let mut numbers = Numbers(seed);
    let mut layer = ZstdLayer::new(params);
    let whole: Vec<_> = [100, 300, 900, 4_000]
        .map(|bytes| {
            let payload = payload(&mut numbers, r#"["EVENT","sub:1","#, bytes);
            (spliced(params, &payload, 17, &SharedZstd::default()), payload)
        })
        .into();
    for n in 0..count {
        let (message, payload) = &whole[n % whole.len()];
        let mut damaged = message.clone();
        damage(&mut numbers, &mut damaged);
        match layer.decompress(&damaged.into(), LIMIT_BYTES) {
            Ok(read) => assert!(read.len() <= LIMIT_BYTES, "seed {seed}, message {n}: {} bytes", read.len()),
            Err(WireError::Inflate(_) | WireError::TooLarge { .. } | WireError::Protocol(_)) => {}
            Err(other) => panic!("seed {seed}, message {n}: {other}"),
        }
        // Nothing of it is left in the decompressor, which serves all connections of the thread.
        if n % 16 == 0 {
            assert_eq!(
                layer.decompress(&message.clone().into(), LIMIT_BYTES).unwrap(),
                payload,
                "seed {seed}"
            );
        }
    }
}

#[test]
fn damaged_frames_are_errors_or_payloads_within_the_limit() {
    for params in both() {
        check_damaged(params, 7, 20_000);
    }
}

/// `SEED=N cargo test -p wire --lib campaign -- --ignored` for another seed.
#[test]
#[ignore = "takes minutes"]
fn campaign_of_ten_million_damaged_frames() {
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap());
    for params in both() {
        check_damaged(params, seed, 5_000_000);
    }
}

#[test]
fn threads_that_need_a_frame_at_once_share_one() {
    let payload = payload(&mut Numbers(3), "prefix", 2_000);
    let shared = SharedZstd::default();
    let [params, _] = both();
    let messages = thread::scope(|scope| {
        let splice = || scope.spawn(|| spliced(params, &payload, 6, &shared));
        let threads: Vec<_> = (0..8).map(|_| splice()).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(messages.iter().all(|message| *message == messages[0]));
    let frame_bytes = messages[0].len() - RAW_FRAME_HEAD_BYTES - 6;
    assert_eq!(shared.held_bytes(), size_of::<SharedFrame>() + frame_bytes);
}

#[test]
fn every_length_of_a_prefix_arrives() {
    for (params, prefix_bytes) in both()
        .into_iter()
        .flat_map(|params| [0, 1, 31, 32, 255, 256, 1_023, 1_024, 1_025, 70_000].map(|n| (params, n)))
    {
        let prefix = "p".repeat(prefix_bytes);
        let payload = payload(&mut Numbers(5), &prefix, 500);
        let message = spliced(params, &payload, prefix_bytes, &SharedZstd::default());
        assert!(message.len() < payload.len(), "{prefix_bytes}");
        let read = ZstdLayer::new(params).decompress(&message.into(), 1 << 20).unwrap();
        assert!(read == payload, "{prefix_bytes}");
    }
}
