//! What the relay allocates for each delivery to a connection that had some before: nothing.

use std::{borrow::Cow, sync::Arc, time::Instant};

use codecs::{ClientMessage, Codec, Filter, Format, VerifyLevel};
use futures::FutureExt;
use relay_sim::{
    Config,
    machine::{self, Opening, Relay, Time},
};
use wire::{Compression, Offer, Support, WireLimits};

use crate::common::note;

/// Both ends of a connection in memory, and the relay's state of it.
struct Reader {
    client: wire::Connection,
    relay: wire::Connection,
    machine: machine::Connection,
}

const FORMAT: Format = Format::JSON;

fn now() -> Time {
    Time { instant: Instant::now(), unix_seconds: 1_700_000_000 }
}

fn at_once<T>(work: impl Future<Output = T>) -> T {
    work.now_or_never().expect("a connection in memory takes everything")
}

impl Reader {
    fn open(relay: &Arc<Relay>, compression: Compression) -> Reader {
        let offer = Offer { formats: vec![FORMAT], batched: false, compression };
        let support = Support { formats: vec![FORMAT], compressions: vec![compression], batched: false };
        let limits = WireLimits::default();
        let (client, ours) = at_once(wire::in_memory(&offer, &support, [&limits, &limits])).unwrap();
        let machine = relay.connect(&Opening { shares: ours.shares(), ..Opening::new(FORMAT) });
        Reader { client, relay: ours, machine }
    }

    fn say(&mut self, message: &ClientMessage<'_>) {
        let mut payload = Vec::new();
        codec().encode_client(message, &mut payload).unwrap();
        self.machine.receive(&payload, FORMAT.spec().opcode, now()).unwrap();
    }

    fn request(&mut self, limit: usize) {
        let filters = vec![Filter { limit: Some(limit as u64), ..Filter::default() }];
        self.say(&ClientMessage::Req { subscription: "s".into(), filters });
    }

    /// What the relay allocates while it sends all that it has for this reader, and how many
    /// messages arrive.
    fn hear(&mut self) -> (u64, usize) {
        let Reader { client, relay, machine } = self;
        let counted = allocation_counter::measure(|| at_once(machine.transmit(relay, now())).unwrap());
        let mut messages = 0;
        while let Some(message) = client.next().now_or_never() {
            message.unwrap().unwrap();
            messages += 1;
        }
        (counted.count_total, messages)
    }
}

fn codec() -> &'static dyn Codec {
    FORMAT.spec().library
}

fn relay() -> Arc<Relay> {
    let mut config = Config::default();
    config.verify = VerifyLevel::None;
    Arc::new(Relay::new(config).unwrap())
}

#[test]
fn a_live_event_allocates_for_its_first_subscriber_alone() {
    for name in Compression::NAMES {
        let relay = relay();
        let mut publisher = Reader::open(&relay, Compression::None);
        let mut readers = [(); 3].map(|()| Reader::open(&relay, Compression::named(name).unwrap()));
        for reader in &mut readers {
            reader.request(1);
            assert_eq!(reader.hear().1, 1, "EOSE");
        }
        for n in 0..9 {
            publisher.say(&ClientMessage::Event(Cow::Owned(note(n, 1_000))));
            for (place, reader) in readers.iter_mut().enumerate() {
                let (allocations, messages) = reader.hear();
                assert_eq!(messages, 1, "{name}");
                // By then buffers are as large as they get.
                if n == 8 {
                    let compresses_once = place == 0 && reader.relay.shares();
                    assert_eq!(allocations > 0, compresses_once, "{name} {place}: {allocations}");
                }
            }
        }
    }
}

#[test]
fn a_stored_event_that_was_sent_before_allocates_nothing() {
    const STORED: usize = 64;
    for name in Compression::NAMES {
        let relay = relay();
        relay.preload(&(0..STORED).map(|n| note(n, 1_000)).collect::<Vec<_>>());
        let mut reader = Reader::open(&relay, Compression::named(name).unwrap());
        let mut ask = |limit| {
            reader.request(limit);
            let (allocations, messages) = reader.hear();
            assert_eq!(messages, limit + 1, "{name}: events and EOSE");
            allocations
        };
        ask(STORED);
        assert_eq!(ask(STORED), ask(8), "{name}: the same for more events");
    }
}
