//! Messages as JSON, bounded in size.

use serde::{Serialize, de::DeserializeOwned};

/// Longest message except records.
pub(crate) const MESSAGE_BYTES: usize = 256 << 10;

/// Reads a message, unless it is too long or does not follow the type.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    (bytes.len() <= MESSAGE_BYTES).then(|| serde_json::from_slice(bytes).ok())?
}

/// Writes a message.
pub(crate) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    serde_json::to_vec(message).expect("messages are structs of strings and numbers")
}
