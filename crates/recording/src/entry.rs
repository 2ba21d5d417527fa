//! The lines of a recording.

use serde::{Deserialize, Serialize};

/// The version of the format, which the first line states.
pub const VERSION: u32 = 1;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the format.
    #[serde(rename = "recording")]
    pub version: u32,
    /// What was done to hide people.
    pub redaction: Redaction,
    /// The program that wrote the file, with its version.
    pub by: String,
}

/// What was done to hide people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Redaction {
    /// Keys, ids, texts and names are replaced.
    Pseudonyms,
    /// Nothing: messages are as they were.
    None,
}

/// A line after the first.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The connection, which counts from 0; 0 too where the line is about none.
    pub conn: u64,
    /// Nanoseconds since the recording began; 0 at the end.
    pub t_ns: u64,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A client has connected. The tokens are what each leg agreed on; `None` is JSON alone.
    Open {
        /// Between client and recorder.
        client: Option<String>,
        /// Between recorder and relay.
        relay: Option<String>,
    },
    /// A message passed.
    Message(Message),
    /// A connection has ended.
    Close {
        /// The code of the Close frame, if there was one.
        code: Option<u16>,
        /// Who ended it.
        by: Side,
    },
    /// So many lines before this one were lost, because the disk was slower than the traffic.
    Lost(u64),
    /// The recording has ended as it should.
    End(End),
}

/// A message of a client or of the relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who sent it: the client or the relay.
    pub from: Side,
    /// Bytes of the message at the client's socket, with its frame.
    pub wire_bytes: u64,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// The message in JSON (NIP-01), whatever the client's format.
    Text(String),
    /// A message that is never written: its text is private or not understood.
    Withheld {
        /// Its bytes before compression.
        text_bytes: u64,
        /// The kind of its event, where it is known.
        kind: Option<u32>,
    },
}

/// A party of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The client.
    Client,
    /// The relay.
    Relay,
    /// The gateway between them; it sends no message of its own.
    Gateway,
}

/// The last line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Lines that were lost in the whole recording.
    pub lost: u64,
    /// How many times smaller zstd makes the texts as they were.
    pub ratio_source: f64,
    /// How many times smaller zstd makes the texts as they were written.
    pub ratio_written: f64,
}

/// A line of the file. Its fields determine its kind.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    conn: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    t_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<Open>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Side>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wire_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    close: Option<Close>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<End>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Open {
    client: Option<String>,
    relay: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Close {
    code: Option<u16>,
    by: Side,
}

impl From<Entry> for Line {
    fn from(entry: Entry) -> Line {
        let (conn, t_ns) = (Some(entry.conn), Some(entry.t_ns));
        match entry.what {
            What::Open { client, relay } => {
                Line { conn, t_ns, open: Some(Open { client, relay }), ..Line::default() }
            }
            What::Message(Message { from, wire_bytes, body }) => {
                let line =
                    Line { conn, t_ns, from: Some(from), wire_bytes: Some(wire_bytes), ..Line::default() };
                match body {
                    Body::Text(text) => Line { text: Some(text), ..line },
                    Body::Withheld { text_bytes, kind } => {
                        Line { text_bytes: Some(text_bytes), kind, ..line }
                    }
                }
            }
            What::Close { code, by } => {
                Line { conn, t_ns, close: Some(Close { code, by }), ..Line::default() }
            }
            What::Lost(lost) => Line { t_ns, lost: Some(lost), ..Line::default() },
            What::End(end) => Line { end: Some(end), ..Line::default() },
        }
    }
}

impl Line {
    /// The line's entry, or the field that is missing.
    pub(crate) fn entry(self) -> Result<Entry, &'static str> {
        let what = match self {
            Line { end: Some(end), .. } => return Ok(Entry { conn: 0, t_ns: 0, what: What::End(end) }),
            Line { lost: Some(lost), .. } => What::Lost(lost),
            Line { open: Some(Open { client, relay }), .. } => What::Open { client, relay },
            Line { close: Some(Close { code, by }), .. } => What::Close { code, by },
            Line { from: Some(Side::Gateway), .. } => return Err("a message is from client or relay"),
            Line { from: Some(from), wire_bytes: Some(wire_bytes), text, text_bytes, kind, .. } => {
                let body = match (text, text_bytes) {
                    (Some(text), None) => Body::Text(text),
                    (None, Some(text_bytes)) => Body::Withheld { text_bytes, kind },
                    _ => return Err("a message has either text or text_bytes"),
                };
                What::Message(Message { from, wire_bytes, body })
            }
            _ => return Err("it is not an open, message, close, lost or end"),
        };
        let is_of_one = !matches!(what, What::Lost(_));
        match (self.conn, self.t_ns) {
            (None, _) if is_of_one => Err("it has no conn"),
            (_, None) => Err("it has no t_ns"),
            (conn, Some(t_ns)) => Ok(Entry { conn: conn.unwrap_or(0), t_ns, what }),
        }
    }
}
