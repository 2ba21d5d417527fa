//! Files of events, the generator, captures, and the program's commands.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod capture;
mod commands;
mod fidelity;
mod files;
mod formats;
mod fresh;
mod generated;
mod import_har;
mod invalid;

#[path = "../../../../client-sim/tests/common/ran.rs"]
#[expect(dead_code, reason = "this program measures nothing")]
mod ran;

use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

use codecs::Event;
use tempfile::TempDir;

use ran::{Ran, Runs};

/// A folder of a test's own, in which the program runs.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn names(&self) -> Vec<String> {
        let names = self.0.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    fn corpus(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corpus"));
        command.args(args).current_dir(&self.0).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.corpus(args).ran()
    }

    /// As on a disk with this many blocks of 512 bytes.
    fn starved(&self, blocks: usize, args: &[&str]) -> Command {
        let mut command = Command::new("sh");
        let script = format!("ulimit -f {blocks}; exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_corpus")]).args(args).current_dir(&self.0);
        command
    }
}

/// The bytes as a file of this name has them.
fn packed(name: &str, bytes: &[u8]) -> Vec<u8> {
    if name.ends_with(".gz") {
        gzip(bytes)
    } else if name.ends_with(".zst") {
        zstd::encode_all(bytes, 1).unwrap()
    } else {
        bytes.to_vec()
    }
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
    corpus::json(event).into_bytes()
}
