//! Compression with a dictionary that both ends have.

use bytes::Bytes;
use codecs::Format;
use wire::{CloseCode, Compression, Connection, Dictionary, Offer, Support, WireLimits, negotiate};

use crate::{
    common::{config, connection, listen, offer, pair, receive, send, support},
    hostile::check_refused,
    scripted::{BINARY, FIN, Scripted},
};

const NOTE: &str = r#"["EVENT","sub:1",{"id":"5c83da77af1dec6d7289834998ad7aafbd9e2191396d75ec3cc27f5a77226f36","pubkey":"f7234bd4c1394dda46d09f35bd384dd30cc552ad5541990f98844fb06676e9ca","created_at":1700000000,"kind":1,"tags":[],"content":"good morning","sig":"908a15e46fb4d8675bab026fc230a0e3542bfade63da02d542fb78b2a8513fcd0092619a2c8c1221e581946e0191f2af505dfdf8657a414dbca329186f009262"}]"#;

/// [`NOTE`] behind the zstd layer with the bundled dictionary, as zstd 1.5.7 writes it: the
/// transform byte, then a frame (magic 28 b5 2f fd) that does not name its dictionary, because the
/// token does.
const GOLDEN: &str = "0128b52ffd607400e505003311295e7c110319d55de38414a6b3f52852efe5d49ef6ec6d736c48a17b5685d23e42442c31748518d5ddc35aa24d8e2bf56aa8fbe0f993fc8fb785baf9e797c81ae32d5fdb9c1e5d8df517793a75e292e212d36981f1743a27d78805ced47333df6aaa29a9764a21dd7d1c7719bb7c1e4df9accda6ee61f5e7519588e9b334b11b6763c46edfd6c858b2df7e582552085f3dabb9f7e34929cda412f6c3ec1fd4bcdb9f4c6c0307fce04af10c4c1810410c5b026e077ca756e1b75a";

fn json() -> Dictionary {
    Dictionary::bundled(Format::JSON).unwrap()
}

fn headers() -> String {
    format!("Sec-WebSocket-Protocol: nostr.json+zstd-dict-{}\r\n", json().id())
}

async fn scripted() -> (Scripted, Connection) {
    let (address, accepted) = listen(config(support(&["zstd-dict"]))).await;
    let (client, _) = Scripted::upgraded(address, &headers()).await;
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
    for name in ["zstd", "zstd-dict"] {
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
    assert!(wire_bytes[1] * 10 < wire_bytes[0] * 9, "{wire_bytes:?}");
}

#[tokio::test]
async fn the_bytes_of_a_message_stay_what_they_are() {
    let (mut client, mut relay) = scripted().await;
    send(&mut relay, NOTE).await;
    let (first_byte, message) = client.read_frame().await;
    assert_eq!(first_byte, FIN | BINARY);
    assert_eq!(codecs::hex::encode(&message), GOLDEN);
    client.frame(FIN | BINARY, &codecs::hex::decode(GOLDEN.as_bytes()).unwrap()).await;
    assert_eq!(receive(&mut relay).await, NOTE);
    client.frame(FIN | BINARY, &framed(json().bytes(), NOTE.as_bytes())).await;
    assert_eq!(receive(&mut relay).await, NOTE, "a frame may name its dictionary");
}

#[tokio::test]
async fn what_the_dictionary_does_not_explain_ends_the_connection() {
    let other = Dictionary::bundled(Format::all().nth(1).unwrap()).unwrap();
    let bomb = vec![b' '; 64 << 20];
    let mut truncated = framed(json().bytes(), NOTE.as_bytes());
    truncated.pop();
    for (what, message, code) in [
        ("another dictionary's frame", framed(other.bytes(), NOTE.as_bytes()), CloseCode::InvalidData),
        ("a truncated frame", truncated, CloseCode::InvalidData),
        ("no frame", b"\x01hello".to_vec(), CloseCode::InvalidData),
        ("text in Latin-1", framed(json().bytes(), b"caf\xe9"), CloseCode::InvalidData),
        ("a block of a stream", vec![2, 0], CloseCode::Protocol),
        ("a bomb", framed(json().bytes(), &bomb), CloseCode::TooLarge),
    ] {
        check_refused(&headers(), what, &[(FIN | BINARY, &message)], code).await;
    }
}

#[tokio::test]
async fn without_the_same_dictionary_both_ends_fall_back_to_json_uncompressed() {
    let other = Dictionary::bundled(Format::all().nth(1).unwrap()).unwrap();
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
    let own = Dictionary::bundled(Format::all().nth(2).unwrap()).unwrap();
    let bundled: Compression = "zstd-dict".parse().unwrap();
    let support = Support { compressions: vec![bundled, bundled.with_dictionary(own)], ..support(&[]) };
    for format in Format::all() {
        for (compression, expected) in
            [(bundled, Dictionary::bundled(format).unwrap()), (bundled.with_dictionary(own), own)]
        {
            let offer = Offer { batched: false, formats: vec![format], compression };
            let request = negotiate::request(&offer);
            let token = format!("{}+zstd-dict-{}", format.spec().token, expected.id());
            assert!(request.protocols.starts_with(&format!("{token}, ")), "{}", request.protocols);
            let relay = negotiate::accept(Some(&request.protocols), None, &support).unwrap();
            let client = negotiate::check_answer(&offer, Some(&token), None).unwrap();
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
        let token = format!("nostr.json+zstd-dict-{wrong}");
        assert_eq!(negotiate::accept(Some(&token), None, &support).unwrap().token, None, "{token}");
    }
}

#[tokio::test]
async fn the_largest_message_allowed_arrives() {
    let payload = Bytes::from(vec![b' '; WireLimits::default().max_message_bytes]);
    let (mut client, mut relay) = scripted().await;
    client.frame(FIN | BINARY, &framed(json().bytes(), &payload)).await;
    assert!(receive(&mut relay).await == payload);
}
