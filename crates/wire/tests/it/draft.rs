//! The vectors of the draft in `docs/nip`, as other implementations check themselves by them.

use codecs::hex;
use serde::Deserialize;
use wire::{CloseCode, Dictionary, Shared, WireLimits, negotiate};

use crate::{
    common::{offer, receive, support},
    dictionary::{headers, scripted},
    hostile::check_refused,
    scripted::{BINARY, FIN, TEXT},
};

const DRAFT: &str = include_str!("../../../../docs/nip/compressed-messages.md");
const VECTORS: &str = include_str!("../../../../docs/nip/vectors.json");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vectors {
    about: String,
    token: String,
    dictionary: Named,
    max_message_bytes: usize,
    handshakes: Vec<Handshake>,
    answers: Vec<Answer>,
    messages: Vec<Sent>,
    also_valid: Vec<Valid>,
    refused: Vec<Refused>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    id: String,
    sha256: String,
}

/// The values of `Sec-WebSocket-Protocol` and `Sec-WebSocket-Extensions`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Headers {
    protocol: Option<String>,
    extensions: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Handshake {
    what: String,
    offer: Headers,
    answer: Headers,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    what: String,
    answer: Headers,
    speaks: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    what: String,
    payload: String,
    prefix_bytes: Option<usize>,
    bytes: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Valid {
    what: String,
    payload: String,
    bytes: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    what: String,
    frame: String,
    bytes: String,
    close: u16,
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    hex::decode(hexadecimal.as_bytes()).unwrap()
}

#[tokio::test]
async fn vectors_of_the_draft_are_read_as_they_say() {
    let vectors: Vectors = serde_json::from_str(VECTORS).unwrap();
    let dictionary = Dictionary::bundled("json").unwrap();
    let Named { id, sha256 } = &vectors.dictionary;
    assert_eq!((id, sha256), (&dictionary.id().to_string(), &hex::encode(&dictionary.sha256())));
    assert_eq!(vectors.token, offer("zstd-dict").tokens()[0].to_string());
    assert_eq!(vectors.max_message_bytes, WireLimits::default().max_message_bytes);
    assert!(vectors.about.contains("compressed-messages.md"));
    let example = format!(r#""sha256": "{sha256}""#);
    assert!(DRAFT.contains(&vectors.token) && DRAFT.contains(&example), "the draft's example");

    let enabled = support(&["zstd-dict", "deflate"]);
    for Handshake { what, offer, answer } in &vectors.handshakes {
        let (protocol, extensions) = (offer.protocol.as_deref(), offer.extensions.as_deref());
        let relay = negotiate::accept(protocol, extensions, &enabled).unwrap();
        assert_eq!((&relay.token, &relay.extensions), (&answer.protocol, &answer.extensions), "{what}");
    }
    let offers = [offer("zstd-dict"), offer("deflate")];
    for Answer { what, answer, speaks } in &vectors.answers {
        let (protocol, extensions) = (answer.protocol.as_deref(), answer.extensions.as_deref());
        let client = negotiate::check_answer(&offers, protocol, extensions).ok();
        let spoken = client.map(|client| client.token.unwrap_or_else(|| "nostr.json".into()));
        assert_eq!(&spoken, speaks, "{what}");
    }

    let (mut client, mut relay) = scripted("zstd-dict").await;
    for Sent { what, payload, prefix_bytes, bytes: message } in &vectors.messages {
        let message = bytes(message);
        let (prefix, rest) = payload.as_bytes().split_at(prefix_bytes.unwrap_or(0));
        relay.feed_shared(prefix, [rest, b""], &Shared::default()).await.unwrap();
        relay.flush().await.unwrap();
        assert_eq!(client.read_frame().await, (FIN | BINARY, message.clone()), "{what}");
        client.frame(FIN | BINARY, &message).await;
        assert_eq!(receive(&mut relay).await, payload, "{what}");
    }
    for Valid { what, payload, bytes: message } in &vectors.also_valid {
        client.frame(FIN | BINARY, &bytes(message)).await;
        assert_eq!(receive(&mut relay).await, payload, "{what}");
    }
    let codes = [CloseCode::Protocol, CloseCode::Unsupported, CloseCode::InvalidData, CloseCode::TooLarge];
    for Refused { what, frame, bytes: message, close } in &vectors.refused {
        let opcode = if frame == "text" { TEXT } else { BINARY };
        let code = codes.into_iter().find(|code| code.code() == *close).unwrap();
        check_refused(&headers("zstd-dict"), what, &[(FIN | opcode, &bytes(message))], code).await;
    }
    for code in codes {
        assert!(vectors.refused.iter().any(|refused| refused.close == code.code()), "{code:?}");
    }
}
