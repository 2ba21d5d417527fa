//! Recordings from a browser's HAR file.

use codecs::hex;
use recording::{Body, Entry, Reader, Side, What};
use serde_json::{Value, json};

use crate::Folder;

fn message(direction: &str, time: f64, opcode: u8, data: &str) -> Value {
    json!({ "type": direction, "time": time, "opcode": opcode, "data": data })
}

fn exchange(messages: &[Value]) -> Value {
    json!({
        "startedDateTime": "2026-11-29T10:00:00.000Z",
        "request": { "url": "wss://relay.example/", "headers": [{ "name": "Cookie", "value": "session=secret" }] },
        "response": { "status": 101, "headers": [{ "name": "Sec-WebSocket-Protocol", "value": "secret" }] },
        "_webSocketMessages": messages,
    })
}

#[test]
fn a_browsers_session_becomes_a_recording_without_its_people() {
    let folder = Folder::new();
    let key = hex::encode(&[7; 32]);
    let request = format!(r#"["REQ","my feed",{{"authors":["{key}"]}}]"#);
    let har = json!({ "log": { "version": "1.2", "entries": [
        { "request": { "url": "https://client.example/" }, "response": { "headers": [] } },
        exchange(&[
            message("send", 1_700_000_000.5, 1, &request),
            message("receive", 1_700_000_000.75, 1, r#"["EOSE","my feed"]"#),
            message("receive", 1_700_000_001.5, 2, "AAECAw=="),
        ]),
        exchange(&[
            message("receive", 1_700_000_000.25, 1, r#"["AUTH","a challenge"]"#),
        ]),
    ] } });
    folder.write("day.har", har.to_string());
    let ran = folder.run(&["import-har", "day.har", "day.jsonl.zst"]).ended(0);
    assert!(ran.out.contains("day.jsonl.zst: 2 connections, 4 messages"), "{ran}");

    let entries: Vec<Entry> =
        Reader::open(&folder.path("day.jsonl.zst")).unwrap().map(|entry| entry.unwrap()).collect();
    let found: Vec<_> = entries.iter().map(|entry| (entry.conn, entry.t_ns)).collect();
    let (quarter, half, whole) = (250_000_000, 500_000_000, 1_250_000_000);
    assert_eq!(found, [(1, 0), (1, 0), (0, quarter), (0, quarter), (0, half), (0, whole), (0, 0)]);
    let opened = What::Open { client: None, relay: None };
    assert!(entries[0].what == opened && entries[2].what == opened, "{entries:?}");
    let bodies = entries.iter().filter_map(|entry| match &entry.what {
        What::Message(message) => Some((message.from, message.wire_bytes, &message.body)),
        _ => None,
    });
    let bodies: Vec<_> = bodies.collect();
    assert!(matches!(bodies[0], (Side::Relay, _, Body::Withheld { kind: None, .. })), "{bodies:?}");
    let (Side::Client, wire_bytes, Body::Text(asked)) = bodies[1] else { panic!("{bodies:?}") };
    assert_eq!((asked.len(), wire_bytes), (request.len(), request.len() as u64 + 6));
    assert!(!asked.contains(&key) && !asked.contains("feed"), "{asked}");
    let (Side::Relay, _, Body::Text(answer)) = bodies[2] else { panic!("{bodies:?}") };
    let subscription = asked.split('"').nth(3).unwrap();
    assert_eq!(*answer, format!(r#"["EOSE","{subscription}"]"#));
    assert_eq!(bodies[3], (Side::Relay, 6, &Body::Withheld { text_bytes: 4, kind: None }));

    folder.run(&["import-har", "day.har", "day.jsonl.zst"]).ended(1).saying(&["name a new file"]);
}

#[test]
fn files_without_sessions_are_refused_with_a_reason_and_leave_nothing() {
    let folder = Folder::new();
    for (content, why) in [
        (r#"{"log":{"entries":[]}}"#.to_owned(), "a.har has no _webSocketMessages: open the developer tools"),
        ("[]".to_owned(), "a.har is not a HAR file"),
        (
            json!({ "log": { "entries": [exchange(&[message("sideways", 1.0, 1, "")])] } }).to_string(),
            "unknown variant `sideways`",
        ),
    ] {
        folder.write("a.har", content);
        folder.run(&["import-har", "a.har", "out.jsonl.zst"]).ended(1).saying(&[why]);
        assert!(!folder.path("out.jsonl.zst").exists());
    }
}
