//! An event is encoded once for a format, and nobody waits for the encoding of another event.

use std::sync::{
    Condvar, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use codecs::{EncodeError, EventCodec, Limits};

use super::*;

/// JSON that waits in the middle of encoding one event until it is let go.
#[derive(Debug)]
struct Gate {
    id: [u8; 32],
    /// How often that event was encoded.
    entered: AtomicUsize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct State {
    is_waiting: bool,
    is_open: bool,
}

/// Far beyond what any step takes: a relay that holds a lock is a failure and no wait.
const PATIENCE: Duration = Duration::from_secs(60);

impl Gate {
    fn before(event: &Event<'_>) -> &'static Gate {
        let gate = Gate {
            id: event.id,
            entered: AtomicUsize::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
        };
        Box::leak(Box::new(gate))
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    fn wait_until(&self, reached: impl Fn(&State) -> bool) {
        let state = self.state.lock().unwrap();
        let (_state, waited) =
            self.changed.wait_timeout_while(state, PATIENCE, |state| !reached(state)).unwrap();
        assert!(!waited.timed_out(), "the gate was not passed");
    }

    fn is_open(&self) -> bool {
        self.state.lock().unwrap().is_open
    }
}

fn json() -> &'static dyn Codec {
    Format::JSON.spec().library
}

impl EventCodec for Gate {
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if event.id == self.id {
            self.entered.fetch_add(1, Ordering::SeqCst);
            self.change(|state| state.is_waiting = true);
            self.wait_until(|state| state.is_open);
        }
        json().encode_event(event, out)
    }

    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        json().decode_event(bytes)
    }
}

impl Codec for Gate {
    fn encode_client(&self, message: &ClientMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        json().encode_client(message, out)
    }

    fn decode_client_within<'a>(
        &self,
        bytes: &'a [u8],
        limits: &Limits,
    ) -> Result<ClientMessage<'a>, DecodeError> {
        json().decode_client_within(bytes, limits)
    }

    fn encode_relay(&self, message: &RelayMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        json().encode_relay(message, out)
    }

    fn decode_relay<'a>(&self, bytes: &'a [u8]) -> Result<RelayMessage<'a>, DecodeError> {
        json().decode_relay(bytes)
    }

    fn around_event(&self, subscription: &str, event: &[u8], out: &mut Vec<u8>) -> &'static [u8] {
        json().around_event(subscription, event, out)
    }

    fn wrap_events(&self, subscription: &str, events: &[&[u8]], out: &mut Vec<u8>) {
        json().wrap_events(subscription, events, out);
    }
}

fn gated(gate: &'static Gate) -> Arc<Relay> {
    let config = Config { verify: VerifyLevel::None, ..Config::default() };
    Arc::new(Relay::new(config).unwrap().with_codec(Format::JSON, gate))
}

fn of_id(event: &Event<'_>) -> Filter {
    Filter { ids: Some(vec![event.id]), ..Filter::default() }
}

#[test]
fn an_event_that_takes_long_to_encode_keeps_no_other_from_its_subscribers() {
    let (slow, quick) = (event(1), event(2));
    let gate = Gate::before(&slow);
    let relay = gated(gate);
    let mut reader = Client::open(&relay, Format::JSON, false);
    reader.request("s", Filter::default());
    assert_eq!(names(&reader.hear()), ["EOSE s"]);
    thread::scope(|scope| {
        let publishing = scope.spawn(|| Client::open(&relay, Format::JSON, false).publish(&slow));
        gate.wait_until(|state| state.is_waiting);
        // The slow event has its place in the order of all, and is on its way to nobody yet.
        let mut other = Client::open(&relay, Format::JSON, false);
        other.publish(&quick);
        other.request("quick", of_id(&quick));
        let count = ClientMessage::Count { subscription: "c".into(), filters: vec![Filter::default()] };
        other.say(&count);
        let heard = other.hear();
        assert!(json_text(&heard)[0].starts_with(r#"["OK","02"#), "{heard:?}");
        assert_eq!(names(&heard[1..]), ["EVENT quick", "EOSE quick", "COUNT c"]);
        assert!(json_text(&heard)[3].contains(r#""count":2"#), "{heard:?}");
        assert_eq!(reader.deliveries().0, [("s".to_owned(), quick.clone())]);
        assert!(!publishing.is_finished() && !gate.is_open());
        gate.change(|state| state.is_open = true);
    });
    assert_eq!(reader.deliveries().0, [("s".to_owned(), slow)]);
}

#[test]
fn an_event_is_encoded_once_though_several_connections_want_it_at_once() {
    let stored = event(1);
    let gate = Gate::before(&stored);
    let relay = gated(gate);
    relay.preload(std::slice::from_ref(&stored));
    let ask = |format| {
        let mut reader = Client::open(&relay, format, false);
        reader.request("s", of_id(&stored));
        reader.deliveries().0
    };
    let expected = [("s".to_owned(), stored.clone())];
    thread::scope(|scope| {
        let first = scope.spawn(|| ask(Format::JSON));
        gate.wait_until(|state| state.is_waiting);
        let others: Vec<_> = (0..3).map(|_| scope.spawn(|| ask(Format::JSON))).collect();
        // Who wants the event in another format waits for nobody.
        assert_eq!(ask("dannypack".parse().unwrap()), expected);
        assert!(!first.is_finished() && !gate.is_open());
        gate.change(|state| state.is_open = true);
        for reader in others.into_iter().chain([first]) {
            assert_eq!(reader.join().unwrap(), expected);
        }
    });
    assert_eq!(gate.entered.load(Ordering::SeqCst), 1);
    assert_eq!(relay.totals().encodings_cold, 2, "JSON and DannyPack");
}
