//! Compression with a dictionary that both ends have, and with none (`zstd-shared`).

use std::io::Write;

use codecs::Format;
use wire::{CloseCode, Compression, Connection, Dictionary, Offer, Shared, Support, WireLimits, negotiate};

use crate::{
    common::{config, connection, listen, offer, pair, receive, send, support},
    hostile::check_refused,
    scripted::{BINARY, FIN, Scripted},
};

const NOTE: &str = r#"["EVENT","sub:1",{"id":"5c83da77af1dec6d7289834998ad7aafbd9e2191396d75ec3cc27f5a77226f36","pubkey":"f7234bd4c1394dda46d09f35bd384dd30cc552ad5541990f98844fb06676e9ca","created_at":1700000000,"kind":1,"tags":[],"content":"good morning","sig":"908a15e46fb4d8675bab026fc230a0e3542bfade63da02d542fb78b2a8513fcd0092619a2c8c1221e581946e0191f2af505dfdf8657a414dbca329186f009262"}]"#;

fn json() -> Dictionary {
    Dictionary::bundled("json").unwrap()
}

/// The compressions whose messages are several frames, with their dictionaries.
fn both() -> [(&'static str, &'static [u8]); 2] {
    [("zstd-shared", b""), ("zstd-dict", json().bytes())]
}

pub(crate) fn headers(name: &str) -> String {
    format!("Sec-WebSocket-Protocol: {}", offer(name).tokens()[0]) + "\r\n"
}

pub(crate) async fn scripted(name: &str) -> (Scripted, Connection) {
    let (address, accepted) = listen(config(support(&[name]))).await;
    let (client, _) = Scripted::upgraded(address, &headers(name)).await;
    (client, connection(accepted.await.unwrap().unwrap()))
}

/// A message as another implementation would write it.
fn framed(dictionary: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut compressor = zstd::bulk::Compressor::with_dictionary(1, dictionary).unwrap();
    [vec![1], compressor.compress(payload).unwrap()].concat()
}

#[tokio::test]
async fn small_messages_compress_by_what_the_dictionary_knows() {
    let mut wire_bytes = Vec::new();
    for name in ["zstd", "zstd-shared", "zstd-dict"] {
        let (mut client, mut relay) = pair(&offer(name), config(support(&[name]))).await;
        for payload in [NOTE, r#"["EOSE","sub:1"]"#, ""] {
            send(&mut relay, payload).await;
            assert_eq!(receive(&mut client).await, payload);
            send(&mut client, payload).await;
            assert_eq!(receive(&mut relay).await, payload);
        }
        wire_bytes.push(relay.traffic().sent.wire_bytes);
        let memory = relay.compression_memory();
        assert!(
            memory.own_bytes == 0 && memory.shared_bytes > 0,
            "contexts serve a whole thread: {memory:?}"
        );
    }
    let [zstd, shared, dictionary] = wire_bytes[..] else { panic!("{wire_bytes:?}") };
    assert_eq!(shared, zstd);
    assert!(dictionary * 10 < zstd * 9, "{wire_bytes:?}");
}

#[tokio::test]
async fn what_would_not_become_smaller_goes_as_it_is() {
    let noise: Vec<u8> =
        (0_u32..200).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0] & 0x7f).collect();
    let long_prefix = "p".repeat(1_025);
    let cases =
        [("prefix", &noise[..]), ("", b"x"), ("short", b"and small"), (&long_prefix, NOTE.as_bytes())];
    for ((name, _), (prefix, rest)) in both().into_iter().flat_map(|both| cases.map(|case| (both, case))) {
        let (mut client, mut relay) = pair(&offer(name), config(support(&[name]))).await;
        let shared = Shared::default();
        let payload = [prefix.as_bytes(), rest].concat();
        for _ in 0..2 {
            relay.feed_shared(prefix.as_bytes(), [rest, b""], &shared).await.unwrap();
            relay.flush().await.unwrap();
            assert!(receive(&mut client).await == payload);
        }
        let sent = relay.traffic().sent;
        assert!(sent.wire_bytes <= sent.payload_bytes + 2 * 5, "{sent:?}");
    }
}

#[tokio::test]
async fn one_event_is_shared_by_readers_with_different_dictionaries() {
    let other = Dictionary::bundled(Format::all().nth(1).unwrap().name()).unwrap();
    let bundled: Compression = "zstd-dict".parse().unwrap();
    let own = bundled.with_dictionary(other);
    let level: Compression = "zstd-dict:level=-5".parse().unwrap();
    let shared = Shared::default();
    let none: Compression = "zstd-shared".parse().unwrap();
    for compression in [bundled, own, none, level, own, none, bundled] {
        let mut support = support(&[]);
        support.compressions = vec![compression];
        let offer = Offer { batched: false, formats: vec![Format::JSON], compression };
        let (mut client, mut relay) = pair(&offer, config(support)).await;
        assert_eq!(client.agreement().compression.name(), compression.name());
        let (prefix, rest) = NOTE.as_bytes().split_at(17);
        relay.feed_shared(prefix, [rest, b""], &shared).await.unwrap();
        relay.flush().await.unwrap();
        assert_eq!(receive(&mut client).await, NOTE);
    }
}

#[tokio::test]
async fn several_frames_are_one_message_within_the_limit_of_all() {
    for (name, dictionary) in both() {
        let frame = |payload: &[u8]| framed(dictionary, payload).split_off(1);
        let limit = WireLimits::default().max_message_bytes;
        let silent = |payload: &[u8]| {
            let mut encoder = zstd::stream::Encoder::with_dictionary(Vec::new(), 1, dictionary).unwrap();
            encoder.write_all(payload).unwrap();
            encoder.finish().unwrap()
        };
        let message = |frames: &[Vec<u8>]| [vec![1], frames.concat()].concat();
        let half = vec![b' '; limit / 2];
        let (mut client, mut relay) = scripted(name).await;
        for (frames, payload) in [
            (vec![frame(b"one"), frame(b""), silent(b"two")], b"onetwo".to_vec()),
            (vec![frame(&half), silent(&half)], vec![b' '; limit]),
            (vec![frame(b"x"); 256], vec![b'x'; 256]),
            (vec![frame(b""); 2], vec![]),
        ] {
            client.frame(FIN | BINARY, &message(&frames)).await;
            assert!(receive(&mut relay).await == payload);
        }
        let bomb = vec![b' '; 64 << 20];
        for (what, message, code) in [
            ("halves and a byte", message(&[frame(&half), frame(&half), frame(b"x")]), CloseCode::Size),
            (
                "halves and a byte, unclaimed",
                message(&[silent(&half), silent(&half), silent(b"x")]),
                CloseCode::Size,
            ),
            ("a bomb behind a small frame", message(&[frame(b"x"), frame(&bomb)]), CloseCode::Size),
            ("a silent bomb behind one", message(&[frame(b"x"), silent(&bomb)]), CloseCode::Size),
            ("a thousand empty frames", message(&vec![frame(b""); 1_000]), CloseCode::Invalid),
        ] {
            check_refused(&headers(name), what, &[(FIN | BINARY, &message)], code).await;
        }
    }
}

#[tokio::test]
async fn without_the_same_dictionary_both_ends_fall_back_to_json_uncompressed() {
    let other = Dictionary::bundled(Format::all().nth(1).unwrap().name()).unwrap();
    let theirs = Offer {
        batched: false,
        formats: vec![Format::JSON],
        compression: offer("zstd-dict").compression.with_dictionary(other),
    };
    let (mut client, mut relay) = pair(&theirs, config(support(&["zstd-dict", "zstd"]))).await;
    assert_eq!(client.agreement().token.as_deref(), Some("nostr.json"));
    assert_eq!(
        (client.agreement().compression, relay.agreement().compression),
        (Compression::None, Compression::None)
    );
    send(&mut client, NOTE).await;
    assert_eq!(receive(&mut relay).await, NOTE);
}

#[test]
fn the_token_names_the_dictionary_and_an_agreement_holds_it() {
    let own = Dictionary::bundled(Format::all().nth(2).unwrap().name()).unwrap();
    let bundled: Compression = "zstd-dict".parse().unwrap();
    let support = Support { compressions: vec![bundled, bundled.with_dictionary(own)], ..support(&[]) };
    for format in Format::all() {
        for (compression, expected) in
            [(bundled, Dictionary::bundled(format.name()).unwrap()), (bundled.with_dictionary(own), own)]
        {
            let offer = Offer { batched: false, formats: vec![format], compression };
            let request = negotiate::request(std::slice::from_ref(&offer));
            let token = format!("{}+zstd-dict2-{}", format.spec().token, expected.id());
            assert!(request.protocols.starts_with(&format!("{token}, ")), "{}", request.protocols);
            let relay = negotiate::accept(Some(&request.protocols), None, &support).unwrap();
            let client = negotiate::check_answer(std::slice::from_ref(&offer), Some(&token), None).unwrap();
            assert_eq!(client, relay);
            assert_eq!(relay.compression.dictionary(), Some(expected));
        }
    }
    let tokens = support.tokens();
    assert_eq!(
        tokens.len(),
        3 * Format::all().count() - 1,
        "plain, bundled and own; one has its own for bundled"
    );
    assert_eq!(support.dictionaries().len(), Format::all().count());
    for wrong in ["", "0", "00000000", "0000000", "000000000", "ABCDEF01"] {
        let token = format!("nostr.json+zstd-dict2-{wrong}");
        assert_eq!(negotiate::accept(Some(&token), None, &support).unwrap().token, None, "{token}");
    }
}
