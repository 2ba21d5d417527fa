//! `corpus import-har`: a recording from what a browser's developer tools save.

use std::{
    fs::{self, File},
    io::{BufReader, Read},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail, ensure};
use codecs::Format;
use measure::whole;
use recording::{Entry, Passed, Redaction, Scribe, Side, What};
use serde::Deserialize;

use super::say;

/// The largest file that is read; all of it is in memory.
const MAX_HAR_BYTES: u64 = 1 << 30;

/// The frame type of text (RFC 6455 §5.2).
const TEXT: u8 = 1;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A HAR file with WebSocket messages, as Chromium's and Playwright's have them.
    input: PathBuf,
    /// Write the recording to here, as .jsonl.zst; must not exist.
    output: PathBuf,
}

/// The parts of a HAR file (version 1.2) that are read.
#[derive(Debug, Deserialize)]
struct Har {
    log: Log,
}

#[derive(Debug, Deserialize)]
struct Log {
    entries: Vec<Exchange>,
}

#[derive(Debug, Deserialize)]
struct Exchange {
    #[serde(rename = "_webSocketMessages", default)]
    messages: Vec<HarMessage>,
}

#[derive(Debug, Deserialize)]
struct HarMessage {
    #[serde(rename = "type")]
    direction: Direction,
    /// Seconds since 1970.
    time: f64,
    opcode: u8,
    /// Text, or the base64 of bytes.
    data: String,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    Send,
    Receive,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let har = read(&args.input)?;
    let connections: Vec<_> =
        har.log.entries.iter().filter(|exchange| !exchange.messages.is_empty()).collect();
    ensure!(
        !connections.is_empty(),
        "{} has no _webSocketMessages: open the developer tools, load the page anew, and save the HAR with its content",
        args.input.display()
    );
    let mut messages: Vec<_> = connections
        .iter()
        .enumerate()
        .flat_map(|(conn, exchange)| exchange.messages.iter().map(move |message| (conn, message)))
        .collect();
    if let Some((_, message)) = messages.iter().find(|(_, message)| !message.time.is_finite()) {
        bail!("{}: a message has the time {}, which is none", args.input.display(), message.time);
    }
    // Stable: what has one time stays in its order.
    messages.sort_by(|(_, one), (_, other)| one.time.total_cmp(&other.time));
    let output = recording::create(&args.output)?;
    let end =
        write(output, connections.len(), &messages).inspect_err(|_| _ = fs::remove_file(&args.output))?;
    say(&format!(
        "{}: {} connections, {} messages; zstd makes the texts {:.2} times smaller as they were and {:.2} times as \
         they are written",
        args.output.display(),
        connections.len(),
        messages.len(),
        end.ratio_source,
        end.ratio_written
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> anyhow::Result<Har> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut input = BufReader::new(file).take(MAX_HAR_BYTES);
    let har = serde_json::from_reader(&mut input);
    ensure!(input.limit() > 0, "{} has more than 1 GiB; save a shorter session", path.display());
    har.with_context(|| format!("{} is not a HAR file (JSON with log.entries)", path.display()))
}

/// A HAR has neither the end of a connection nor bytes on the wire: those are of JSON without compression,
/// whatever was agreed on.
fn write(
    output: File,
    connections: usize,
    messages: &[(usize, &HarMessage)],
) -> std::io::Result<recording::End> {
    let by = concat!("corpus ", env!("CARGO_PKG_VERSION"));
    let mut scribe = Scribe::new(output, Redaction::Pseudonyms, by)?;
    let first = messages.first().map_or(0.0, |(_, message)| message.time);
    let mut is_open = vec![false; connections];
    for (conn, message) in messages {
        let t_ns = whole((message.time - first) * 1e9);
        let number = *conn as u64;
        if !std::mem::replace(&mut is_open[*conn], true) {
            let what = What::Open { client: None, relay: None };
            scribe.write(Entry { conn: number, t_ns, what })?;
        }
        let from = match message.direction {
            Direction::Send => Side::Client,
            Direction::Receive => Side::Relay,
        };
        let payload =
            if message.opcode == TEXT { message.data.clone().into_bytes() } else { unread(&message.data) };
        let passed = Passed { from, payload_bytes: payload.len(), format: Format::JSON, payload };
        scribe.message(number, t_ns, &passed)?;
    }
    scribe.finish()
}

/// As many bytes as base64 stands for, which no format of these files reads.
fn unread(base64: &str) -> Vec<u8> {
    let digits = base64.trim_end_matches('=').len();
    vec![0; digits / 4 * 3 + (digits % 4 * 3) / 4]
}
