//! Writes messages as they may be written: under pseudonyms, or not at all.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use codecs::{ClientMessage, Codec, Format, Limits, RelayMessage};

use crate::{
    entry::{Body, End, Entry, Header, Message, Redaction, Side, VERSION, What},
    pseudonyms::Pseudonyms,
    writer::{LEVEL, Writer},
};

/// Kinds whose events are never written, nor shared between clients: messages between people, in cipher or
/// not (NIP-04, NIP-17, NIP-59), and proofs of who somebody is (NIP-42, NIP-98).
pub const PRIVATE: [u16; 8] = [4, 13, 14, 15, 1059, 21_059, 22_242, 27_235];

/// The ratios are of one MiB of texts in so many, since compressing all of them twice more costs most of a
/// recording's CPU.
const RATIO_OF: u64 = 32;

/// Bytes by which a client masks its frames (RFC 6455 §5.3).
const MASK_BYTES: u64 = 4;

/// A message between client and relay, as the recorder saw it pass.
#[derive(Debug, Clone)]
pub struct Passed {
    /// Who sent it.
    pub from: Side,
    /// Bytes of its payload at the client's socket, compressed.
    pub payload_bytes: usize,
    /// The format of `payload`, which need not be that of the client.
    pub format: Format,
    /// What it says.
    pub payload: Vec<u8>,
}

/// Writes a recording, message by message.
pub struct Scribe<W: Write> {
    writer: Writer<W>,
    /// `None` where messages are written as they are.
    pseudonyms: Option<Pseudonyms>,
    source: Ratio,
    written: Ratio,
    /// Bytes of texts so far.
    text_bytes: u64,
    lost: u64,
}

impl<W: Write> Scribe<W> {
    /// Begins a recording; `by` names the program and its version.
    ///
    /// # Errors
    /// Those of the output.
    pub fn new(output: W, redaction: Redaction, by: &str) -> io::Result<Scribe<W>> {
        let header = Header { version: VERSION, redaction, by: by.to_owned() };
        Ok(Scribe {
            writer: Writer::new(output, &header)?,
            pseudonyms: (redaction == Redaction::Pseudonyms).then(Pseudonyms::new),
            source: Ratio::new()?,
            written: Ratio::new()?,
            text_bytes: 0,
            lost: 0,
        })
    }

    /// Writes a line that is about no message.
    ///
    /// # Errors
    /// Those of the output. The recording is over then.
    pub fn write(&mut self, entry: Entry) -> io::Result<()> {
        if let What::Lost(lost) = entry.what {
            self.lost += lost;
        }
        self.writer.write(entry)
    }

    /// Writes a message.
    ///
    /// # Errors
    /// As of [`Scribe::write`].
    pub fn message(&mut self, conn: u64, t_ns: u64, passed: &Passed) -> io::Result<()> {
        let body = match read(passed) {
            Ok(message) => self.body(message, passed)?,
            Err(kind) => {
                Body::Withheld { text_bytes: passed.payload.len() as u64, kind: kind.map(u32::from) }
            }
        };
        let message = Message { from: passed.from, wire_bytes: wire_bytes(passed), body };
        self.writer.write(Entry { conn, t_ns, what: What::Message(message) })
    }

    /// Makes what was written readable, whatever happens to the rest; see [`Writer::flush`].
    ///
    /// # Errors
    /// As of [`Scribe::write`].
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Writes the last line, which is returned.
    ///
    /// # Errors
    /// As of [`Scribe::write`].
    pub fn finish(mut self) -> io::Result<End> {
        let end =
            End { lost: self.lost, ratio_source: self.source.ratio()?, ratio_written: self.written.ratio()? };
        self.writer.write(Entry { conn: 0, t_ns: 0, what: What::End(end) })?;
        self.writer.finish()?;
        Ok(end)
    }

    fn body<'m>(&'m mut self, message: Either<'m>, passed: &Passed) -> io::Result<Body> {
        let source = match std::str::from_utf8(&passed.payload) {
            Ok(text) if passed.format == Format::JSON => Some(Cow::Borrowed(text)),
            _ => json(&message).map(Cow::Owned),
        };
        let Some(source) = source else {
            return Ok(Body::Withheld { text_bytes: passed.payload.len() as u64, kind: None });
        };
        let is_counted = (self.text_bytes >> 20).is_multiple_of(RATIO_OF);
        self.text_bytes += source.len() as u64;
        if is_counted {
            self.source.add(&source)?;
        }
        let written = match &mut self.pseudonyms {
            None => Some(source.to_string()),
            Some(pseudonyms) => json(&match message {
                Either::Client(message) => Either::Client(pseudonyms.client(message)),
                Either::Relay(message) => Either::Relay(pseudonyms.relay(message)),
            }),
        };
        match written {
            Some(text) => {
                if is_counted {
                    self.written.add(&text)?;
                }
                Ok(Body::Text(text))
            }
            // JSON cannot hold it: a filter with a field that is not known.
            None => Ok(Body::Withheld { text_bytes: source.len() as u64, kind: None }),
        }
    }
}

/// A message of either side.
enum Either<'m> {
    Client(ClientMessage<'m>),
    Relay(RelayMessage<'m>),
}

/// The message; of one that is not understood or not to be written the kind, where there is one.
fn read(passed: &Passed) -> Result<Either<'_>, Option<u16>> {
    let codec = codec(passed.format);
    if passed.from == Side::Client {
        match codec.decode_client_within(&passed.payload, &Limits::MOST) {
            Err(_) => Err(None),
            Ok(ClientMessage::Auth(event)) => Err(Some(event.kind)),
            Ok(ClientMessage::Event(event)) if PRIVATE.contains(&event.kind) => Err(Some(event.kind)),
            Ok(message) => Ok(Either::Client(message)),
        }
    } else {
        match codec.decode_relay(&passed.payload) {
            Err(_) | Ok(RelayMessage::Auth { .. }) => Err(None),
            Ok(message) => {
                let events = match &message {
                    RelayMessage::Event { event, .. } => std::slice::from_ref(&**event),
                    RelayMessage::Events { events, .. } => events,
                    _ => &[],
                };
                match events.iter().map(|event| event.kind).find(|kind| PRIVATE.contains(kind)) {
                    Some(kind) => Err(Some(kind)),
                    None => Ok(Either::Relay(message)),
                }
            }
        }
    }
}

fn codec(format: Format) -> &'static dyn Codec {
    let spec = format.spec();
    spec.tuned.unwrap_or(spec.library)
}

/// The message as text; `None` if JSON cannot hold it.
fn json(message: &Either<'_>) -> Option<String> {
    let mut bytes = Vec::new();
    match message {
        Either::Client(message) => codec(Format::JSON).encode_client(message, &mut bytes),
        Either::Relay(message) => codec(Format::JSON).encode_relay(message, &mut bytes),
    }
    .ok()?;
    String::from_utf8(bytes).ok()
}

/// Bytes of a message in one frame at the client's socket (RFC 6455 §5.2). Clients mask theirs.
fn wire_bytes(passed: &Passed) -> u64 {
    let length_bytes = match passed.payload_bytes {
        0..126 => 2,
        126..65_536 => 4,
        _ => 10,
    };
    let mask_bytes = if passed.from == Side::Client { MASK_BYTES } else { 0 };
    passed.payload_bytes as u64 + length_bytes + mask_bytes
}

/// How many times smaller zstd makes texts, one behind the other.
struct Ratio {
    encoder: zstd::Encoder<'static, Counted>,
    bytes: u64,
}

/// Counts what is written.
#[derive(Default)]
struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Ratio {
    fn new() -> io::Result<Ratio> {
        Ok(Ratio { encoder: zstd::Encoder::new(Counted::default(), LEVEL)?, bytes: 0 })
    }

    fn add(&mut self, text: &str) -> io::Result<()> {
        self.bytes += text.len() as u64;
        self.encoder.write_all(text.as_bytes())
    }

    /// 1 for no text at all.
    fn ratio(self) -> io::Result<f64> {
        let compressed_bytes = self.encoder.finish()?.0;
        Ok(if self.bytes == 0 { 1.0 } else { self.bytes as f64 / compressed_bytes as f64 })
    }
}
