//! Protobuf as proto-binary with hex tag values as bytes, through prost; see
//! schema/nostr_compact.proto.
//!
//! ```text
//! event    as proto-binary, but a tag is 2a len value*
//! value    12 len (0a len text)  or  12 len (12 len bytes)
//! ```
//!
//! This is what binostr's second dialect writes (`values_v2`). A tag value that is lowercase hex,
//! even and at least 8 digits long is bytes, and only so. This rule is most of cbor-packed's gain
//! over proto-binary. Each value costs a message of its own, two bytes more than text in
//! proto-binary. Tag conditions of a filter are written alike.
//!
//! prost and the strict walk cost what they cost in proto-binary; hex is looked at twice (rule,
//! conversion).

use std::borrow::Cow;

use super::{
    generated::nostr_compact::{self as pb, tag_value::Value},
    protobuf::{Dialect, Key, TagValue, conversions, strict},
};
use crate::{DecodeError, Event, Tag, hex};

#[derive(Debug)]
pub(super) struct ProtoCompact;

impl Dialect for ProtoCompact {
    const NAME: &'static str = "proto-compact";
    const SPELLED: bool = false;
    const COMPACT: bool = true;
    conversions!();
}

impl TagValue for pb::TagValue {
    fn from_text(text: &str) -> Self {
        let is_hex = hex::is_compactable(text, strict::MIN_HEX_CHARS);
        let hex = is_hex.then(|| hex::decode(text.as_bytes())).flatten();
        let value = hex.map_or_else(|| Value::Text(text.to_owned()), Value::Hex);
        pb::TagValue { value: Some(value) }
    }

    fn into_text(self) -> String {
        match self.value.expect("the strict walk found one member in each value") {
            Value::Text(text) => text,
            Value::Hex(bytes) => hex::encode(&bytes),
        }
    }
}
