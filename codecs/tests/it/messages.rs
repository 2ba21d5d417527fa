//! Whole messages: every variant in every format comes back the same, and nothing else is accepted.

use codecs::{ClientMessage, DecodeError, RelayMessage};

use crate::common::{
    ENVELOPE, Message, PROTOBUF, Subject, batch, negentropy, relay_messages, sample_event, subjects,
};

/// What each implementation writes behind other bytes is the library's, and comes back the same.
#[test]
fn every_message_round_trips() {
    for subject in subjects() {
        for message in Message::all() {
            let bytes = message.bytes(subject.format.spec().library).unwrap();
            let mut behind = b"before".to_vec();
            message.write(subject.codec, &mut behind).unwrap();
            assert_eq!(behind, [b"before", &bytes[..]].concat(), "{}, {message:?}", subject.label);
            assert_eq!(message.read(subject.codec, &bytes), Ok(message), "{}", subject.label);
        }
    }
}

/// A peek shows what decoding shows; every tuned implementation has one for the form that
/// it writes.
#[test]
fn a_peek_shows_the_event_that_decoding_gives() {
    for subject in subjects() {
        for message in relay_messages() {
            let bytes = subject.relay(&message).unwrap();
            let peeked = subject.codec.peek_relay(&bytes);
            match &message {
                RelayMessage::Event { subscription, event } => {
                    let expected = (subscription.clone(), codecs::EventHead::from(&**event));
                    let by_hand = !subject.label.ends_with("(library)");
                    assert!(peeked == Some(expected) || (!by_hand && peeked.is_none()), "{}", subject.label);
                }
                _ => assert_eq!(peeked, None, "{}, {message:?}", subject.label),
            }
        }
        assert_eq!(subject.codec.peek_relay(b""), None, "{}", subject.label);
    }
}

#[test]
fn an_empty_batch_is_no_message() {
    let sub = "s".to_owned();
    for subject in subjects() {
        let empty = RelayMessage::Events { subscription: sub.clone().into(), events: Vec::new() };
        assert!(subject.relay(&empty).is_err(), "{}", subject.label);
        let splice = || subject.codec.wrap_events(&sub, &[], &mut Vec::new());
        let spliced = std::panic::catch_unwind(std::panic::AssertUnwindSafe(splice));
        assert!(spliced.is_err(), "{}", subject.label);
        let bytes = match subject.format.name() {
            "json" | "nson" => b"[\"EVENTS\",\"s\",[]]".to_vec(),
            "cbor-schemaless" => b"\x83\x66EVENTS\x61s\x80".to_vec(),
            "cbor-packed" | "cbor-intkey" => b"\x83\x0a\x61s\x80".to_vec(),
            name if PROTOBUF.contains(&name) => b"\x52\x03\x0a\x01s".to_vec(),
            name if ENVELOPE.contains(&name) => b"\x8a\x01s".to_vec(),
            // One segment: root, ordinal 9, SubEvents, "s", and a list of no pointers or none at
            // all.
            "capnp" => {
                let words: [u64; 7] =
                    [6 << 32, 1 << 32 | 1 << 48, 9, 2 << 48, 2 << 35 | 2 << 32 | 5, 6 << 32 | 5, 0x73];
                words.map(u64::to_le_bytes).concat()
            }
            "capnp-packed" => {
                b"\x10\x06\x50\x01\x01\x01\x09\x40\x02\x11\x05\x12\x11\x05\x06\x01\x73".to_vec()
            }
            other => panic!("{other}: say here what an empty batch looks like"),
        };
        let read = subject.read_relay(&bytes);
        let refused = read.as_ref().is_err_and(|error| !matches!(error, DecodeError::UnknownMessage(_)));
        assert!(refused, "{}: {read:?}", subject.label);
        if ["capnp", "capnp-packed"].contains(&subject.format.name()) {
            assert_eq!(read, Err(DecodeError::Missing("event")), "{}", subject.label);
        }
    }
}

/// One event of the batch is damaged, so none is taken.
#[test]
fn a_batch_is_read_whole_or_not_at_all() {
    for subject in subjects() {
        let encoded: Vec<_> = batch(3).iter().map(|event| subject.event(event).unwrap()).collect();
        for damaged in 0..3 {
            let mut parts: Vec<_> = encoded.iter().map(Vec::as_slice).collect();
            let cut = match subject.format.name() {
                "capnp" => 8, // a word, or the splice would have to pad it
                // Packed words have no border that the splice could find in damaged ones.
                "capnp-packed" => continue,
                _ => 1,
            };
            parts[damaged] = &parts[damaged][..parts[damaged].len() - cut];
            let mut bytes = Vec::new();
            subject.codec.wrap_events("s", &parts, &mut bytes);
            let read = subject.read_relay(&bytes);
            assert!(read.is_err(), "{}: {read:?}", subject.label);
        }
    }
}

#[test]
fn negentropy_is_hex_in_json_and_bytes_elsewhere() {
    for subject in subjects() {
        let name = subject.format.name();
        let round =
            subject.relay(&RelayMessage::NegMsg { subscription: "neg".into(), message: negentropy().into() });
        let round = round.unwrap();
        if matches!(name, "json" | "nson") {
            let expected = format!("[\"NEG-MSG\",\"neg\",\"{}\"]", codecs::hex::encode(&negentropy()));
            assert_eq!(round, expected.as_bytes());
            for hex in ["6", "6A", "6g", " 61"] {
                let bytes = format!("[\"NEG-MSG\",\"neg\",\"{hex}\"]");
                assert!(subject.read_relay(bytes.as_bytes()).is_err(), "{}: {bytes}", subject.label);
                assert!(subject.read_client(bytes.as_bytes()).is_err(), "{}: {bytes}", subject.label);
            }
        } else if name != "capnp-packed" {
            let stored = round.windows(negentropy().len()).any(|part| part == negentropy());
            assert!(stored, "{}: {round:02x?}", subject.label);
        }
    }
}

/// The common envelope lets the last text or bytes run to the end of the message, so a shorter
/// message is a shorter text; so is a batch that ends between two events. The frame's length is
/// what guards it.
fn may_be_shorter(subject: &Subject, message: &Message) -> bool {
    ENVELOPE.contains(&subject.format.name())
        && match message {
            Message::Client(message) => {
                matches!(message, ClientMessage::NegOpen { .. } | ClientMessage::NegMsg { .. })
            }
            Message::Relay(message) => matches!(
                message,
                RelayMessage::Ok { .. }
                    | RelayMessage::Closed { .. }
                    | RelayMessage::Notice { .. }
                    | RelayMessage::Auth { .. }
                    | RelayMessage::NegMsg { .. }
                    | RelayMessage::NegErr { .. }
                    | RelayMessage::Events { .. }
            ),
        }
}

#[test]
fn every_truncation_is_refused() {
    for subject in subjects() {
        let event = subject.event(&sample_event()).unwrap();
        for len in 0..event.len() {
            let result = subject.codec.decode_event(&event[..len]);
            assert!(result.is_err(), "{}: an event of {len} bytes gave {result:?}", subject.label);
        }
        for message in Message::all() {
            let bytes = message.bytes(subject.codec).unwrap();
            for len in 0..bytes.len() {
                let result = message.read(subject.codec, &bytes[..len]);
                let shorter = may_be_shorter(&subject, &message)
                    && result.as_ref().is_ok_and(|shorter| *shorter != message);
                assert!(
                    shorter || result.is_err(),
                    "{}, {message:?}: {len} bytes gave {result:?}",
                    subject.label
                );
            }
        }
    }
}

#[test]
fn a_byte_behind_the_message_is_refused() {
    // 0xff cannot continue a text, so it is wrong behind every message.
    for extra in [0x00, 0x01, b'a', 0xff] {
        for subject in subjects() {
            let mut event = subject.event(&sample_event()).unwrap();
            event.push(extra);
            assert!(subject.codec.decode_event(&event).is_err(), "{}: {extra:#x}", subject.label);
            for message in Message::all() {
                let mut bytes = message.bytes(subject.codec).unwrap();
                bytes.push(extra);
                let result = message.read(subject.codec, &bytes);
                // Bytes take any byte; a batch wants a whole event.
                let takes = match &message {
                    Message::Relay(RelayMessage::Events { .. }) => false,
                    Message::Relay(RelayMessage::NegMsg { .. }) | Message::Client(_) => true,
                    Message::Relay(_) => extra != 0xff,
                };
                let grown = takes && may_be_shorter(&subject, &message);
                assert!(grown || result.is_err(), "{}, {message:?}: {extra:#x}", subject.label);
            }
        }
    }
}

/// A well-formed message that no version of the protocol has, for each direction.
fn unknown_messages(subject: &Subject) -> Vec<Vec<u8>> {
    match subject.format.name() {
        "json" | "nson" => vec![b"[\"FROB\",\"sub\",{\"a\":[1]}]".to_vec(), b"[\"event\"]".to_vec()],
        "cbor-schemaless" => vec![b"\x82\x64FROB\x80".to_vec(), b"\x81\x65event".to_vec()],
        "cbor-packed" | "cbor-intkey" => vec![b"\x82\x18\x63\x80".to_vec(), b"\x81\x00".to_vec()],
        // Field 500, an empty message.
        name if PROTOBUF.contains(&name) => vec![b"\xa2\x1f\x00".to_vec()],
        name if ENVELOPE.contains(&name) => vec![b"\x7fabc".to_vec(), b"\xffabc".to_vec()],
        // The union's discriminant is the first u16 behind segment table and root pointer.
        "capnp" => {
            let mut notice = subject.relay(&RelayMessage::Notice { text: "text".into() }).unwrap();
            notice[16..18].copy_from_slice(&999_u16.to_le_bytes());
            vec![notice]
        }
        // One segment of two words, its root with a word of data: 999, and nothing else.
        "capnp-packed" => vec![b"\x10\x02\x10\x01\x03\xe7\x03".to_vec()],
        other => panic!("{other}: say here what an unknown message looks like"),
    }
}

#[test]
fn unknown_verbs_are_told_from_broken_messages() {
    for subject in subjects() {
        for bytes in unknown_messages(&subject) {
            let client = subject.read_client(&bytes);
            assert!(matches!(client, Err(DecodeError::UnknownMessage(_))), "{}: {client:?}", subject.label);
            let relay = subject.read_relay(&bytes);
            assert!(matches!(relay, Err(DecodeError::UnknownMessage(_))), "{}: {relay:?}", subject.label);
        }
    }
}

/// Spellings that mean the same, and others that mean nothing. `vectors/v1.json` pins the usual one.
#[test]
fn json_messages_have_other_spellings() {
    let json = subjects().into_iter().filter(|subject| subject.format.name() == "json");
    for subject in json {
        let text = r#"["NEG-OPEN" ,"s" , {"kinds": [1]}, "6100000200"]"#;
        let open = ClientMessage::NegOpen {
            subscription: "s".into(),
            filter: codecs::Filter { kinds: Some(vec![1]), ..codecs::Filter::default() },
            message: b"\x61\x00\x00\x02\x00"[..].into(),
        };
        assert_eq!(subject.read_client(text.as_bytes()), Ok(open), "{}", subject.label);
        let events: Vec<_> =
            batch(2).iter().map(|event| String::from_utf8(subject.event(event).unwrap()).unwrap()).collect();
        let message = RelayMessage::Events { subscription: "s".into(), events: batch(2) };
        let text = format!(r#"["EVENTS","s",[{}]]"#, events.join(","));
        for text in [
            format!(" [ \"EVENTS\" , \"s\" , [ {} ] ] ", events.join(" , ")),
            format!("[\"EVENTS\",\"s\" ,[\n{}\n]\t]\n", events.join(",\n")),
            text.replace("\"content\"", "\"new\":{\"a}\":[\"}\"]},\"content\""),
        ] {
            assert_eq!(
                subject.read_relay(text.as_bytes()).as_ref(),
                Ok(&message),
                "{}: {text}",
                subject.label
            );
        }
        for text in [
            format!(r#"["EVENTS","s",{}]"#, events.join(",")),
            format!(r#"["EVENTS","s",[{}],[]]"#, events.join(",")),
            format!(r#"["EVENTS","s",[{},]]"#, events.join(",")),
            format!(r#"["EVENTS","s",[{}]}}"#, events.join(",")),
            format!(r#"["EVENTS","s",[{}}}]]"#, events.join(",")),
            format!(r#"["EVENTS","s",[{} {}]]"#, events[0], events[1]),
        ] {
            assert!(subject.read_relay(text.as_bytes()).is_err(), "{}: {text}", subject.label);
        }
    }
}

/// A batch is no way around NSON's checks: its descriptor must be true, or readers of NSON and of
/// JSON would differ.
#[test]
fn a_lying_descriptor_is_found_in_a_batch() {
    for subject in subjects().into_iter().filter(|subject| subject.format.name() == "nson") {
        let event = String::from_utf8(subject.event(&sample_event()).unwrap()).unwrap();
        let lying = event.replacen("\"kind\":1,", "\"kind\":11,", 1);
        assert_ne!(event, lying);
        let read = |event: &str| subject.read_relay(format!(r#"["EVENTS","s",[{event}]]"#).as_bytes());
        let expected = RelayMessage::Events { subscription: "s".into(), events: vec![sample_event()] };
        assert_eq!(read(&event), Ok(expected));
        assert!(matches!(read(&lying), Err(DecodeError::Malformed(_))), "{:?}", read(&lying));
    }
}
