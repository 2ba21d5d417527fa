//! Messages of `zstd-dict` that were compressed once, read by decoders of zstd with other
//! histories: python-zstandard, zstd in WebAssembly, and klauspost/compress of
//! Go, which `.ci/run` installs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;
use wire::{Connection, Dictionary, Shared};

use crate::{
    common::{config, connection, listen, sample, support},
    scripted::{BINARY, FIN, Scripted},
};

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("interop").join(name)
}

fn dictionary() -> Dictionary {
    Dictionary::bundled("json").unwrap()
}

/// Payloads and the lengths of their prefixes: ids of one to 64 characters, multibyte ones, events
/// of a few bytes to many.
fn payloads() -> Vec<(Vec<u8>, usize)> {
    let ids = ["a".to_owned(), "sub:1".to_owned(), "\u{1f980}".repeat(64), r"\u0007".repeat(64)];
    let mut payloads = Vec::new();
    for id in &ids {
        let prefix = format!(r#"["EVENT","{id}","#);
        for (seed, bytes) in [150, 700, 5_000, 200_000].into_iter().enumerate() {
            payloads.push(([prefix.as_bytes(), &sample(seed, bytes)].concat(), prefix.len()));
        }
    }
    payloads
}

/// A client that sends and sees exact bytes, and a relay.
async fn ends() -> (Scripted, Connection) {
    let (address, accepted) = listen(config(support(&["zstd-dict"]))).await;
    let token = format!("Sec-WebSocket-Protocol: nostr.json+zstd-dict2-{}\r\n", dictionary().id());
    let (client, _) = Scripted::upgraded(address, &token).await;
    (client, connection(accepted.await.unwrap().unwrap()))
}

/// A folder with the dictionary, each payload, and the frames in which a relay sends it.
async fn messages() -> (TempDir, usize) {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("dictionary"), dictionary().bytes()).unwrap();
    let (mut client, mut relay) = ends().await;
    let payloads = payloads();
    for (n, (payload, prefix_bytes)) in payloads.iter().enumerate() {
        let (prefix, common) = payload.split_at(*prefix_bytes);
        relay.feed_shared(prefix, [common, b""], &Shared::default()).await.unwrap();
        let (flushed, (first_byte, message)) = tokio::join!(relay.flush(), client.read_frame());
        flushed.unwrap();
        assert_eq!((first_byte, message[0]), (FIN | BINARY, 1), "compressed");
        fs::write(folder.path().join(format!("{n}.zst")), &message[1..]).unwrap();
        fs::write(folder.path().join(format!("{n}.txt")), payload).unwrap();
    }
    (folder, payloads.len())
}

/// Runs a reader over the folder; it prints how many messages it read.
fn check_reader(command: &mut Command, count: usize) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.trim(), count.to_string());
}

#[tokio::test]
#[ignore = "needs python3 with zstandard"]
async fn python_zstandard_reads_frames_in_one_call_and_in_pieces() {
    let (folder, count) = messages().await;
    check_reader(Command::new("python3").arg(script("read.py")).arg(folder.path()), count);
}

#[tokio::test]
#[ignore = "needs node with @bokuweb/zstd-wasm"]
async fn zstd_in_webassembly_reads_frames_in_one_call() {
    let (folder, count) = messages().await;
    check_reader(Command::new("node").arg(script("read.mjs")).arg(folder.path()), count);
}

#[tokio::test]
#[ignore = "needs go with the modules of interop/go"]
async fn go_klauspost_reads_frames_in_one_call_and_as_a_stream() {
    let (folder, count) = messages().await;
    let program = folder.path().join("frames");
    let mut build = Command::new("go");
    // Without a proxy and without a toolchain of its own choice, go downloads nothing.
    build.env("GOPROXY", "off").env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0");
    build.current_dir(script("go")).args(["build", "-mod=readonly", "-o"]).arg(&program).arg(".");
    assert!(build.status().unwrap().success(), "go build; `go mod download` gets its modules");
    check_reader(Command::new(&program).arg(folder.path()), count);
}
