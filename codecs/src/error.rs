//! Why bytes are not a message, and why a message has no bytes.

use crate::model::OverLimit;

/// Why bytes are not a message of the format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The input ended early.
    #[error("input ended inside {0}")]
    Truncated(&'static str),
    /// Bytes remain after the message.
    #[error("{0} bytes after the end of the message")]
    Trailing(usize),
    /// Text is not UTF-8.
    #[error("{0} is not UTF-8")]
    Utf8(&'static str),
    /// A number or length outside its range.
    #[error("{name} is out of range{}", range(.0), name = .0)]
    OutOfRange(&'static str),
    /// Well-formed, but not in the one form that the strict profile allows.
    #[error("{0} is not in its canonical form")]
    NotCanonical(&'static str),
    /// A field is absent.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A field or key occurs twice.
    #[error("{0} occurs twice")]
    Duplicate(&'static str),
    /// The type, shape or length is wrong.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// A well-formed message with a verb or opcode outside the protocol.
    #[error("unknown message {0}")]
    UnknownMessage(String),
    /// A message that unpacks to more bytes than the reader accepts.
    #[error("message over the limit of {0} bytes after unpacking")]
    Unpacked(usize),
    /// A request over the reader's limits; see
    /// [`Codec::decode_client_within`](crate::Codec::decode_client_within).
    #[error(transparent)]
    OverLimit(#[from] Box<OverLimit>),
    /// The error of the format's library.
    #[error("{0}")]
    Library(String),
}

/// The range of what NIP-01 bounds.
fn range(name: &str) -> &'static str {
    if name == "kind" { ": NIP-01 has 0 to 65535" } else { "" }
}

impl DecodeError {
    /// A library's message, short enough for a NOTICE. serde quotes the unexpected text, which a
    /// peer can make as long as a frame. The expected text and its place come last, so the middle
    /// is left out.
    pub(crate) fn library(reason: &str) -> Self {
        const START_CHARS: usize = 80;
        const END_CHARS: usize = 120;
        let Some((start, _)) = reason.char_indices().nth(START_CHARS) else {
            return DecodeError::Library(reason.to_owned());
        };
        match reason[start..].char_indices().nth_back(END_CHARS - 1) {
            Some((end, _)) if end > 0 => {
                DecodeError::Library(format!("{} … {}", &reason[..start], &reason[start + end..]))
            }
            _ => DecodeError::Library(reason.to_owned()),
        }
    }
}

/// Why a format cannot hold a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A count or length over the layout's maximum.
    #[error("{format} cannot hold {what} of {actual}; its largest is {max}")]
    TooLarge {
        /// The format.
        format: &'static str,
        /// The part that is too large.
        what: &'static str,
        /// Its size.
        actual: usize,
        /// The format's limit.
        max: usize,
    },
    /// A value that the layout has no form for.
    #[error("{format} cannot hold {what}")]
    Unrepresentable {
        /// The format.
        format: &'static str,
        /// The value.
        what: &'static str,
    },
    /// The error of the format's library.
    #[error("{0}")]
    Library(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_messages_stay_short_and_keep_both_ends() {
        for len in [0, 79, 80, 199, 200] {
            let reason = "ä".repeat(len);
            assert_eq!(DecodeError::library(&reason), DecodeError::Library(reason));
        }
        let reason = format!("kind: {:?}, expected a number", "ä".repeat(1 << 16));
        let shortened = DecodeError::library(&reason).to_string();
        assert!(shortened.starts_with("kind: \"ä"), "{shortened}");
        assert!(shortened.ends_with("ä\", expected a number"), "{shortened}");
        assert_eq!(shortened.chars().count(), 80 + 3 + 120);
    }
}
