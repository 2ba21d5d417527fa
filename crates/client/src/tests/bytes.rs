//! Clients that keep ids and keys in tags as bytes: the ledger is the one of clients that keep
//! text, in every format and by every implementation.

use super::*;

/// 64 lowercase digits.
fn key() -> String {
    "0123456789abcdef".repeat(4)
}

/// A key, and what is none, though each differs from one by a little.
fn values() -> Vec<String> {
    let key = key();
    vec![
        key.clone(),
        key.to_uppercase(),
        format!("{}F", &key[..63]),
        format!("{}g", &key[..63]),
        format!("{}0", &key[..63]),
        key[..63].to_owned(),
        key[..62].to_owned(),
        format!("{key}0"),
        format!("{key}00"),
        String::new(),
    ]
}

/// The plan with this value in each event: in a tag, as a tag's name, and as the content.
fn plan_with(value: &str) -> Workload {
    let mut events = (*plan().events).clone();
    events.iter_mut().for_each(|event| put(value, event));
    of_events(events)
}

fn put(value: &str, event: &mut Event<'static>) {
    let value = || Cow::Owned(value.to_owned());
    event.tags = vec![vec!["p".into(), value()], vec![value()], vec![]];
    event.content = value();
}

fn of_events(events: Vec<Event<'static>>) -> Workload {
    Workload { events: Arc::new(events), index: HashMap::default(), ..plan() }.indexed().unwrap()
}

fn codecs() -> impl Iterator<Item = (Format, &'static dyn Codec)> {
    let of_format = |format: Format| {
        Implementation::ALL.into_iter().filter_map(move |by| Some((format, format.codec(by).ok()?)))
    };
    Format::all().flat_map(of_format)
}

/// Plays the script against clients with this codec that keep bytes.
fn play(mut shared: Shared, (format, codec): (Format, &'static dyn Codec), script: Script) -> Counts {
    shared.keep_bytes();
    let mut table = Table::connected(shared, format);
    table.clients.iter_mut().for_each(|client| client.codec = codec);
    table.say(1, vec![eose("live-1"), eose("live-0")], 0);
    table.start().play(script)
}

#[test]
fn an_honest_relay_balances_event_by_event_and_in_batches() {
    for value in values() {
        let workload = plan_with(&value);
        let events = Arc::clone(&workload.events);
        let mut held = 0;
        for by in codecs() {
            if !events.iter().all(|event| by.0.spec().capacity.holds(event)) {
                continue;
            }
            held += 1;
            let mut in_batches = honest(&events);
            let batch = RelayMessage::Events { subscription: "live-0".into(), events: events[4..6].to_vec() };
            in_batches.live = vec![batch, delivery("live-1", &events[6])];
            for script in [honest(&events), in_batches] {
                let counts = play(Shared::new(workload.clone()), by, script);
                assert_eq!((damage(&counts), counts.balanced()), (vec![], Ok(())), "{}: {value:?}", by.0);
                assert_eq!((counts.deliveries, counts.acked), (4 + 3 + 2, 3), "{}: {value:?}", by.0);
            }
        }
        assert!(held > 20, "{held} codecs hold {value:?}");
    }
}

/// Text that spells the same bytes in capitals, too, and text that is nearly a key.
#[test]
fn a_value_that_is_another_text_is_an_alteration() {
    let changes: [fn(&mut Event<'static>, String); 3] = [
        |event, value| event.tags[0][1] = value.into(),
        |event, value| event.tags[1][0] = value.into(),
        |event, value| event.content = value.into(),
    ];
    let mut played = 0;
    for (planned, came) in
        values().iter().flat_map(|one| values().into_iter().map(move |two| (one.clone(), two)))
    {
        // Every pair with a key; the others are text on both sides, as in clients that keep text.
        if planned == came || ![&planned, &came].contains(&&key()) {
            continue;
        }
        let workload = plan_with(&planned);
        for change in changes {
            let mut altered = workload.events[4].clone();
            change(&mut altered, came.clone());
            for by in codecs() {
                let holds = |event: &Event<'_>| by.0.spec().capacity.holds(event);
                if !holds(&altered) || !workload.events.iter().all(holds) {
                    continue;
                }
                let mut script = honest(&workload.events);
                script.live[0] = delivery("live-0", &altered);
                let counts = play(Shared::new(workload.clone()), by, script);
                let expected = [("lost", 1), ("altered", 1)];
                assert_eq!(damage(&counts), expected, "{}: {came:?} for {planned:?}", by.0);
                played += 1;
            }
        }
    }
    assert!(played > 500, "{played}");
}

/// An external relay may add elements to EVENT (see [`crate::meaning`]): such a message is read as
/// text, whatever the client keeps.
#[test]
fn an_event_in_a_message_with_more_elements_is_compared_as_well() {
    let workload = plan_with(&key());
    for (last, expected) in
        [('f', vec![("answers", 1)]), ('F', vec![("lost", 1), ("altered", 1), ("answers", 1)])]
    {
        for implementation in Implementation::ALL {
            let codec = Format::JSON.codec(implementation).unwrap();
            let mut event = workload.events[5].clone();
            event.tags[0][1] = format!("{}{last}", &key()[..63]).into();
            let mut payload = Vec::new();
            codec.encode_relay(&delivery("live-0", &event), &mut payload).unwrap();
            let text = String::from_utf8(payload).unwrap();
            let mut script = honest(&workload.events);
            without(&mut script.live, 2);
            script.raw = vec![format!("{},1]", text.strip_suffix(']').unwrap()).into_bytes()];
            let counts = play(Shared::new(workload.clone()), (Format::JSON, codec), script);
            assert_eq!(damage(&counts), expected, "{implementation}: {last}");
        }
    }
}
