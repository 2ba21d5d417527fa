//! Each fault of answers as a client sees it.

use super::*;
use crate::testing::proof;

fn misbehaving(faults: &[&str]) -> Arc<Relay> {
    relay(|config| config.faults = faults.iter().map(|fault| fault.parse().unwrap()).collect())
}

/// Three stored events, the newest first where the relay keeps the order.
fn with_stored(faults: &[&str]) -> Arc<Relay> {
    let relay = misbehaving(faults);
    let at = |n: u8| Event { created_at: i64::from(n), ..event(n) };
    relay.preload(&[at(1), at(2), at(3)]);
    relay
}

fn open(relay: &Arc<Relay>) -> Client {
    Client::open(relay, Format::JSON, false)
}

/// What a client hears that requests all events once.
fn requested(faults: &[&str]) -> Vec<String> {
    let mut client = open(&with_stored(faults));
    client.request("s", Filter::default());
    names(&client.hear())
}

fn texts(client: &mut Client) -> Vec<String> {
    json_text(&client.hear()).into_iter().map(str::to_owned).collect()
}

/// What a client hears that publishes once.
fn published(faults: &[&str]) -> Vec<String> {
    let mut client = open(&misbehaving(faults));
    client.publish(&event(1));
    texts(&mut client)
}

fn count(names: &[String], name: &str) -> usize {
    names.iter().filter(|other| *other == name).count()
}

#[test]
fn eose_never_comes_or_twice_or_too_early() {
    const EVENT: &str = "EVENT s";
    assert_eq!(requested(&[]), [EVENT, EVENT, EVENT, "EOSE s"]);
    assert_eq!(requested(&["no-eose"]), [EVENT; 3]);
    assert_eq!(requested(&["double-eose"]), [EVENT, EVENT, EVENT, "EOSE s", "EOSE s"]);
    assert_eq!(requested(&["early-eose"]), ["EOSE s", EVENT, EVENT, EVENT]);
    assert_eq!(requested(&["early-eose", "double-eose"]), ["EOSE s", EVENT, EVENT, EVENT, "EOSE s"]);
    assert_eq!(requested(&["no-eose:message=2"]), requested(&[]));
}

#[test]
fn stored_events_come_oldest_first() {
    let dates = |faults: &[&str]| {
        let mut client = open(&with_stored(faults));
        client.request("s", Filter { limit: Some(2), ..Filter::default() });
        client.deliveries().0.into_iter().map(|(_, event)| event.created_at).collect::<Vec<_>>()
    };
    assert_eq!(dates(&[]), [3, 2]);
    assert_eq!(dates(&["reverse-order"]), [2, 3]);
}

#[test]
fn a_flood_is_of_valid_events_that_no_other_filter_matches_and_ends_with_close() {
    let mut client = open(&with_stored(&["flood=1000"]));
    client.request("s", Filter { kinds: Some(vec![1]), ..Filter::default() });
    let (deliveries, _) = client.deliveries();
    assert_eq!(deliveries.len(), 1_003);
    let keys = codecs::PublicKeys::at_most(1);
    for (_, event) in &deliveries[3..] {
        assert_eq!((keys.verify(event, VerifyLevel::Full), event.kind), (Ok(()), 9_999));
    }
    let ids: std::collections::HashSet<_> = deliveries.iter().map(|(_, event)| event.id).collect();
    assert_eq!(ids.len(), 1_003);
    let mut client = open(&with_stored(&["flood=100000"]));
    client.request("s", Filter::default());
    assert!(!client.connection.poll_transmit(client.time).is_empty());
    client.say(&ClientMessage::Close { subscription: "s".into() });
    assert!(client.hear().len() < 1_000, "it is made while it goes out");
}

#[test]
fn storms_come_whole_and_before_the_next_answer() {
    let heard = requested(&["notice-storm=5000"]);
    assert_eq!((heard.len(), count(&heard, "EVENT s")), (5_004, 3));
    let mut client = open(&with_stored(&["closed-storm=3:message=1"]));
    for _ in 0..2 {
        client.request("s", Filter::default());
    }
    let heard = names(&client.hear());
    let closed = heard.iter().filter(|name| name.starts_with("CLOSED s")).count();
    assert_eq!((closed, count(&heard, "EVENT s"), count(&heard, "EOSE s")), (3, 3, 1));
}

#[test]
fn an_ok_is_missing_false_or_of_another_event() {
    let id = |first: &str, last: &str| format!("{first}{}{last}", "0".repeat(60));
    assert_eq!(published(&[]), [format!(r#"["OK","{}",true,""]"#, id("01", "00"))]);
    assert_eq!(published(&["no-ok"]), Vec::<String>::new());
    let refusal = format!(r#"["OK","{}",false,"error: planted: not stored"]"#, id("01", "00"));
    assert_eq!(published(&["false-ok"]), [refusal]);
    assert_eq!(published(&["wrong-ok"]), [format!(r#"["OK","{}",true,""]"#, id("01", "01"))]);
    let relay = misbehaving(&["false-ok"]);
    open(&relay).publish(&event(1));
    assert_eq!(relay.totals().events_stored, 1, "the OK lies");
}

#[test]
fn a_late_ok_comes_at_its_time_and_when_the_relay_stops() {
    let mut client = open(&misbehaving(&["late-ok=2s:message=1"]));
    let start = client.time.instant;
    client.publish(&event(1));
    client.publish(&event(2));
    let heard = texts(&mut client);
    assert!(heard.len() == 1 && heard[0].starts_with(r#"["OK","02"#), "{heard:?}");
    assert_eq!(client.connection.next_timer(), Some(start + Duration::from_secs(2)));
    client.connection.on_timer(start + Duration::from_millis(1_999));
    assert!(client.hear().is_empty());
    client.connection.on_timer(start + Duration::from_secs(2));
    let heard = texts(&mut client);
    assert!(heard.len() == 1 && heard[0].starts_with(r#"["OK","01"#), "{heard:?}");
    assert_eq!(client.connection.next_timer(), None);

    let mut client = open(&misbehaving(&["late-ok=60s"]));
    client.publish(&event(1));
    client.connection.stop();
    client.connection.poll_stop();
    assert_eq!(client.hear().len(), 1);
}

#[test]
fn late_oks_are_bounded() {
    let mut client = open(&misbehaving(&["late-ok=60s"]));
    for n in 0..1_100_u16 {
        let mut id = [0; 32];
        id[..2].copy_from_slice(&n.to_be_bytes());
        client.publish(&Event { id, ..event(1) });
    }
    assert_eq!(client.hear().len(), 1_100 - 1_024);
}

#[test]
fn rate_limits_refuse_what_is_asked_and_nothing_is_stored() {
    let relay = misbehaving(&["rate-limited:message=1-2"]);
    let mut client = open(&relay);
    client.request("s", Filter::default());
    client.publish(&event(1));
    let heard = texts(&mut client);
    assert_eq!(heard[0], r#"["CLOSED","s","rate-limited: planted: slow down"]"#);
    assert!(heard[1].contains(r#"false,"rate-limited: "#), "{heard:?}");
    assert_eq!((heard.len(), relay.totals().events_stored), (2, 0));
    client.publish(&event(1));
    assert!(texts(&mut client)[0].contains("true"));
}

fn challenge_of(heard: &[String]) -> String {
    let auth = heard.iter().find(|text| text.starts_with(r#"["AUTH","#)).expect("a challenge");
    auth.split('"').nth(3).unwrap().to_owned()
}

#[test]
fn auth_required_ends_with_auth_and_a_loop_does_not() {
    for (fault, is_loop) in [("auth-required", false), ("auth-loop", true)] {
        let mut client = open(&misbehaving(&[fault]));
        client.request("s", Filter::default());
        let heard = texts(&mut client);
        let first = challenge_of(&heard);
        assert!(heard[1].starts_with(r#"["CLOSED","s","auth-required: "#), "{heard:?}");
        client.publish(&event(1));
        let heard = texts(&mut client);
        assert!(heard.last().unwrap().contains(r#"false,"auth-required: "#), "{heard:?}");
        let challenge = if is_loop { challenge_of(&heard) } else { first.clone() };
        assert_eq!((heard.len(), challenge != first), (1 + usize::from(is_loop), is_loop));
        client.say(&ClientMessage::Auth(Cow::Owned(proof(&challenge, "ws://127.0.0.1", UNIX_SECONDS))));
        assert!(texts(&mut client)[0].contains("true"));
        client.request("s", Filter::default());
        let heard = names(&client.hear());
        let is_served = heard.last().unwrap() == "EOSE s";
        assert_eq!(is_served, !is_loop, "{heard:?}");
    }
}

#[test]
fn a_clock_that_is_off_takes_new_events_as_from_the_future_and_proofs_as_old() {
    let now = i64::try_from(UNIX_SECONDS).unwrap();
    let mut client = open(&misbehaving(&["clock=-1h"]));
    client.publish(&Event { created_at: now, ..event(1) });
    client.publish(&Event { created_at: now - 3_000, ..event(2) });
    let heard = texts(&mut client);
    assert!(heard[0].contains(r#"false,"invalid: created_at"#) && heard[1].contains("true"), "{heard:?}");
    let relay = relay(|config| (config.auth, config.faults) = (true, vec!["clock=1h".parse().unwrap()]));
    let mut client = open(&relay);
    let challenge = challenge_of(&texts(&mut client));
    client.say(&ClientMessage::Auth(Cow::Owned(proof(&challenge, "ws://127.0.0.1", UNIX_SECONDS))));
    let heard = texts(&mut client);
    assert!(heard[0].contains("created_at is more than 600 s from now"), "{heard:?}");
}

#[test]
fn ids_and_signatures_are_wrong_and_counted() {
    for (fault, is_wrong) in [
        ("wrong-id", (|event: &Event<'_>| event.id[0] > 3) as fn(&Event<'_>) -> bool),
        ("wrong-sig", |event| event.id[0] <= 3 && event.sig != [0; 64]),
    ] {
        let relay = with_stored(&[fault]);
        let mut client = open(&relay);
        client.request("s", Filter::default());
        let (deliveries, _) = client.deliveries();
        assert!(deliveries.len() == 3 && deliveries.iter().all(|(_, event)| is_wrong(event)), "{fault}");
        assert_eq!(relay.faults.hits(), [(fault.to_owned(), 3)]);
    }
}

/// Plays a conversation, in which clients that are cut off come again.
fn conversation(faults: &[String], format: Format, batched: bool) -> Vec<Bytes> {
    let faults: Vec<_> = faults.iter().map(String::as_str).collect();
    let (relay, start) = (with_stored(&faults), Instant::now());
    let mut heard = Vec::new();
    let mut client = Client::open(&relay, format, batched);
    for n in 0..60_u8 {
        let event = event(n);
        let name = ["a", "b", "c"][usize::from(n % 3)];
        let message = match n % 5 {
            0 | 1 => ClientMessage::Event(Cow::Borrowed(&event)),
            2 | 3 => ClientMessage::Req { subscription: name.into(), filters: vec![Filter::default()] },
            _ => ClientMessage::Close { subscription: name.into() },
        };
        client.time.instant = start + Duration::from_millis(u64::from(n) * 100);
        let received = client.send(&client.encoded(&message));
        client.connection.on_timer(client.time.instant);
        heard.extend(client.hear());
        if received.is_err() || client.connection.broken().is_some() {
            client = Client::open(&relay, format, batched);
        }
    }
    heard
}

#[test]
fn the_same_faults_make_the_same_bytes_of_the_same_messages() {
    let mut conversations = std::collections::HashSet::new();
    for seed in 0..12 {
        let planted = |example| format!("{example}:probability=20%:seed={seed}");
        let faults: Vec<_> = crate::fault::examples().map(planted).collect();
        for (format, batched) in [("json", false), ("proto-binary", true), ("notepack", false)] {
            let format: Format = format.parse().unwrap();
            let heard = conversation(&faults, format, batched);
            assert!(heard == conversation(&faults, format, batched), "seed {seed}, {format}");
            for payload in &heard {
                assert!(
                    format.spec().library.decode_relay(payload).is_ok(),
                    "seed {seed}, {format}: {payload:?}"
                );
            }
            conversations.insert(heard);
        }
    }
    assert_eq!(conversations.len(), 36, "each seed makes another");
}
