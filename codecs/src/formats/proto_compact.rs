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

use prost::Message;

use super::{
    generated::nostr_compact as pb,
    protobuf::{self, protobuf_codec, strict},
};
use crate::{
    ClientMessage, Codec, DecodeError, EncodeError, EoseHints, Event, EventCodec, Filter, Limits,
    RelayMessage, Tag, TagFilter, envelope::check_filters, hex,
};

#[derive(Debug)]
pub(super) struct ProtoCompact;

protobuf_codec!(ProtoCompact, "proto-compact", TextOrHex);

fn to_key(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

fn from_key<const N: usize>(bytes: Vec<u8>) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

fn to_value(text: &str) -> pb::TagValue {
    use pb::tag_value::Value;
    let value = if hex::is_compactable(text, strict::MIN_HEX_CHARS) {
        hex::decode(text.as_bytes()).map(Value::Hex)
    } else {
        None
    };
    pb::TagValue { value: Some(value.unwrap_or_else(|| Value::Text(text.to_owned()))) }
}

fn from_value(value: pb::TagValue) -> String {
    use pb::tag_value::Value;
    match value.value.expect("the strict walk found one member in each value") {
        Value::Text(text) => text,
        Value::Hex(bytes) => hex::encode(&bytes),
    }
}
