use std::{borrow::Cow, thread, time::Duration};

use codecs::{ClientMessage, Event, Filter, OneForm, VerifyLevel};
use corpus::Corpus;

use terms::BatchLimits;

use super::*;
use crate::{
    testing::{Client, UNIX_SECONDS, event, relay},
    totals::Totals,
};

mod faults;
mod spoiling;

fn json_text(payloads: &[Bytes]) -> Vec<&str> {
    payloads.iter().map(|payload| std::str::from_utf8(payload).unwrap()).collect()
}

/// The first letters that tell messages apart: their names, and the subscription of those that have
/// one.
fn names(payloads: &[Bytes]) -> Vec<String> {
    let name = |text: &str| text.split('"').skip(1).step_by(2).take(2).collect::<Vec<_>>().join(" ");
    json_text(payloads).into_iter().map(name).collect()
}

#[test]
fn stored_events_come_before_eose_and_live_ones_behind_it() {
    let relay = relay(|_| {});
    let mut publisher = Client::open(&relay, Format::JSON, false);
    let mut reader = Client::open(&relay, Format::JSON, false);
    publisher.publish(&event(1));
    reader.request("s", Filter::default());
    publisher.publish(&event(2));
    reader.say(&ClientMessage::Count { subscription: "c".into(), filters: vec![Filter::default()] });
    assert_eq!(names(&reader.hear()), ["EVENT s", "EOSE s", "COUNT c", "EVENT s"]);
    publisher.publish(&event(3));
    reader.say(&ClientMessage::Close { subscription: "s".into() });
    assert!(reader.hear().is_empty(), "what is queued for a subscription that ended is not sent");
    assert_eq!(relay.totals().deliveries_dropped, 1);
}

/// Events that a store keeps all of.
fn many(count: usize) -> Vec<Event<'static>> {
    let with_id = |n: usize| {
        let mut event = event(1);
        event.id[..8].copy_from_slice(&n.to_be_bytes());
        event
    };
    (0..count).map(with_id).collect()
}

#[test]
fn a_connection_that_compresses_once_for_all_says_what_others_say_flush_by_flush() {
    let relay = relay(|_| {});
    relay.preload(&many(300));
    for format in Format::all() {
        let [own, shared] = [false, true].map(|shares| {
            let mut reader = Client::open(&relay, format, false);
            reader.connection = relay.connect(&Opening { shares, ..Opening::new(format) });
            reader.request("s", Filter::default());
            let flushes = std::iter::from_fn(|| {
                Some(reader.connection.poll_transmit(reader.time)).filter(|messages| !messages.is_empty())
            });
            flushes.collect::<Vec<_>>()
        });
        assert_eq!(own.iter().map(Vec::len).sum::<usize>(), 301, "{format}");
        assert!(own == shared, "{format}");
    }
}

#[test]
fn close_and_a_successor_end_a_stored_answer_that_is_going_out() {
    const STORED: usize = 2_000;
    let relay = relay(|config| config.max_limit = STORED);
    relay.preload(&many(STORED));
    for batched in [false, true] {
        let mut reader = Client::open(&relay, Format::JSON, batched);
        let all = Filter { limit: Some(STORED as u64), ..Filter::default() };
        for successor in [None, Some(Filter { limit: Some(1), ..Filter::default() })] {
            reader.request("other", all.clone());
            reader.request("s", all.clone());
            let other_names = names(&reader.connection.poll_transmit(reader.time));
            assert!(other_names.len() < STORED / 2, "a flush is not everything");
            reader.say(&ClientMessage::Close { subscription: "other".into() });
            let first = names(&reader.connection.poll_transmit(reader.time));
            assert!(first.iter().all(|name| name.ends_with(" s")), "nothing more of `other`: {first:?}");
            match successor.clone() {
                None => reader.say(&ClientMessage::Close { subscription: "s".into() }),
                Some(filter) => reader.request("s", filter),
            }
            reader.say(&ClientMessage::Count { subscription: "c".into(), filters: vec![Filter::default()] });
            let expected: &[&str] =
                if successor.is_some() { &["EVENT s", "EOSE s", "COUNT c"] } else { &["COUNT c"] };
            assert_eq!(names(&reader.hear()), expected, "batched: {batched}");
        }
    }
}

#[test]
fn messages_are_taken_ahead_of_a_long_answer_up_to_a_bound() {
    const STORED: usize = 2_000;
    let relay = relay(|config| (config.max_limit, config.max_subscriptions) = (STORED, 10_000));
    relay.preload(&many(STORED));
    let mut reader = Client::open(&relay, Format::JSON, false);
    let mut taken = 0;
    while reader.connection.has_room() {
        reader.request("s", Filter { limit: Some(STORED as u64), ..Filter::default() });
        taken += 1;
    }
    assert_eq!(taken, DUE);
    let heard = names(&reader.hear());
    assert_eq!(heard.len(), STORED + 1, "the last answer alone");
    assert!(reader.connection.has_room());
}

/// Messages to readers of one format about an event of a publisher of that format, singly and in
/// batches, and the relay's counts.
fn passed_on(reencode: Reencode, format: Format, payload: &[u8]) -> (Vec<Bytes>, [u64; 3]) {
    let relay = relay(|config| config.reencode = reencode);
    let mut publisher = Client::open(&relay, format, false);
    let mut readers = [false, false, true].map(|batched| Client::open(&relay, format, batched));
    readers.iter_mut().for_each(|reader| reader.request("s", Filter::default()));
    publisher.send(payload).unwrap();
    let mut heard = Vec::new();
    for reader in &mut readers {
        reader.connection.hold_nothing();
        heard.extend(reader.hear());
    }
    // And from the store.
    let mut late = Client::open(&relay, format, true);
    late.request("s", Filter::default());
    heard.extend(late.hear());
    let totals = relay.totals();
    (heard, [totals.encodings_spliced, totals.encodings_cold, totals.encodings_cached])
}

#[test]
fn what_is_passed_on_is_what_would_have_been_encoded() {
    let event = Event { tags: vec![vec!["t".into(), "a\"b".into()], vec![]], ..event(1) };
    for format in Format::all() {
        let any = Client::open(&relay(|_| {}), format, false);
        let payload = any.encoded(&ClientMessage::Event(Cow::Borrowed(&event)));
        let (encoded, sources) = passed_on(Reencode::Always, format, &payload);
        assert_eq!(sources, [0, 1, 3], "{format}");
        let (passed, sources) = passed_on(Reencode::NeverIfCanonical, format, &payload);
        assert_eq!(passed, encoded, "{format}");
        let has_one_form = format == Format::JSON || format.spec().one_form != OneForm::Nothing;
        assert_eq!(sources, if has_one_form { [4, 0, 0] } else { [0, 1, 3] }, "{format}");
    }
}

#[test]
fn a_subscriber_in_another_format_gets_an_encoding_of_its_own() {
    let relay = relay(|config| config.reencode = Reencode::NeverIfCanonical);
    let other = "dannypack".parse().unwrap();
    let mut publisher = Client::open(&relay, Format::JSON, false);
    let mut readers = [Format::JSON, other, other].map(|format| Client::open(&relay, format, false));
    readers.iter_mut().for_each(|reader| reader.request("s", Filter::default()));
    publisher.publish(&event(1));
    for reader in &mut readers {
        assert_eq!(reader.deliveries().0, [("s".to_owned(), event(1))]);
    }
    let totals = relay.totals();
    assert_eq!((totals.encodings_spliced, totals.encodings_cold, totals.encodings_cached), (1, 1, 1));
}

#[test]
fn stored_and_live_events_come_in_batches_in_every_format() {
    let batch = BatchLimits { hold: Duration::from_secs(600), events: 3, bytes: 1 << 20 };
    for format in Format::all() {
        let relay = relay(|config| config.batch = batch);
        relay.preload(&many(4));
        let mut publisher = Client::open(&relay, Format::JSON, false);
        let mut reader = Client::open(&relay, format, true);
        reader.request("s", Filter::default());
        let (stored, messages) = reader.deliveries();
        let ids: Vec<_> = stored.iter().map(|(_, event)| event.id[7]).collect();
        assert_eq!((ids.as_slice(), messages), (&[0, 1, 2, 3][..], 2), "{format}");
        (1..=3).for_each(|n| publisher.publish(&event(n)));
        let (live, messages) = reader.deliveries();
        let ids: Vec<_> = live.iter().map(|(_, event)| event.id[0]).collect();
        assert_eq!((ids.as_slice(), messages), (&[1, 2, 3][..], 1), "{format}");
        let totals = relay.totals();
        assert_eq!((totals.deliveries_stored, totals.deliveries_live), (4, 3), "{format}");
    }
}

#[test]
fn what_is_held_goes_at_its_time_and_before_an_answer() {
    let relay = relay(|_| {});
    let mut publisher = Client::open(&relay, Format::JSON, false);
    let mut reader = Client::open(&relay, Format::JSON, true);
    reader.request("s", Filter::default());
    assert_eq!(names(&reader.hear()), ["EOSE s"]);
    assert_eq!(reader.connection.next_timer(), None);
    publisher.publish(&event(1));
    publisher.publish(&event(2));
    assert!(reader.hear().is_empty());
    let due = reader.connection.next_timer().unwrap();
    assert_eq!(due, reader.time.instant + Duration::from_millis(5));
    reader.connection.on_timer(due - Duration::from_nanos(1));
    assert!(reader.hear().is_empty());
    reader.connection.on_timer(due);
    assert_eq!(names(&reader.hear()), ["EVENTS s"]);

    publisher.publish(&event(3));
    assert!(reader.hear().is_empty());
    reader.request("t", Filter { limit: Some(0), ..Filter::default() });
    assert_eq!(names(&reader.hear()), ["EVENT s", "EOSE t"]);
    assert_eq!(reader.connection.next_timer(), None);

    // OK comes behind what was held; the reader's own event is held in its turn.
    reader.say(&ClientMessage::Close { subscription: "t".into() });
    publisher.publish(&event(4));
    assert!(reader.hear().is_empty());
    reader.publish(&event(5));
    let heard = names(&reader.hear());
    assert!(heard.len() == 2 && heard[0] == "EVENT s" && heard[1].starts_with("OK"), "{heard:?}");
    reader.say(&ClientMessage::Close { subscription: "s".into() });
    reader.request("s", Filter { limit: Some(0), ..Filter::default() });
    assert_eq!(names(&reader.hear()), ["EOSE s"], "nothing is held for a subscription that ended");
}

#[test]
fn who_leaves_too_much_unread_is_stopped() {
    let relay = relay(|config| config.outbox_bytes = 1_000);
    let mut publisher = Client::open(&relay, Format::JSON, false);
    let mut reader = Client::open(&relay, Format::JSON, false);
    reader.request("s", Filter::default());
    reader.hear();
    for n in 0..100 {
        publisher.publish(&event(n));
        assert_eq!(reader.hear().len(), 1, "reading makes room");
    }
    assert_eq!(reader.connection.poll_stop(), None);
    (100..110).for_each(|n| publisher.publish(&event(n)));
    let close = reader.connection.poll_stop().unwrap();
    assert_eq!(close.code, CloseCode::Again);
    assert_eq!(reader.connection.poll_stop(), None, "it is said once");
    drop(reader);
    let totals = relay.totals();
    assert_eq!((totals.deliveries_live, totals.deliveries_dropped, totals.slow_consumers), (100, 10, 1));
}

#[test]
fn a_relay_that_stops_sends_what_it_held() {
    for batched in [false, true] {
        let relay = relay(|_| {});
        let mut publisher = Client::open(&relay, Format::JSON, false);
        let mut reader = Client::open(&relay, Format::JSON, batched);
        reader.request("s", Filter::default());
        reader.hear();
        publisher.publish(&event(1));
        assert_eq!(reader.hear().len(), usize::from(!batched));
        publisher.publish(&event(2));
        reader.connection.stop();
        publisher.publish(&event(3));
        assert_eq!(reader.connection.poll_stop().unwrap().code, CloseCode::Away);
        let (rest, _) = reader.deliveries();
        assert_eq!(rest.len(), 1 + usize::from(batched), "of what was accepted before");
        drop(reader);
        let totals = relay.totals();
        assert_eq!((totals.deliveries_live, totals.deliveries_dropped), (2, 1));
    }
}

#[test]
fn clients_of_every_format_see_the_same_events_in_the_same_order() {
    let mut events = Corpus::bundled().events;
    let fits = |format: Format, event: &Event<'_>| format.spec().capacity.holds(event);
    events.retain(|event| Format::all().all(|format| fits(format, event)));
    let (stored, live) = events[..events.len().min(400)].split_at(200);
    let relay = relay(|_| {});
    relay.preload(stored);
    let mut clients: Vec<_> = Format::all().map(|format| Client::open(&relay, format, false)).collect();
    clients.iter_mut().for_each(|client| client.request("all", Filter::default()));
    let mut same = |most: usize| {
        let mut heard = clients.iter_mut().map(|client| client.deliveries().0);
        let first = heard.next().unwrap();
        assert!(first.len() > most / 2, "most of the events are current");
        assert!(heard.all(|other| other == first));
        first
    };
    same(stored.len());
    let mut publisher = Client::open(&relay, Format::JSON, false);
    live.iter().for_each(|event| publisher.publish(event));
    let mut published = live.iter();
    let is_next = |(_, heard): &(String, Event<'_>)| published.any(|event| event == heard);
    assert!(same(live.len()).iter().all(is_next), "in the order of their publisher");
}

/// 64 characters may be 256 bytes, more than the binary envelopes can say. A subscription id only
/// ever goes back in the format it came in.
#[test]
fn a_subscription_id_longer_than_other_formats_hold_is_served_where_it_came() {
    let relay = relay(|_| {});
    let long = "\u{1f980}".repeat(64);
    let mut json = Client::open(&relay, Format::JSON, false);
    json.request(&long, Filter::default());
    let mut others: Vec<_> = Format::all().map(|format| Client::open(&relay, format, false)).collect();
    others.iter_mut().for_each(|client| client.request("a", Filter::default()));
    Client::open(&relay, Format::all().last().unwrap(), false).publish(&event(1));
    assert_eq!(json.deliveries().0, [(long.clone(), event(1))]);
    for client in &mut others {
        assert_eq!(client.deliveries().0, [("a".to_owned(), event(1))], "{}", client.format);
    }
    json.send(format!(r#"["REQ","{long}",{{"colour":"red"}}]"#).as_bytes()).unwrap();
    let closed = format!(r#"["CLOSED","{long}","unsupported: "#);
    assert!(json_text(&json.hear())[0].starts_with(&closed));
}

#[test]
fn unknown_messages_get_a_notice_and_the_connection_stays_open() {
    // A verb, an opcode, a number and a text in CBOR, a field of protobuf: each format knows some
    // of these.
    let unknown: [&[u8]; 5] =
        [b"[\"DANCE\",1]", b"\x7b", b"\x82\x18\x7b\x61a", b"\x82\x65DANCE\x61a", b"\xda\x07\x01a"];
    let relay = relay(|_| {});
    for format in Format::all() {
        let mut client = Client::open(&relay, format, false);
        for bytes in unknown {
            if let Err(DecodeError::UnknownMessage(_)) = client.codec.decode_client(bytes) {
                client.send(bytes).unwrap();
                let heard = client.hear();
                let RelayMessage::Notice { text } = client.codec.decode_relay(&heard[0]).unwrap() else {
                    panic!("{format}: {heard:?}")
                };
                assert!(text.starts_with("unsupported: "), "{format}: {text}");
            }
        }
    }
    let totals = relay.totals();
    assert!(totals.unsupported >= 3, "json, an envelope of ours and CBOR at least");
    assert_eq!(totals.malformed, 0);
}

#[test]
fn the_wrong_kind_of_frame_is_a_notice_in_json_and_1003_in_binary_formats() {
    for format in Format::all() {
        let mut client = Client::open(&relay(|_| {}), format, false);
        let close = client.encoded(&ClientMessage::Close { subscription: "a".into() });
        let is_text = format.spec().opcode == Opcode::Text;
        let wrong = if is_text { Opcode::Binary } else { Opcode::Text };
        let received = client.connection.receive(&close, wrong, client.time);
        if is_text {
            assert_eq!(received, Ok(()));
            let notice = r#"["NOTICE","invalid: binary frames need a negotiated subprotocol"]"#;
            assert_eq!(json_text(&client.hear()), [notice]);
        } else {
            assert_eq!(received.unwrap_err().code, CloseCode::Unsupported, "{format}");
        }
    }
}

/// Four threads publish while four more read, each in another format.
#[test]
fn each_publishers_events_arrive_once_and_in_order() {
    const EVENTS: u16 = 1_000;
    let relay = relay(|_| {});
    let formats = ["json", "proto-binary", "notepack", "cbor-packed"].map(|name| name.parse().unwrap());
    let mut readers: Vec<_> =
        formats.iter().flat_map(|format| [false, true].map(|b| Client::open(&relay, *format, b))).collect();
    for reader in &mut readers {
        reader.request("s", Filter::default());
        reader.hear();
    }
    let publish = |publisher: u8| {
        let mut client = Client::open(&relay, Format::JSON, false);
        for n in 0..EVENTS {
            let mut id = [publisher; 32];
            id[..2].copy_from_slice(&n.to_be_bytes());
            client.publish(&Event { id, pubkey: [publisher; 32], created_at: n.into(), ..event(0) });
        }
    };
    let read = |mut reader: Client| {
        let mut next = [0_i64; 4];
        while next != [i64::from(EVENTS); 4] {
            assert!(reader.time.instant.elapsed() < Duration::from_secs(60), "events are missing: {next:?}");
            reader.connection.on_timer(reader.time.instant + Duration::from_secs(1));
            for (_, event) in reader.deliveries().0 {
                let next = &mut next[usize::from(event.pubkey[0])];
                assert_eq!(event.created_at, *next);
                *next += 1;
            }
        }
        reader
    };
    let readers: Vec<_> = thread::scope(|scope| {
        (0..4).for_each(|publisher| drop(scope.spawn(move || publish(publisher))));
        let readers: Vec<_> = readers.into_iter().map(|reader| scope.spawn(move || read(reader))).collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    for mut reader in readers {
        assert!(reader.deliveries().0.is_empty());
    }
    assert_eq!(relay.totals().deliveries_live, 4 * u64::from(EVENTS) * 8);
}

/// Requests with bytes behind the name that are wrong, cut off or too many, in every format: each
/// is answered under its name, or ends the connection where the format's reader finds no name in
/// what is left.
#[test]
fn a_malformed_request_is_answered_under_its_name() {
    let author = [0xab; 32];
    let filter = Filter { kinds: Some(vec![1, 70]), authors: Some(vec![author]), ..Filter::default() };
    let subscription = || "sub".into();
    let filters = vec![filter.clone()];
    let requests = [
        ClientMessage::Req { subscription: subscription(), filters: filters.clone() },
        ClientMessage::Count { subscription: subscription(), filters },
        ClientMessage::NegOpen { subscription: subscription(), filter, message: b"\x61".to_vec().into() },
    ];
    for format in Format::all() {
        let opcode = format.spec().opcode;
        let relay = relay(|_| {});
        let mut client = Client::open(&relay, format, false);
        let mut answered = [0; 3];
        for (request, answered) in requests.iter().zip(&mut answered) {
            for malformed in damaged(&client.encoded(request)) {
                let limits = &relay.config.limits;
                match client.codec.decode_client_within(&malformed, limits) {
                    Ok(_) | Err(DecodeError::OverLimit(_) | DecodeError::UnknownMessage(_)) => continue,
                    Err(_) => {}
                }
                client.request("sub", Filter { limit: Some(0), ..Filter::default() });
                client.hear();
                if client.send(&malformed).is_err() {
                    continue;
                }
                let heard = client.hear();
                let [answer] = heard.as_slice() else { panic!("{format} {request:?}: {heard:?}") };
                let (name, text) = match client.codec.decode_relay(answer).unwrap() {
                    RelayMessage::Closed { subscription, text } => (subscription, text),
                    RelayMessage::NegErr { subscription, text } => (subscription, text),
                    RelayMessage::Notice { .. } if opcode == Opcode::Text => continue,
                    other => panic!("{format} {request:?}: {other:?}"),
                };
                assert!(text.starts_with("invalid: "), "{format}: {text}");
                *answered += usize::from(name == "sub");
            }
        }
        assert!(answered.iter().all(|answered| *answered > 0), "{format}: {answered:?}");
    }
}

/// Every way to change a bit of a byte, to cut and to add one.
fn damaged(payload: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![[payload, b"\x01"].concat()];
    for at in 1..payload.len() {
        all.push(payload[..at].to_vec());
        for bit in 0..8 {
            let mut changed = payload.to_vec();
            changed[at] ^= 1 << bit;
            all.push(changed);
        }
    }
    all
}

#[test]
fn what_is_malformed_in_text_is_answered_where_it_can_be() {
    let id = "ab".repeat(32);
    let relay = relay(|_| {});
    let mut json = Client::open(&relay, Format::JSON, false);
    for (said, answer) in [
        (r#"["REQ","a","kinds"]"#.to_owned(), r#"["CLOSED","a","invalid: "#.to_owned()),
        (r#"["REQ","a",{"kinds":["x"]}]"#.to_owned(), r#"["CLOSED","a","invalid: "#.to_owned()),
        (r#"["REQ","a""#.to_owned(), r#"["CLOSED","a","invalid: "#.to_owned()),
        (r#"["REQ",7,{}]"#.to_owned(), r#"["NOTICE","invalid: "#.to_owned()),
        (r#"["COUNT","c",{"ids":["zz"]}]"#.to_owned(), r#"["CLOSED","c","invalid: "#.to_owned()),
        (r#"["NEG-OPEN","n",{},"zz"]"#.to_owned(), r#"["NEG-ERR","n","invalid: "#.to_owned()),
        (r#"["NEG-MSG","n","zz"]"#.to_owned(), r#"["NEG-ERR","n","invalid: "#.to_owned()),
        (r#"["CLOSE",{}]"#.to_owned(), r#"["NOTICE","invalid: "#.to_owned()),
        (
            format!(r#"["EVENT",{{"kind":1,"id":"{id}","tags":"none"}}]"#),
            format!(r#"["OK","{id}",false,"invalid: "#),
        ),
        (format!(r#"["EVENT",{{"id":"{id}""#), format!(r#"["OK","{id}",false,"invalid: "#)),
        (format!(r#"["AUTH",{{"id":"{id}"}}]"#), format!(r#"["OK","{id}",false,"invalid: "#)),
        (r#"["EVENT",{"id":"ab"}]"#.to_owned(), r#"["NOTICE","invalid: "#.to_owned()),
        (r#"["EVENT",{}]"#.to_owned(), r#"["NOTICE","invalid: "#.to_owned()),
        ("[[[".to_owned(), r#"["NOTICE","invalid: "#.to_owned()),
    ] {
        json.send(said.as_bytes()).unwrap();
        let heard = json.hear();
        assert!(heard.len() == 1 && json_text(&heard)[0].starts_with(&answer), "{said}: {heard:?}");
    }
    let Totals { events_received, events_rejected, .. } = relay.totals();
    assert_eq!((events_received, events_rejected), (2, 2), "AUTH is no EVENT");
}

/// NIP-40 in every format, by the clock that is passed in.
#[test]
fn an_event_is_taken_kept_and_sent_until_it_expires() {
    for format in Format::all() {
        for keeps in [false, true] {
            let relay = relay(|config| config.keep_expired = keeps);
            let expiring = |n: u8, at: u64| Event {
                tags: vec![vec!["expiration".into(), at.to_string().into()]],
                ..event(n)
            };
            let mut client = Client::open(&relay, format, false);
            client.publish(&expiring(1, UNIX_SECONDS));
            client.publish(&expiring(2, UNIX_SECONDS + 1));
            let accepted: Vec<_> = client
                .hear()
                .iter()
                .map(|payload| match client.codec.decode_relay(payload).unwrap() {
                    RelayMessage::Ok { accepted, text, .. } => accepted || !text.starts_with("invalid: "),
                    other => panic!("{format}: {other:?}"),
                })
                .collect();
            assert_eq!(accepted, [keeps, true], "{format}");
            client.request("s", Filter::default());
            assert_eq!(client.deliveries().0.len(), 1 + usize::from(keeps), "{format}");
            client.time.unix_seconds += 1;
            client.request("s", Filter::default());
            assert_eq!(client.deliveries().0.len(), 2 * usize::from(keeps), "{format}");
            assert_eq!(relay.totals().events_stored, 2 * u64::from(keeps), "{format}");
        }
    }
}

#[test]
fn what_a_relay_takes_in_one_format_it_can_send_in_every_other() {
    const MAX_BYTES: usize = 20_000;
    let relay = relay(|config| config.wire.max_message_bytes = MAX_BYTES);
    let shapes: [fn(Event<'static>, usize) -> Event<'static>; 4] = [
        |event, n| Event { content: "\0".repeat(n).into(), ..event },
        |event, n| Event { tags: vec![vec![]; n], ..event },
        |event, n| Event { tags: vec![vec!["".into(); 200]; n / 200], ..event },
        |event, n| Event { tags: vec![vec!["x".into(), "\u{1}".repeat(n).into()]], ..event },
    ];
    let (mut taken, mut refused, mut cut) = (Vec::new(), 0, 0);
    let all = Format::all().flat_map(|format| shapes.map(|shape| (format, shape)));
    for (n, (format, shape)) in (0_u8..).zip(all) {
        let mut client = Client::open(&relay, format, false);
        // The largest of its shape whose frame the wire lets through.
        let largest = (0..21).rev().find_map(|power| {
            let event = shape(event(n), 1 << power);
            let mut payload = Vec::new();
            client.codec.encode_client(&ClientMessage::Event(Cow::Borrowed(&event)), &mut payload).ok()?;
            (payload.len() <= MAX_BYTES).then_some((event, payload))
        });
        let (event, payload) = largest.unwrap();
        if let Err(close) = client.send(&payload) {
            assert_eq!((format.name(), close.code), ("capnp-packed", CloseCode::Size), "{close:?}");
            cut += 1;
            continue;
        }
        match client.codec.decode_relay(&client.hear()[0]).unwrap() {
            RelayMessage::Ok { accepted: true, .. } => taken.push(event),
            RelayMessage::Ok { text, .. } => {
                assert!(
                    text.starts_with("invalid: in ") && text.ends_with("over the limit of 159488"),
                    "{text}"
                );
                refused += 1;
            }
            other => panic!("{format}: {other:?}"),
        }
    }
    assert!(taken.len() > 20 && refused > 0 && cut > 0, "{} {refused} {cut}", taken.len());
    for (format, batched) in Format::all().flat_map(|format| [(format, false), (format, true)]) {
        let mut reader = Client::open(&relay, format, batched);
        reader.request("s", Filter::default());
        let heard = reader.hear();
        assert!(heard.iter().all(|message| message.len() <= 8 * MAX_BYTES), "{format}");
        let mut again = Client::open(&relay, format, batched);
        again.request("s", Filter::default());
        let held = taken.iter().filter(|event| format.spec().capacity.holds(event)).count();
        assert_eq!(again.deliveries().0.len(), held, "{format}");
    }
}
