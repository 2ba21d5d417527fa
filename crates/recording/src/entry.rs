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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Line")]
pub struct Entry {
    /// The connection, which counts from 0; 0 too where the line is about none.
    pub conn: u64,
    /// Nanoseconds since the recording began; 0 at the end.
    pub t_ns: u64,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// An [`Entry`] as it is read.
#[derive(Deserialize)]
struct Line {
    conn: Option<u64>,
    t_ns: Option<u64>,
    #[serde(flatten)]
    what: What,
}

impl TryFrom<Line> for Entry {
    type Error = &'static str;

    fn try_from(Line { conn, t_ns, what }: Line) -> Result<Entry, &'static str> {
        let is_of_one = !matches!(what, What::Lost(_) | What::End(_));
        match (conn, t_ns) {
            _ if matches!(what, What::Message(Message { from: Side::Gateway, .. })) => {
                Err("a message is from client or relay")
            }
            (None, _) if is_of_one => Err("it has no conn"),
            (_, None) if is_of_one => Err("it has no t_ns"),
            _ => Ok(Entry { conn: conn.unwrap_or(0), t_ns: t_ns.unwrap_or(0), what }),
        }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// A client has connected. The tokens are what each leg agreed on; `None` is JSON alone.
    Open {
        /// Between client and recorder.
        client: Option<String>,
        /// Between recorder and relay.
        relay: Option<String>,
    },
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
    /// A message passed.
    #[serde(untagged)]
    Message(Message),
}

/// A message of a client or of the relay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who sent it: the client or the relay.
    pub from: Side,
    /// Bytes of the message at the client's socket, with its frame.
    pub wire_bytes: u64,
    /// What it says.
    #[serde(flatten)]
    pub body: Body,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Body {
    /// The message in JSON (NIP-01), whatever the client's format.
    Text(String),
    /// A message that is never written: its text is private or not understood.
    #[serde(untagged)]
    Withheld {
        /// Its bytes before compression.
        text_bytes: u64,
        /// The kind of its event, where it is known.
        #[serde(skip_serializing_if = "Option::is_none")]
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
