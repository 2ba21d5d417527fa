//! Bytes an event: as it is, each compressed by itself, and all as one stream.

use std::io::Write as _;

use codecs::{Event, Format, Implementation};
use serde::Serialize;

use crate::{
    sets::{self, EventSet, Sets},
    together::{self, Form, TOGETHER},
};

/// The sizes of a format in one column, in bytes an event.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sizes {
    pub(crate) format: &'static str,
    /// `None`: all events.
    pub(crate) kind: Option<u16>,
    pub(crate) events: usize,
    pub(crate) raw: f64,
    pub(crate) gzip: f64,
    pub(crate) zstd: f64,
    pub(crate) gzip_stream: f64,
    pub(crate) zstd_stream: f64,
    /// The same events in JSON.
    pub(crate) json: Option<Box<Sizes>>,
}

/// Events that are compressed together.
pub(crate) const BATCHES: [usize; 4] = [1, 10, 100, 1_000];

/// The sizes of a format's events compressed in batches, in bytes an event.
#[derive(Debug, Serialize)]
pub(crate) struct Batches {
    pub(crate) format: &'static str,
    /// For each of [`BATCHES`].
    pub(crate) gzip: Vec<f64>,
    pub(crate) zstd: Vec<f64>,
    /// Bytes an event by itself.
    pub(crate) single: f64,
    /// In EVENTS of [`TOGETHER`] events.
    pub(crate) message: f64,
    /// In a batch of as many, where the format has a layout.
    pub(crate) layout: Option<f64>,
}

/// Compresses as many events together as a batch has, all batches of a corpus apart from each
/// other.
pub(crate) fn batches(formats: &[Format], sets: &Sets<'_>) -> Vec<Batches> {
    let of_format = |format: &Format| {
        let set = sets.for_format(*format);
        let frames: Vec<_> =
            set.events.iter().map(|event| sets::encode(format.spec().library, event)).collect();
        let of_size = |size: fn(&[u8]) -> usize| {
            let bytes =
                |batch: &usize| frames.chunks(*batch).map(|frames| size(&frames.concat())).sum::<usize>();
            BATCHES.iter().map(|batch| bytes(batch) as f64 / frames.len() as f64).collect()
        };
        let together = |form: Form| {
            let bytes = |chunk: &[&Event<'static>]| {
                let mut out = Vec::new();
                form.write(
                    &together::message(chunk.iter().map(|event| (*event).clone()).collect()),
                    &mut out,
                );
                out.len()
            };
            set.events.chunks(TOGETHER).map(bytes).sum::<usize>() as f64 / frames.len() as f64
        };
        Batches {
            format: format.name(),
            gzip: of_size(gzip),
            zstd: of_size(zstd),
            single: frames.iter().map(Vec::len).sum::<usize>() as f64 / frames.len() as f64,
            message: together(Form::Message(format.spec().library)),
            layout: format.batch(Implementation::Library).map(|batch| together(Form::Batch(batch))),
        }
    };
    formats.iter().map(of_format).collect()
}

pub(crate) fn measure(formats: &[Format], sets: &Sets<'_>) -> Vec<Sizes> {
    let mut all = Vec::new();
    let json: Vec<Vec<Sizes>> = sets.sets.iter().map(|set| of_format(Format::JSON, set)).collect();
    for format in formats {
        let at = sets.of_format[format];
        for (sizes, json) in of_format(*format, &sets.sets[at]).into_iter().zip(&json[at]) {
            all.push(Sizes { json: Some(Box::new(json.clone())), ..sizes });
        }
    }
    all
}

fn of_format(format: Format, set: &EventSet<'_>) -> Vec<Sizes> {
    let frames: Vec<_> = set.events.iter().map(|event| sets::encode(format.spec().library, event)).collect();
    let whole = of_frames(format, None, &frames.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let kinds = set.groups.iter().filter_map(|group| {
        let frames: Vec<_> = group.members.iter().map(|at| frames[*at].as_slice()).collect();
        (!frames.is_empty() && group.kind.is_some()).then(|| of_frames(format, group.kind, &frames))
    });
    [whole].into_iter().chain(kinds).collect()
}

fn of_frames(format: Format, kind: Option<u16>, frames: &[&[u8]]) -> Sizes {
    let stream = frames.concat();
    let mean = |bytes: usize| bytes as f64 / frames.len() as f64;
    let alone = |size: fn(&[u8]) -> usize| mean(frames.iter().map(|bytes| size(bytes)).sum());
    Sizes {
        format: format.name(),
        kind,
        events: frames.len(),
        raw: mean(stream.len()),
        gzip: alone(gzip),
        zstd: alone(zstd),
        gzip_stream: mean(gzip(&stream)),
        zstd_stream: mean(zstd(&stream)),
        json: None,
    }
}

fn gzip(bytes: &[u8]) -> usize {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes every byte").len()
}

fn zstd(bytes: &[u8]) -> usize {
    zstd::bulk::compress(bytes, 3).expect("level 3 exists, and memory takes every byte").len()
}
