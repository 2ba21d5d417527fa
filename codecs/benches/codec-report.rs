//! How fast and how small is an event in each format, by the library and by hand?
//!
//! `cargo bench -p codecs --bench codec-report [-- FILE.pb.gz]` prints Markdown. Without a file it takes the real
//! events beside the repository where they are, otherwise the generated ones in `data/`, and says which.
//!
//! Every row is one pass over all events in turn, so that caches see a stream and not one hot event. Rounds are
//! interleaved: each round times every row once, starting at another row, so that a slow phase of the machine
//! meets all rows alike. A cell is the median of the rounds, in nanoseconds an event; behind it stands the half
//! width between the quartiles. Everything runs on one thread, and inputs are built before the first round.

#![allow(clippy::print_stdout, reason = "the report is what this program is for")]
#![allow(clippy::unwrap_used, reason = "a measurement without its inputs should end at once")]
#![allow(clippy::cast_precision_loss, reason = "sizes and times here are far below 2^52")]

use std::{
    fmt::Write as _,
    fs::File,
    hint::black_box,
    io::{Read, Write as _},
    path::{Path, PathBuf},
    time::Instant,
};

use codecs::{Codec, Event, Format, Implementation, hex};
use serde::{Serialize, Serializer, ser::SerializeStruct};

const ROUNDS: usize = 21;

fn main() {
    let path =
        std::env::args().skip(1).find(|arg| !arg.starts_with('-')).map_or_else(default_corpus, PathBuf::from);
    let events = load(&path);
    let rows = rows(&events);
    println!("{} events of {}, {ROUNDS} rounds\n", events.len(), name(&path));
    let times = measure(&rows, events.len());
    println!("{}", speed_table(&rows, &times));
    println!("{}", size_table(&events));
}

fn default_corpus() -> PathBuf {
    let beside = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/corpus/mix.pb.gz"));
    let bundled = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../data/sample.pb.gz"));
    if beside.exists() { beside.to_owned() } else { bundled.to_owned() }
}

fn name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.display().to_string())
}

/// The events of a file of `varint length, ProtoEvent` records that every format can hold.
fn load(path: &Path) -> Vec<Event<'static>> {
    let mut file = Vec::new();
    flate2::read::GzDecoder::new(File::open(path).unwrap()).read_to_end(&mut file).unwrap();
    let codec = "proto-string".parse::<Format>().unwrap().spec().library;
    let (mut bytes, mut events) = (&file[..], Vec::new());
    while !bytes.is_empty() {
        let head = bytes.iter().take_while(|byte| **byte >= 0x80).count() + 1;
        let len = bytes[..head].iter().rev().fold(0, |len, byte| len << 7 | usize::from(byte & 0x7f));
        events.push(codec.decode_event(&bytes[head..head + len]).unwrap().into_owned());
        bytes = &bytes[head + len..];
    }
    events.retain(|event| {
        Format::all().all(|format| format.spec().library.encode_event(event, &mut Vec::new()).is_ok())
    });
    events
}

/// A pass over all events, with a buffer to write into.
type Pass<'e> = Box<dyn Fn(&mut Vec<u8>) + 'e>;

/// What is timed.
struct Row<'e> {
    format: &'static str,
    by: &'static str,
    what: &'static str,
    pass: Pass<'e>,
}

fn rows<'e>(events: &'e [Event<'static>]) -> Vec<Row<'e>> {
    let clone: Pass<'e> = Box::new(move |_| events.iter().for_each(|event| drop(black_box(event.clone()))));
    let mut rows = vec![Row { format: "", by: "", what: "clone+drop", pass: clone }];
    let sonic: Pass<'e> = Box::new(move |buffer| {
        for event in events {
            buffer.clear();
            sonic_rs::to_writer(&mut *buffer, &AsJson(event)).unwrap();
            black_box(&buffer);
        }
    });
    rows.push(Row { format: "json", by: "sonic-rs", what: "encode", pass: sonic });
    for format in Format::all() {
        let encoded = events.iter().map(|event| encode(format.spec().library, event)).collect();
        let encoded: &[Vec<u8>] = Vec::leak(encoded); // inputs of the whole run
        let copy: Pass<'_> = Box::new(move |buffer| {
            for bytes in encoded {
                buffer.clear();
                buffer.extend_from_slice(black_box(bytes));
                black_box(&buffer);
            }
        });
        rows.push(Row { format: format.name(), by: "", what: "memcpy", pass: copy });
        for implementation in Implementation::ALL {
            if let Ok(codec) = format.codec(implementation) {
                codec_rows(format, implementation, codec, events, encoded, &mut rows);
            }
        }
    }
    rows
}

fn codec_rows<'e>(
    format: Format,
    implementation: Implementation,
    codec: &'static dyn Codec,
    events: &'e [Event<'static>],
    encoded: &'static [Vec<u8>],
    rows: &mut Vec<Row<'e>>,
) {
    let encode: Pass<'e> = Box::new(move |buffer| {
        for event in events {
            buffer.clear();
            codec.encode_event(event, buffer).unwrap();
            black_box(&buffer);
        }
    });
    let mut add =
        |what, pass| rows.push(Row { format: format.name(), by: implementation.name(), what, pass });
    add("encode", encode);
    let mut read = |what, read: fn(&dyn Codec, &[u8])| {
        add(what, Box::new(move |_| encoded.iter().for_each(|bytes| read(codec, black_box(bytes)))));
    };
    read("owned", |codec, bytes| drop(black_box(codec.owned_event(bytes).unwrap())));
    read("borrowed", |codec, bytes| drop(black_box(codec.decode_event(bytes).unwrap())));
    read("flat", |codec, bytes| drop(black_box(codec.flat_event(bytes).unwrap())));
    read("view", |codec, bytes| drop(black_box(codec.view_event(bytes).unwrap())));
    read("peek", |codec, bytes| {
        black_box(codec.peek(bytes).unwrap());
    });
}

fn encode(codec: &dyn Codec, event: &Event<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    codec.encode_event(event, &mut out).unwrap();
    out
}

/// Nanoseconds an event: the median of the rounds and half the distance between the quartiles.
#[derive(Clone, Copy)]
struct Time {
    median: f64,
    spread: f64,
}

fn measure(rows: &[Row<'_>], events: usize) -> Vec<Time> {
    let mut times = vec![Vec::with_capacity(ROUNDS); rows.len()];
    let mut buffer = Vec::new();
    for round in 0..=ROUNDS {
        for place in 0..rows.len() {
            let index = (place + round * 37) % rows.len();
            let start = Instant::now();
            (rows[index].pass)(&mut buffer);
            let elapsed = start.elapsed().as_nanos() as f64 / events as f64;
            if round > 0 {
                times[index].push(elapsed); // the first round warms caches and branch predictors
            }
        }
    }
    let of = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        let quartile = |n: usize| times[n * (ROUNDS - 1) / 4];
        Time { median: quartile(2), spread: (quartile(3) - quartile(1)) / 2.0 }
    };
    times.into_iter().map(of).collect()
}

fn speed_table(rows: &[Row<'_>], times: &[Time]) -> String {
    let find = |format: &str, by: &str, what: &str| {
        let index = rows.iter().position(|row| (row.format, row.by, row.what) == (format, by, what))?;
        Some(times[index])
    };
    let cell = |time: Option<Time>| {
        time.map_or_else(String::new, |time| format!("{:.0} ± {:.0}", time.median, time.spread))
    };
    let clone = find("", "", "clone+drop").unwrap();
    let mut out = format!("clone+drop of an owned event: {} ns\n\n", cell(Some(clone)));
    out += "| format | by | memcpy | encode | owned | borrowed | flat | view | peek | encode/memcpy | owned/clone | flat/clone | view/owned |\n";
    out += "| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |\n";
    for format in Format::all().map(Format::name) {
        for by in ["library", "tuned", "sonic-rs"] {
            let Some(encode) = find(format, by, "encode") else { continue };
            let memcpy = find(format, "", "memcpy").unwrap();
            let reads = ["owned", "borrowed", "flat", "view", "peek"].map(|what| find(format, by, what));
            let ratio = |time: Option<Time>, base: Option<Time>| match (time, base) {
                (Some(time), Some(base)) => format!("{:.2}", time.median / base.median),
                _ => String::new(),
            };
            let [owned, _, flat, view, _] = reads;
            let ratios = [
                ratio(Some(encode), Some(memcpy)),
                ratio(owned, Some(clone)),
                ratio(flat, Some(clone)),
                ratio(view, owned),
            ];
            let reads = reads.map(cell).join(" | ");
            let (memcpy, encode, ratios) = (cell(Some(memcpy)), cell(Some(encode)), ratios.join(" | "));
            writeln!(out, "| {format} | {by} | {memcpy} | {encode} | {reads} | {ratios} |").unwrap();
        }
    }
    out
}

/// Bytes an event: alone, each compressed by itself, and all as one stream.
fn size_table(events: &[Event<'_>]) -> String {
    let mut out =
        String::from("| format | bytes | of JSON | gzip 6 | zstd 3 | gzip 6 stream | zstd 3 stream |\n");
    out += "| --- | --: | --: | --: | --: | --: | --: |\n";
    let mut json_bytes = None;
    for format in Format::all() {
        let encoded: Vec<Vec<u8>> = events.iter().map(|event| encode(format.spec().library, event)).collect();
        let stream = encoded.concat();
        let mean = |bytes: usize| bytes as f64 / events.len() as f64;
        let alone = |size: fn(&[u8]) -> usize| mean(encoded.iter().map(|bytes| size(bytes)).sum());
        let raw = mean(stream.len());
        let share = 100.0 * raw / *json_bytes.get_or_insert(raw);
        writeln!(
            out,
            "| {format} | {raw:.0} | {share:.1}% | {:.0} | {:.0} | {:.0} | {:.0} |",
            alone(gzip),
            alone(zstd),
            mean(gzip(&stream)),
            mean(zstd(&stream)),
        )
        .unwrap();
    }
    out
}

fn gzip(bytes: &[u8]) -> usize {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap().len()
}

fn zstd(bytes: &[u8]) -> usize {
    zstd::encode_all(bytes, 3).unwrap().len()
}

/// The event for a JSON library that knows serde, in the same order of fields.
struct AsJson<'e>(&'e Event<'e>);

impl Serialize for AsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let event = self.0;
        let (mut key, mut sig) = ([0; 64], [0; 128]);
        let mut object = serializer.serialize_struct("Event", 7)?;
        object.serialize_field("id", hex::encode_array(&event.id, &mut key))?;
        object.serialize_field("pubkey", hex::encode_array(&event.pubkey, &mut key))?;
        object.serialize_field("created_at", &event.created_at)?;
        object.serialize_field("kind", &event.kind)?;
        object.serialize_field("tags", &event.tags)?;
        object.serialize_field("content", &event.content)?;
        object.serialize_field("sig", hex::encode_array(&event.sig, &mut sig))?;
        object.end()
    }
}
