//! What is measured of a format. Every benchmark is one pass over its events, and its throughput is in events.

use std::{borrow::Cow, hint::black_box};

use codecs::{ClientMessage, Codec, Event, Format, RelayMessage, VerifyLevel};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, measurement::WallTime};

use crate::shared::{self, AsJson};

/// A pass stays short enough for criterion's samples.
const MAX_EVENTS: usize = 1_000;
const SUBSCRIPTION: &str = "feed:1";

/// Events with their bytes in a format.
pub(crate) struct Frames<'e> {
    format: Format,
    events: Vec<&'e Event<'static>>,
    bytes: Vec<Vec<u8>>,
}

impl<'e> Frames<'e> {
    /// Of as many of the events as a pass takes, spread over all of them.
    pub(crate) fn of(format: Format, events: impl Iterator<Item = &'e Event<'static>>) -> Self {
        let all: Vec<_> = events.collect();
        let events: Vec<_> = all.iter().copied().step_by(all.len().div_ceil(MAX_EVENTS).max(1)).collect();
        let bytes = events.iter().map(|event| shared::encode(format.spec().library, event)).collect();
        Frames { format, events, bytes }
    }
}

/// Adds `group/FORMAT/IMPLEMENTATION` for a pass over `events` events.
fn pass(criterion: &mut Criterion, group: &str, id: BenchmarkId, events: usize, mut pass: impl FnMut()) {
    let mut group: criterion::BenchmarkGroup<'_, WallTime> = criterion.benchmark_group(group);
    group.throughput(Throughput::Elements(events as u64));
    group.bench_function(id, |bencher| bencher.iter(&mut pass));
    group.finish();
}

fn write_all(codec: &dyn Codec, events: &[&Event<'static>], buffer: &mut Vec<u8>) {
    for event in events {
        buffer.clear();
        codec.encode_event(black_box(event), buffer).expect("the set holds what the format holds");
        black_box(&*buffer);
    }
}

fn read_all(codec: &dyn Codec, frames: &[Vec<u8>]) {
    for bytes in frames {
        black_box(codec.owned_event(black_box(bytes)).expect("a codec of the format wrote it"));
    }
}

/// serialize, deserialize, round-trip, zero-copy field access, partial decode and whole envelopes, of all events.
pub(crate) fn whole(criterion: &mut Criterion, frames: &Frames<'_>) {
    let Frames { format, events, bytes } = frames;
    let mut buffer = Vec::new();
    for (by, codec) in shared::codecs_of(*format) {
        let id = || BenchmarkId::new(format.name(), by);
        let n = events.len();
        pass(criterion, "serialize", id(), n, || write_all(codec, events, &mut buffer));
        pass(criterion, "deserialize", id(), n, || read_all(codec, bytes));
        pass(criterion, "round-trip", id(), n, || {
            for event in events {
                buffer.clear();
                codec
                    .encode_event(black_box(event), &mut buffer)
                    .expect("the set holds what the format holds");
                black_box(codec.owned_event(&buffer).expect("it was just written"));
            }
        });
        pass(criterion, "view", id(), n, || {
            bytes.iter().for_each(|bytes| drop(black_box(codec.view_event(black_box(bytes)))));
        });
        // What a client does with a note: content, and whom it answers, read where they stand.
        pass(criterion, "field-access", id(), n, || {
            for bytes in bytes {
                let view = codec.view_event(black_box(bytes)).expect("a codec of the format wrote it");
                black_box(view.first_tag_value("e").is_some_and(|value| value.is("")));
                black_box(view.content().is(""));
            }
        });
        // What dropping a duplicate needs: id, author and kind of a frame whose rest is never looked at.
        pass(criterion, "three-fields", id(), n, || {
            for bytes in bytes {
                let head = codec.peek(black_box(bytes)).expect("a codec of the format wrote it");
                black_box((head.id, head.pubkey, head.kind));
            }
        });
        envelopes(criterion, codec, frames, &id());
    }
    pass(criterion, "memcpy", BenchmarkId::from_parameter(format), events.len(), || {
        for bytes in bytes {
            buffer.clear();
            buffer.extend_from_slice(black_box(bytes));
            black_box(&*buffer);
        }
    });
}

/// `["EVENT",sub,event]` in the words of the format: written, spliced around bytes that exist, and read.
fn envelopes(criterion: &mut Criterion, codec: &dyn Codec, frames: &Frames<'_>, id: &BenchmarkId) {
    let n = frames.events.len();
    let messages: Vec<_> = frames
        .events
        .iter()
        .map(|event| RelayMessage::Event { subscription: SUBSCRIPTION.into(), event: Cow::Borrowed(*event) })
        .collect();
    let mut buffer = Vec::new();
    pass(criterion, "envelope-write", id.clone(), n, || {
        for message in &messages {
            buffer.clear();
            codec.encode_relay(black_box(message), &mut buffer).expect("the set holds what the format holds");
            black_box(&buffer);
        }
    });
    pass(criterion, "envelope-splice", id.clone(), n, || {
        for bytes in &frames.bytes {
            buffer.clear();
            codec.wrap_event(SUBSCRIPTION, black_box(bytes), &mut buffer);
            black_box(&buffer);
        }
    });
    let wrapped: Vec<Vec<u8>> = frames.bytes.iter().map(|bytes| wrapped(codec, bytes)).collect();
    pass(criterion, "envelope-read", id.clone(), n, || {
        for bytes in &wrapped {
            black_box(codec.decode_relay(black_box(bytes)).expect("a codec of the format wrote it"));
        }
    });
    let published: Vec<Vec<u8>> = frames.events.iter().map(|event| published(codec, event)).collect();
    pass(criterion, "publish-read", id.clone(), n, || {
        for bytes in &published {
            black_box(codec.decode_client(black_box(bytes)).expect("a codec of the format wrote it"));
        }
    });
}

fn wrapped(codec: &dyn Codec, event: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    codec.wrap_event(SUBSCRIPTION, event, &mut out);
    out
}

fn published(codec: &dyn Codec, event: &Event<'static>) -> Vec<u8> {
    let mut out = Vec::new();
    let message = ClientMessage::Event(Cow::Borrowed(event));
    codec.encode_client(&message, &mut out).expect("the set holds what the format holds");
    out
}

/// Writing and reading the events of one class, by every implementation.
pub(crate) fn class(criterion: &mut Criterion, group: &str, class: &str, frames: &Frames<'_>) {
    let Frames { format, events, bytes } = frames;
    if events.is_empty() {
        return; // a format that holds none of the class, or a corpus without it
    }
    let mut buffer = Vec::new();
    for (by, codec) in shared::codecs_of(*format) {
        let id = || BenchmarkId::new(format.name(), by);
        pass(criterion, &format!("{group}/encode/{class}"), id(), events.len(), || {
            write_all(codec, events, &mut buffer);
        });
        pass(criterion, &format!("{group}/decode/{class}"), id(), events.len(), || read_all(codec, bytes));
    }
}

/// 100, 1,000 and 10,000 events one behind the other in one buffer, and read into one list; events repeat where there
/// are fewer. A single event's time is in serialize and deserialize.
pub(crate) fn batches(criterion: &mut Criterion, frames: &Frames<'_>) {
    for size in [100, 1_000, 10_000] {
        let events: Vec<_> = frames.events.iter().copied().cycle().take(size).collect();
        for (by, codec) in shared::codecs_of(frames.format) {
            let mut buffer = Vec::new();
            let mut ends = Vec::new();
            let mut write = || {
                buffer.clear();
                ends.clear();
                for event in &events {
                    codec.encode_event(event, &mut buffer).expect("the set holds what the format holds");
                    ends.push(buffer.len());
                }
                black_box((&buffer, &ends));
            };
            write();
            let id = BenchmarkId::new(frames.format.name(), by);
            pass(criterion, &format!("batch/encode/{size}"), id.clone(), size, &mut write);
            let read = |start: &mut usize, end: &usize| {
                let bytes = &buffer[std::mem::replace(start, *end)..*end];
                Some(codec.owned_event(bytes).expect("a codec of the format wrote it"))
            };
            pass(criterion, &format!("batch/decode/{size}"), id, size, || {
                black_box(ends.iter().scan(0, read).collect::<Vec<_>>());
            });
        }
    }
}

/// What no format can be faster than, and what every relay does besides.
pub(crate) fn reference(criterion: &mut Criterion, all: &[&Event<'static>]) {
    let events: Vec<_> = all.iter().copied().step_by(all.len().div_ceil(MAX_EVENTS)).collect();
    let id = BenchmarkId::from_parameter;
    let mut group = criterion.benchmark_group("reference");
    group.throughput(Throughput::Elements(events.len() as u64));
    group.bench_function(id("clone+drop"), |bencher| {
        bencher.iter(|| events.iter().for_each(|event| drop(black_box(black_box(*event).clone()))));
    });
    group.bench_function(id("clone"), |bencher| {
        let clone = |event: &&Event<'static>| (**event).clone();
        bencher.iter_batched(
            || (),
            |()| events.iter().map(clone).collect::<Vec<_>>(),
            BatchSize::PerIteration,
        );
    });
    group.bench_function(id("compute-id"), |bencher| {
        bencher.iter(|| {
            for event in &events {
                black_box(black_box(event).compute_id());
            }
        });
    });
    group.bench_function(id("sonic-rs-encode"), |bencher| {
        let mut buffer = Vec::new();
        bencher.iter(|| {
            for event in &events {
                buffer.clear();
                sonic_rs::to_writer(&mut buffer, &AsJson(black_box(event))).expect("JSON holds every event");
                black_box(&buffer);
            }
        });
    });
    // 50 µs each: a tenth of the events make a pass.
    let few: Vec<_> = events.iter().step_by(10).collect();
    group.throughput(Throughput::Elements(few.len() as u64));
    group.bench_function(id("verify-bip340"), |bencher| {
        bencher.iter(|| few.iter().all(|event| black_box(event).verify(VerifyLevel::Full).is_ok()));
    });
    group.finish();
}
