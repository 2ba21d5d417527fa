//! A scripted client against the relay's end: allowed frames work, forbidden ones end with the
//! right close code, in bounded memory and time.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use flate2::{Compression as Level, write::DeflateEncoder};
use wire::{CloseCode, Connection, WireError, WireLimits};

use crate::{
    common::{config, connection, listen, receive, sample, send, support},
    scripted::{BINARY, CLOSE, CONTINUATION, FIN, PING, PONG, RSV1, Scripted, TEXT, frame, patiently},
};

const DEFLATE: &str = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
const ZSTD: &str = "Sec-WebSocket-Protocol: nostr.json+zstd\r\n";
const ZSTD_STREAM: &str = "Sec-WebSocket-Protocol: nostr.json+zstd-stream\r\n";
const PLAIN: &str = "";

/// First byte and payload.
type RawFrame<'a> = (u8, &'a [u8]);

/// A scripted client that upgraded with these header lines, and the relay's end.
async fn scripted(headers: &str) -> (Scripted, Connection) {
    let (address, accepted) =
        listen(config(support(&["deflate", "zstd", "zstd-stream", "zstd-shared", "zstd-dict"]))).await;
    let (client, _) = Scripted::upgraded(address, headers).await;
    (client, connection(accepted.await.unwrap().unwrap()))
}

/// The first message of a connection under permessage-deflate.
fn deflated(payload: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Level::new(6));
    encoder.write_all(payload).unwrap();
    encoder.flush().unwrap();
    encoder.get_ref().strip_suffix(&[0, 0, 0xff, 0xff]).unwrap().to_vec()
}

fn zstd_message(payload: &[u8]) -> Vec<u8> {
    [vec![1], zstd::bulk::compress(payload, 1).unwrap()].concat()
}

/// Sends frames that the relay must refuse with an error and a Close frame with `code`.
pub(crate) async fn check_refused(headers: &str, what: &str, frames: &[RawFrame<'_>], code: CloseCode) {
    let bytes: Vec<u8> =
        frames.iter().flat_map(|(first_byte, payload)| frame(true, *first_byte, payload)).collect();
    check_refused_bytes(headers, what, &bytes, code).await;
}

async fn check_refused_bytes(headers: &str, what: &str, bytes: &[u8], code: CloseCode) {
    let (mut client, mut relay) = scripted(headers).await;
    client.write(bytes).await;
    let error = loop {
        match patiently(relay.next()).await.unwrap_or_else(|| panic!("{what}: ended without an error")) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.close_code(), Some(code), "{what}: {error}");
    assert!(relay.next().await.is_none(), "{what}: an error ends the connection");
    let closing = async {
        relay.close(code, &error.to_string()).await;
        drop(relay);
    };
    let reading = async {
        assert_eq!(client.read_close().await, u16::from(code), "{what}: {error}");
        assert_eq!(client.read_to_end().await, "", "{what}");
        drop(client);
    };
    tokio::join!(closing, reading);
}

#[tokio::test]
async fn a_compressed_message_in_fragments_with_pings_between_them_is_one_message() {
    let (mut client, mut relay) = scripted(DEFLATE).await;
    let payload = sample(1, 5000);
    let bytes = deflated(&payload);
    let (first, rest) = bytes.split_at(bytes.len() / 3);
    let (second, third) = rest.split_at(rest.len() / 2);
    client.frame(RSV1 | TEXT, first).await;
    client.frame(FIN | PING, b"one").await;
    client.frame(CONTINUATION, second).await;
    client.frame(CONTINUATION, b"").await;
    client.frame(FIN | PING, b"two").await;
    client.frame(FIN | CONTINUATION, third).await;
    client.frame(FIN | TEXT, b"not compressed").await;
    client.frame(FIN | RSV1 | BINARY, &[0]).await;
    assert_eq!(receive(&mut relay).await, payload);
    assert_eq!(client.read_frame().await, (FIN | PONG, b"one".to_vec()));
    assert_eq!(client.read_frame().await, (FIN | PONG, b"two".to_vec()));
    assert_eq!(receive(&mut relay).await, "not compressed");
    let empty = relay.next().await.unwrap().unwrap();
    assert_eq!((empty.opcode, empty.payload.len()), (codecs::Opcode::Binary, 0));
}

#[tokio::test]
async fn a_connection_in_single_bytes_works_and_next_can_be_dropped_at_any_time() {
    for headers in [PLAIN, DEFLATE] {
        let (mut client, mut relay) = scripted(headers).await;
        let payload = sample(2, 300);
        let body = if headers == DEFLATE { deflated(&payload) } else { payload.clone() };
        let rsv1 = if headers == DEFLATE { RSV1 } else { 0 };
        let mut bytes = frame(true, FIN | PING, b"hello");
        bytes.extend(frame(true, rsv1 | TEXT, &body[..100]));
        bytes.extend(frame(true, FIN | PING, b""));
        bytes.extend(frame(true, FIN | CONTINUATION, &body[100..]));
        let writing = tokio::spawn(async move {
            for byte in bytes {
                client.write(&[byte]).await;
                tokio::time::sleep(Duration::from_micros(300)).await;
            }
            client
        });
        let mut drops = 0;
        let received = loop {
            tokio::select! {
                message = relay.next() => break message.unwrap().unwrap(),
                () = tokio::time::sleep(Duration::from_micros(100)) => drops += 1,
            }
        };
        assert!(drops > 10, "{drops}");
        assert_eq!(received.payload, payload);
        let mut client = writing.await.unwrap();
        assert_eq!(client.read_frame().await, (FIN | PONG, b"hello".to_vec()));
        assert_eq!(client.read_frame().await, (FIN | PONG, vec![]));
    }
}

#[tokio::test]
async fn messages_over_the_limit_are_refused_before_they_are_in_memory() {
    let limit = WireLimits::default().max_message_bytes;
    let bomb = vec![b' '; 64 << 20];
    let deflate_bomb = deflated(&bomb);
    assert!(deflate_bomb.len() < limit, "the bomb looks harmless: {} bytes", deflate_bomb.len());
    let begin = Instant::now();
    for (headers, what, first_byte, payload) in [
        (DEFLATE, "deflate bomb", FIN | RSV1 | TEXT, &deflate_bomb[..]),
        (ZSTD, "zstd bomb", FIN | BINARY, &zstd_message(&bomb)),
        (PLAIN, "one byte over", FIN | TEXT, &bomb[..=limit]),
        (DEFLATE, "one byte over", FIN | TEXT, &bomb[..=limit]),
    ] {
        check_refused(headers, what, &[(first_byte, payload)], CloseCode::Size).await;
    }
    let fragments = [(TEXT, &bomb[..limit]), (CONTINUATION, &bomb[..1]), (FIN | CONTINUATION, b"")];
    check_refused(PLAIN, "over in fragments", &fragments, CloseCode::Size).await;
    let claim = [vec![FIN | BINARY, 0x80 | 127], vec![0x7f; 8], vec![0; 4]].concat();
    check_refused_bytes(DEFLATE, "a claim", &claim, CloseCode::Size).await;
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn the_largest_message_allowed_arrives() {
    let limit = WireLimits::default().max_message_bytes;
    let payload = vec![b' '; limit];
    for (headers, first_byte, message) in [
        (PLAIN, FIN | TEXT, payload.clone()),
        (DEFLATE, FIN | RSV1 | TEXT, deflated(&payload)),
        (ZSTD, FIN | BINARY, zstd_message(&payload)),
    ] {
        let (mut client, mut relay) = scripted(headers).await;
        let (received, ()) = tokio::join!(receive(&mut relay), client.frame(first_byte, &message));
        assert!(received == payload, "{headers}");
    }
}

#[tokio::test]
async fn payloads_that_are_not_what_they_claim_are_invalid_data() {
    let latin1 = b"caf\xe9";
    let two_frames = [zstd_message(b"one"), zstd::bulk::compress(b"two", 1).unwrap()].concat();
    let cases: [(&str, &str, u8, &[u8]); 5] = [
        (PLAIN, "text in Latin-1", FIN | TEXT, latin1),
        (DEFLATE, "no deflate stream", FIN | RSV1 | TEXT, &[0x07, 1, 2, 3]),
        (ZSTD, "plain text in Latin-1", FIN | BINARY, b"\0caf\xe9"),
        (ZSTD, "no zstd frame", FIN | BINARY, b"\x01hello"),
        (ZSTD, "two frames", FIN | BINARY, &two_frames),
    ];
    for (headers, what, first_byte, payload) in cases {
        check_refused(headers, what, &[(first_byte, payload)], CloseCode::Invalid).await;
    }
}

#[tokio::test]
async fn the_zstd_layer_is_binary_and_begins_with_a_known_transform() {
    check_refused(ZSTD, "RSV1", &[(FIN | RSV1 | BINARY, &deflated(b"Hello"))], CloseCode::Protocol).await;
    let (mut client, mut relay) = scripted(ZSTD).await;
    client.frame(FIN | BINARY, b"\0plain").await;
    client.frame(FIN | BINARY, &zstd_message(b"compressed")).await;
    client.frame(FIN | BINARY, &[0]).await;
    for expected in ["plain", "compressed", ""] {
        let message = relay.next().await.unwrap().unwrap();
        assert_eq!((message.opcode, message.payload), (codecs::Opcode::Text, expected.into()));
    }
}

/// A stream's messages, as another implementation would write them.
fn zstd_stream_messages(window_bits: u32, payloads: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(window_bits).unwrap();
    let messages = payloads.iter().map(|payload| {
        encoder.write_all(payload).unwrap();
        encoder.flush().unwrap();
        [&[2], &std::mem::take(encoder.get_mut())[..]].concat()
    });
    messages.collect()
}

#[tokio::test]
async fn a_zstd_stream_goes_on_from_message_to_message_and_plain_ones_pass_it_by() {
    let (first, second) = (sample(1, 900), [sample(1, 900), b"and more".to_vec()].concat());
    let messages = zstd_stream_messages(17, &[&first, &second, b"x"]);
    let (mut client, mut relay) = scripted(ZSTD_STREAM).await;
    for message in [&messages[0], &b"\0plain".to_vec(), &messages[1], &messages[2]] {
        client.frame(FIN | BINARY, message).await;
    }
    for expected in [&first[..], b"plain", &second, b"x"] {
        assert_eq!(receive(&mut relay).await, expected);
    }
    assert!(messages[1].len() < messages[0].len() / 4, "the second refers to the first");
}

#[tokio::test]
async fn a_zstd_stream_that_lies_ends_the_connection() {
    let bomb = vec![b' '; 8 << 20];
    let messages = zstd_stream_messages(17, &[&bomb, &sample(1, 900)]);
    let wide = zstd_stream_messages(20, &[&sample(1, 900)]);
    let mut ended = zstd_message(b"a frame with an end");
    ended[0] = 2;
    let frame = |payload| [(FIN | BINARY, payload)];
    check_refused(ZSTD_STREAM, "a bomb", &frame(&messages[0][..]), CloseCode::Size).await;
    let cases: [(&str, &[u8]); 4] = [
        ("a message in the middle", &messages[1]),
        ("a window over 128 KiB", &wide[0]),
        ("an end", &ended),
        ("noise", b"\x02hello"),
    ];
    for (what, payload) in cases {
        check_refused(ZSTD_STREAM, what, &frame(payload), CloseCode::Invalid).await;
    }
    check_refused(ZSTD_STREAM, "a single frame", &frame(&zstd_message(b"x")), CloseCode::Protocol).await;
    check_refused(ZSTD_STREAM, "a text frame", &[(FIN | TEXT, b"[]")], CloseCode::Unsupported).await;
}

#[tokio::test]
async fn a_close_of_the_peer_is_answered_and_reported_unless_it_is_orderly() {
    for (payload, expected) in [
        (vec![], None),
        (1000_u16.to_be_bytes().to_vec(), None),
        ([&1001_u16.to_be_bytes()[..], b"bye"].concat(), None),
        ([&1008_u16.to_be_bytes()[..], b"no"].concat(), Some("closed with 1008: no")),
        (1013_u16.to_be_bytes().to_vec(), Some("closed with 1013")),
    ] {
        let (mut client, mut relay) = scripted(PLAIN).await;
        client.frame(FIN | CLOSE, &payload).await;
        let error = patiently(relay.next()).await.map(|item| item.unwrap_err().to_string());
        assert_eq!(error.as_deref(), expected);
        assert_eq!(client.read_frame().await.0, FIN | CLOSE);
        assert_eq!(client.read_to_end().await, "", "the server ends TCP");
        assert!(relay.next().await.is_none());
        assert!(matches!(relay.feed("late".into()).await, Err(WireError::Closed { .. })));
    }
}

#[tokio::test]
async fn a_peer_that_vanishes_is_no_orderly_close() {
    let (client, mut relay) = scripted(PLAIN).await;
    drop(client);
    let error = patiently(relay.next()).await.unwrap().unwrap_err();
    assert!(matches!(error, WireError::Closed { code: 1006, .. } | WireError::Io(_)), "{error}");
    assert_eq!(error.close_code(), None);
    relay.close(CloseCode::Normal, "").await;
}

#[tokio::test]
async fn closing_does_not_wait_forever_for_a_silent_peer() {
    for reads in [true, false] {
        let (mut client, mut relay) = scripted(PLAIN).await;
        if !reads {
            // The socket is full, so the Close frame cannot be sent.
            while tokio::time::timeout(Duration::from_millis(100), send(&mut relay, vec![b' '; 100_000]))
                .await
                .is_ok()
            {}
        }
        let begin = Instant::now();
        relay.close(CloseCode::Away, &"é".repeat(100)).await;
        assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
        if reads {
            assert_eq!(client.read_close().await, 1001);
        }
        assert!(relay.next().await.is_none());
    }
}

#[tokio::test]
async fn feeding_waits_for_a_slow_reader_and_loses_nothing() {
    let (mut client, mut relay) = scripted(DEFLATE.replace("deflate", "unknown").as_str()).await;
    let message = sample(3, 50_000);
    let mut fed = 0;
    while tokio::time::timeout(Duration::from_millis(100), relay.feed(message.clone().into())).await.is_ok() {
        fed += 1;
        assert!(fed < 10_000, "feeding never waits");
    }
    assert_eq!(relay.traffic().sent.messages, fed, "the message whose feeding was dropped does not count");
    let (result, ()) = tokio::join!(relay.flush(), async {
        for _ in 0..fed {
            assert!(client.read_frame().await == (FIN | TEXT, message.clone()));
        }
    });
    result.unwrap();
}

#[tokio::test]
async fn a_relay_pings_and_hears_the_answer() {
    let (mut client, mut relay) = scripted(PLAIN).await;
    relay.ping().await.unwrap();
    assert_eq!(client.read_frame().await.0, FIN | PING);
    let before = relay.last_heard();
    tokio::time::sleep(Duration::from_millis(5)).await;
    client.frame(FIN | PONG, b"").await;
    client.frame(FIN | TEXT, b"[]").await;
    receive(&mut relay).await;
    assert!(relay.last_heard() > before);
    assert_eq!(relay.traffic().received.messages, 1, "control frames are no messages");
    assert_eq!(relay.traffic().received.wire_bytes, 6 + 8);
}
