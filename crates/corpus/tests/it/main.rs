//! Files of events, the generator, captures, and the program's commands.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod analysis;
mod capture;
mod commands;
mod fidelity;
mod files;
mod formats;
mod fresh;
mod generated;
mod import_har;
mod invalid;
mod sampling;

use std::{
    io::Write,
    path::Path,
    process::{Command, Output},
};

use codecs::{Event, Format, Implementation};

/// Runs the program in a folder.
fn run(args: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corpus")).args(args).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes), &mut out).unwrap();
    out
}

/// The event as NIP-01 writes it.
fn json(event: &Event<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Format::JSON.codec(Implementation::Library).unwrap().encode_event(event, &mut bytes).unwrap();
    bytes
}
