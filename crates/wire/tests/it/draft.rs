//! The vectors of the draft in `docs/nip`, as other implementations check themselves by them.

use codecs::hex;
use serde_json::Value;
use wire::{CloseCode, Dictionary, Shared, WireLimits, negotiate};

use crate::{
    common::{offer, receive, support},
    dictionary::{headers, scripted},
    hostile::check_refused,
    scripted::{BINARY, FIN, TEXT},
};

const DRAFT: &str = include_str!("../../../../docs/nip/compressed-messages.md");
const VECTORS: &str = include_str!("../../../../docs/nip/vectors.json");

/// The vectors of a kind, each with what it is.
fn of(vectors: &Value, kind: &str) -> Vec<(String, Value)> {
    let all = vectors[kind].as_array().unwrap().iter();
    all.map(|vector| (vector["what"].as_str().unwrap().to_owned(), vector.clone())).collect()
}

fn bytes(vector: &Value) -> Vec<u8> {
    hex::decode(vector["bytes"].as_str().unwrap().as_bytes()).unwrap()
}

/// The values of `Sec-WebSocket-Protocol` and `Sec-WebSocket-Extensions`.
fn headers_of(vector: &Value) -> [Option<&str>; 2] {
    ["protocol", "extensions"].map(|name| vector[name].as_str())
}

#[tokio::test]
async fn vectors_of_the_draft_are_read_as_they_say() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    let (token, sha256) =
        (vectors["token"].as_str().unwrap(), vectors["dictionary"]["sha256"].as_str().unwrap());
    let dictionary = Dictionary::bundled("json").unwrap();
    assert_eq!(vectors["dictionary"]["id"], dictionary.id());
    assert_eq!(sha256, hex::encode(&dictionary.sha256()));
    assert_eq!(token, offer("zstd-dict").tokens()[0].to_string());
    assert_eq!(vectors["max_message_bytes"], WireLimits::default().max_message_bytes);
    let example = format!(r#""sha256": "{sha256}""#);
    assert!(DRAFT.contains(token) && DRAFT.contains(&example), "the draft's example");

    let enabled = support(&["zstd-dict", "deflate"]);
    for (what, handshake) in of(&vectors, "handshakes") {
        let [protocol, extensions] = headers_of(&handshake["offer"]);
        let relay = negotiate::accept(protocol, extensions, &enabled).unwrap();
        let answered = [relay.token.as_deref(), relay.extensions.as_deref()];
        assert_eq!(answered, headers_of(&handshake["answer"]), "{what}");
    }
    let offers = [offer("zstd-dict"), offer("deflate")];
    for (what, vector) in of(&vectors, "answers") {
        let [protocol, extensions] = headers_of(&vector["answer"]);
        let client = negotiate::check_answer(&offers, protocol, extensions).ok();
        let spoken = client.map(|client| client.token.unwrap_or_else(|| "nostr.json".into()));
        assert_eq!(spoken.as_deref(), vector["speaks"].as_str(), "{what}");
    }

    let (mut client, mut relay) = scripted("zstd-dict").await;
    for (what, vector) in of(&vectors, "messages") {
        let (payload, prefix_bytes) = (vector["payload"].as_str().unwrap(), vector["prefix_bytes"].as_u64());
        let prefix_bytes = prefix_bytes.map_or(0, |bytes| usize::try_from(bytes).unwrap());
        let (prefix, rest) = payload.as_bytes().split_at(prefix_bytes);
        relay.feed_shared(prefix, [rest, b""], &Shared::default()).await.unwrap();
        relay.flush().await.unwrap();
        assert_eq!(client.read_frame().await, (FIN | BINARY, bytes(&vector)), "{what}");
    }
    for (what, vector) in of(&vectors, "messages").into_iter().chain(of(&vectors, "also_valid")) {
        client.frame(FIN | BINARY, &bytes(&vector)).await;
        assert_eq!(receive(&mut relay).await, vector["payload"].as_str().unwrap(), "{what}");
    }
    let codes = [CloseCode::Protocol, CloseCode::Unsupported, CloseCode::Invalid, CloseCode::Size];
    let refused = of(&vectors, "refused");
    for (what, vector) in &refused {
        let opcode = if vector["frame"] == "text" { TEXT } else { BINARY };
        let code = codes.into_iter().find(|code| vector["close"] == u16::from(code)).unwrap();
        check_refused(&headers("zstd-dict"), what, &[(FIN | opcode, &bytes(vector))], code).await;
    }
    for code in codes {
        assert!(refused.iter().any(|(_, vector)| vector["close"] == u16::from(code)), "{code:?}");
    }
}
