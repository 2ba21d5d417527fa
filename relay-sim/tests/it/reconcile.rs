//! NIP-77 over real connections: a client that knows a part learns the rest, in every format.

use std::collections::HashSet;

use codecs::{ClientMessage, Event, Filter, Format, hex};
use negentropy::{Id, Negentropy, NegentropyStorageVector};
use wire::Compression;

use crate::common::{TestRelay, note, ok};

/// Reconciliation as a client does it, over a JSON line of each answer.
fn client(known: impl Iterator<Item = (u64, [u8; 32])>) -> Negentropy<'static, NegentropyStorageVector> {
    let mut storage = NegentropyStorageVector::new();
    known.for_each(|(at, id)| storage.insert(at, Id::from_byte_array(id)).unwrap());
    storage.seal().unwrap();
    Negentropy::owned(storage, 0).unwrap()
}

fn round(line: &str) -> Vec<u8> {
    let message = line.strip_prefix(r#"["NEG-MSG","n",""#).and_then(|rest| rest.strip_suffix(r#""]"#));
    hex::decode(message.unwrap_or_else(|| panic!("expected NEG-MSG, heard {line}")).as_bytes()).unwrap()
}

#[tokio::test]
async fn a_client_learns_what_it_lacks_and_what_the_relay_lacks() {
    let relay = TestRelay::start(|config| config.reconcile.frame_bytes = 4_096).await;
    let mut author = relay.json_client().await;
    let notes: Vec<_> = (0..40).map(|n| note(n, 1_000 + i64::try_from(n).unwrap())).collect();
    for note in &notes[..30] {
        author.publish(note).await;
        author.expect(&ok(note)).await;
    }
    for format in Format::all() {
        let mut peer = relay.client(format, Compression::None).await;
        // It knows notes 20 to 39, of which the relay has 20 to 29, and asks about notes up to the
        // thirty-fifth.
        let filter = Filter { kinds: Some(vec![1]), until: Some(1_034), ..Filter::default() };
        let known = notes[20..35].iter().map(|note| (note.created_at.cast_unsigned(), note.id));
        let mut reconciliation = client(known);
        let first = reconciliation.initiate().unwrap();
        peer.send(&ClientMessage::NegOpen { subscription: "n".into(), filter, message: first.into() }).await;
        let (mut have, mut need) = (Vec::new(), Vec::new());
        loop {
            let answer = round(&peer.hear().await.unwrap());
            match reconciliation.reconcile_with_ids(&answer, &mut have, &mut need).unwrap() {
                Some(message) => {
                    let message = message.into();
                    peer.send(&ClientMessage::NegMsg { subscription: "n".into(), message }).await;
                }
                None => break,
            }
        }
        let learnt = |ids: &[Id]| ids.iter().map(|id| id.to_bytes()).collect::<HashSet<_>>();
        let ids = |notes: &[Event<'_>]| notes.iter().map(|note| note.id).collect::<HashSet<_>>();
        assert_eq!(learnt(&need), ids(&notes[..20]), "{format}");
        assert_eq!(learnt(&have), ids(&notes[30..35]), "{format}");
        peer.send(&ClientMessage::NegClose { subscription: "n".into() }).await;
        let message = vec![0x61].into();
        peer.send(&ClientMessage::NegMsg { subscription: "n".into(), message }).await;
        let text = peer.hear().await.unwrap();
        assert!(text.starts_with(r#"["NEG-ERR","n","closed: "#), "{format}: {text}");
    }
    let totals = relay.stop().await;
    assert_eq!(totals.reconciliations, Format::all().len() as u64);
    assert_eq!(totals.reconciliations_refused, Format::all().len() as u64);
    assert_eq!(totals.sessions_panicked, 0);
}

#[tokio::test]
async fn what_is_refused_gets_a_reason() {
    let relay = TestRelay::start(|config| {
        config.reconcile.max_events = 2;
        config.reconcile.max_open = 1;
    })
    .await;
    let mut peer = relay.json_client().await;
    for n in 0..3 {
        peer.publish(&note(n, 5)).await;
        peer.expect(&ok(&note(n, 5))).await;
    }
    for (request, start) in [
        (r#"["NEG-OPEN","a",{"kinds":[1]},"6100000200"]"#, r#"["NEG-ERR","a","blocked: more than 2 events"#),
        (r#"["NEG-OPEN","a",{"kinds":[1],"limit":2},"6100000200"]"#, r#"["NEG-MSG","a","61"#),
        (r#"["NEG-OPEN","b",{"kinds":[2]},"6100000200"]"#, r#"["NEG-ERR","b","blocked: a connection has"#),
        (r#"["NEG-OPEN","a",{"frob":1},"6100000200"]"#, r#"["NEG-ERR","a","unsupported: "#),
        (r#"["NEG-OPEN","b",{"kinds":[2]},"61000007"]"#, r#"["NEG-ERR","b","invalid: "#),
        (r#"["NEG-OPEN","b",{"kinds":[2]},"61zz"]"#, r#"["NEG-ERR","b","invalid: "#),
        (r#"["NEG-MSG","b","6100000200"]"#, r#"["NEG-ERR","b","closed: "#),
        (r#"["NEG-OPEN","b",{"kinds":[2]},"6100000200"]"#, r#"["NEG-MSG","b","61"#),
    ] {
        peer.send_bytes(request.as_bytes().to_vec()).await;
        let heard = peer.hear().await.unwrap();
        assert!(heard.starts_with(start), "{request}: {heard}");
    }
    assert_eq!(relay.stop().await.sessions_panicked, 0);
}
