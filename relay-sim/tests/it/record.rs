//! What passes is recorded as JSON, whatever its format and compression.

use std::{collections::HashMap, path::Path};

use codecs::Format;
use recording::{Body, Entry, Reader, Recorder, Redaction, Side, What};
use wire::Offer;

use crate::common::{TestRelay, delivery, event_json, kinds, note, ok};

fn read(file: &Path) -> Vec<Entry> {
    let mut reader = Reader::open(file).unwrap();
    let entries = reader.by_ref().collect::<Result<_, _>>().unwrap();
    assert!(!reader.torn());
    entries
}

#[tokio::test]
async fn a_recording_has_every_message_as_json_and_its_bytes_on_the_wire() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("day.jsonl.zst");
    let recorder = Recorder::start(&file, Redaction::None, "a test").unwrap();
    let relay = TestRelay::start(|config| config.recorder = Some(recorder)).await;
    let event = note(1, 1_700_000_000);
    let mut received = HashMap::new();
    for (conn, (format, compression, batched)) in [
        ("json", "none", false),
        ("json", "deflate", false),
        ("dannypack", "zstd", false),
        ("proto-binary", "zstd-dict", true),
        ("cbor-packed", "deflate", false),
    ]
    .into_iter()
    .enumerate()
    {
        let formats = vec![format.parse::<Format>().unwrap()];
        let offer = Offer { batched, formats, compression: compression.parse().unwrap() };
        let mut client = relay.client_that_offers(offer).await;
        client.publish(&event).await;
        client.hear().await.unwrap();
        client.request("feed", kinds(&[1])).await;
        client.hear_sorted(2).await;
        let traffic = client.conn.traffic();
        received.insert(conn as u64, [traffic.sent.wire_bytes, traffic.received.wire_bytes]);
        client.conn.close(wire::CloseCode::Normal, "").await;
    }
    relay.stop().await;

    let entries = read(&file);
    for (conn, wire_bytes) in received {
        let of = |from: Side| -> Vec<(&str, u64)> {
            let messages =
                entries.iter().filter(|entry| entry.conn == conn).filter_map(|entry| match &entry.what {
                    What::Message(message) if message.from == from => match &message.body {
                        Body::Text(text) => Some((&**text, message.wire_bytes)),
                        body @ Body::Withheld { .. } => panic!("{body:?}"),
                    },
                    _ => None,
                });
            messages.collect()
        };
        let (sent, heard) = (of(Side::Client), of(Side::Relay));
        let texts = |messages: &[(&str, u64)]| -> Vec<String> {
            messages.iter().map(|(text, _)| (*text).to_owned()).collect()
        };
        let publish = format!("[\"EVENT\",{}]", event_json(&event));
        assert_eq!(texts(&sent), [publish, "[\"REQ\",\"feed\",{\"kinds\":[1]}]".to_owned()]);
        let heard_texts = texts(&heard);
        assert_eq!(heard_texts.len(), 3);
        assert!(heard_texts[0].starts_with(ok(&event).trim_end_matches("\"\"]")), "{heard_texts:?}");
        let delivered = delivery("feed", &event);
        let batch = format!("[\"EVENTS\",\"feed\",[{}]]", event_json(&event));
        assert!([&delivered, &batch].contains(&&heard_texts[1]), "{heard_texts:?}");
        assert_eq!(heard_texts[2], "[\"EOSE\",\"feed\"]");
        let sum = |messages: &[(&str, u64)]| messages.iter().map(|(_, bytes)| bytes).sum::<u64>();
        assert_eq!([sum(&sent), sum(&heard)], wire_bytes, "connection {conn}");
        let ends = entries.iter().filter(|entry| entry.conn == conn).filter_map(|entry| match entry.what {
            What::Close { code, by } => Some((code, by)),
            _ => None,
        });
        assert_eq!(ends.collect::<Vec<_>>(), [(Some(1000), Side::Client)]);
    }
    let times: Vec<_> = entries[..entries.len() - 1].iter().map(|entry| entry.t_ns).collect();
    assert!(times.is_sorted() && times.last().unwrap() > &0);
}
