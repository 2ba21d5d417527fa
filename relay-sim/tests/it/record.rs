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
        client.hear().await.unwrap();
        client.hear().await.unwrap();
        let traffic = client.conn.traffic();
        received.insert(conn as u64, [traffic.sent.wire_bytes, traffic.received.wire_bytes]);
        client.conn.close(wire::CloseCode::Normal, "").await;
    }
    relay.stop().await;

    let entries = read(&file);
    for (conn, wire_bytes) in received {
        let messages = |from: Side| -> (Vec<&str>, u64) {
            let (mut texts, mut bytes) = (Vec::new(), 0);
            for entry in entries.iter().filter(|entry| entry.conn == conn) {
                if let What::Message(message) = &entry.what
                    && message.from == from
                {
                    let Body::Text(text) = &message.body else { panic!("{:?}", message.body) };
                    texts.push(&**text);
                    bytes += message.wire_bytes;
                }
            }
            (texts, bytes)
        };
        let ((sent, sent_bytes), (heard, heard_bytes)) = (messages(Side::Client), messages(Side::Relay));
        assert_eq!([sent_bytes, heard_bytes], wire_bytes, "connection {conn}");
        let publish = format!("[\"EVENT\",{}]", event_json(&event));
        assert_eq!(sent, [publish.as_str(), "[\"REQ\",\"feed\",{\"kinds\":[1]}]"]);
        assert!(heard[0].starts_with(ok(&event).trim_end_matches("\"\"]")), "{heard:?}");
        let batch = format!("[\"EVENTS\",\"feed\",[{}]]", event_json(&event));
        assert!([delivery("feed", &event), batch].contains(&heard[1].to_owned()), "{heard:?}");
        assert_eq!(heard[2..], ["[\"EOSE\",\"feed\"]"]);
        let ends = entries.iter().filter(|entry| entry.conn == conn).filter_map(|entry| match entry.what {
            What::Close { code, by } => Some((code, by)),
            _ => None,
        });
        assert_eq!(ends.collect::<Vec<_>>(), [(Some(1000), Side::Client)]);
    }
    let times: Vec<_> = entries[..entries.len() - 1].iter().map(|entry| entry.t_ns).collect();
    assert!(times.is_sorted() && times.last().unwrap() > &0);
}
