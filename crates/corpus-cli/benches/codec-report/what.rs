//! The nouns of the report: what is done with the events of a column, and how often.

/// The subscription of every message.
pub(crate) const SUBSCRIPTION: &str = "feed";

/// The work of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// Copying the encoded bytes into a reused buffer.
    Memcpy,
    /// Writing the event into a reused buffer.
    Encode,
    /// Reading an event that borrows what it can.
    Decode,
    /// Reading an event whose ids and keys in tags stay bytes, too.
    KeepBytes,
    /// Writing an event whose content is full of quotes. JSON only.
    EncodeEscaped,
    /// Reading it.
    DecodeEscaped,
    /// Writing the same without any escape. JSON only.
    EncodeUnescaped,
    /// Reading it.
    DecodeUnescaped,
    /// Id, author, time and kind of the next frame of the stream.
    PeekCold,
    /// The same of a frame that was just peeked at.
    PeekHot,
    /// Author, time and kind, the other fields passed over. JSON only.
    ThreeFields,
    /// Writing the relay's EVENT. JSON only.
    EncodeMessage,
    /// Reading it. JSON only.
    DecodeMessage,
    /// Writing EVENTS of `TOGETHER` events.
    EncodeEvents,
    /// Reading it.
    DecodeEvents,
    /// Writing a batch of as many, where the format has a layout.
    EncodeBatch,
    /// Reading it.
    DecodeBatch,
}

impl What {
    pub(crate) fn name(self) -> &'static str {
        match self {
            What::Memcpy => "memcpy",
            What::Encode => "encode",
            What::Decode => "decode",
            What::KeepBytes => "keeps bytes",
            What::EncodeEscaped => "encode escaped",
            What::DecodeEscaped => "decode escaped",
            What::EncodeUnescaped => "encode unescaped",
            What::DecodeUnescaped => "decode unescaped",
            What::PeekCold => "peek cold",
            What::PeekHot => "peek hot",
            What::ThreeFields => "three fields",
            What::EncodeMessage => "encode EVENT",
            What::DecodeMessage => "decode EVENT",
            What::EncodeEvents => "encode EVENTS",
            What::DecodeEvents => "decode EVENTS",
            What::EncodeBatch => "encode batch",
            What::DecodeBatch => "decode batch",
        }
    }
}

/// Does it with the events at these places and says how many times that was, in events.
pub(crate) type Pass<'e> = Box<dyn Fn(&mut Vec<u8>, &[usize]) -> usize + 'e>;
