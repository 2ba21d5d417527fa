//! Several events in one message, for clients that asked for it.

use std::time::Duration;

use codecs::{Event, Format};
use futures::future::join_all;
use relay_sim::BatchLimits;
use wire::{Compression, Offer};

use crate::common::{Client, TestRelay, compressions, delivery, event_json, kinds, note, ok};

const LONG: Duration = Duration::from_secs(600);

async fn relay(hold: Duration, events: usize, bytes: usize) -> TestRelay {
    TestRelay::start(|config| config.batch = BatchLimits { hold, events, bytes }).await
}

async fn batched(relay: &TestRelay, format: Format, compression: Compression) -> Client {
    relay.client_that_offers(Offer { batched: true, formats: vec![format], compression }).await
}

fn notes(count: usize) -> Vec<Event<'static>> {
    (0..count).map(|n| note(n, 100 + i64::try_from(n).unwrap())).collect()
}

fn batch(subscription: &str, events: &[Event<'static>]) -> String {
    let events: Vec<_> = events.iter().map(event_json).collect();
    format!(r#"["EVENTS","{subscription}",[{}]]"#, events.join(","))
}

async fn publish(client: &mut Client, events: &[Event<'static>]) {
    for event in events {
        client.publish(event).await;
        client.expect(&ok(event)).await;
    }
}

#[tokio::test]
async fn stored_and_live_events_come_in_batches_in_every_format_and_under_every_layer() {
    let layers = Format::all().flat_map(|format| {
        let of_json = move |c: &Compression| format == Format::JSON || c.name() == "none";
        compressions().filter(of_json).map(move |compression| (format, compression))
    });
    // At once, because a relay takes a second to stop.
    join_all(layers.map(|(format, compression)| stored_and_live_events_come_in_batches(format, compression)))
        .await;
}

async fn stored_and_live_events_come_in_batches(format: Format, compression: Compression) {
    let all = notes(7);
    let newest_first: Vec<_> = all[..4].iter().rev().cloned().collect();
    let relay = relay(LONG, 3, 1 << 20).await;
    let mut publisher = relay.json_client().await;
    let mut reader = batched(&relay, format, compression).await;
    publish(&mut publisher, &all[..4]).await;
    reader.request("a", kinds(&[1])).await;
    reader.expect(&batch("a", &newest_first[..3])).await;
    reader.expect(&delivery("a", &newest_first[3])).await;
    reader.expect(r#"["EOSE","a"]"#).await;
    publish(&mut publisher, &all[4..]).await;
    reader.expect(&batch("a", &all[4..])).await;
    let totals = relay.stop().await;
    assert_eq!((totals.deliveries_stored, totals.deliveries_live), (4, 3), "{format} {compression}");
}
