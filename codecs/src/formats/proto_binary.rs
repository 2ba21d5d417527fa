//! Protobuf with ids, keys and signatures as bytes, through prost; see schema/nostr_binary.proto.
//!
//! ```text
//! event    0a20 id  1220 pubkey  18 vi(created_at)  20 vi(kind)  (2a len (0a len value)*)*  32 len content
//!          3a40 sig                         zero and empty are absent
//! ```
//!
//! The bytes before each part are its field number and wire type; `vi` and `len` are varints, as
//! protobuf has them. Tag values stay text, as in binostr's first dialect. Its second dialect
//! writes field 2 of a tag. That is rejected here, because skipping it would read as empty tags.
//! prost wants an owned struct to encode from: three byte vectors and a copy of every tag value. On
//! the way back text is moved. A strict walk goes before prost's decoder (`protobuf/strict.rs`).

use std::borrow::Cow;

use prost::Message;

use super::{
    generated::nostr_binary as pb,
    protobuf::{self, protobuf_codec, strict},
};
use crate::{
    ClientMessage, Codec, DecodeError, EncodeError, EoseHints, Event, EventCodec, Filter, Limits,
    RelayMessage, Tag, TagFilter, envelope::check_filters,
};

#[derive(Debug)]
pub(super) struct ProtoBinary;

impl protobuf::Dialect for ProtoBinary {
    const LIBRARY: &'static dyn Codec = &ProtoBinary;
    const SPELLED: bool = false;
}

protobuf_codec!(ProtoBinary, "proto-binary", Text);

fn to_key(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

fn from_key<const N: usize>(bytes: Vec<u8>) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

fn to_value(text: &str) -> String {
    text.to_owned()
}

fn from_value(text: String) -> String {
    text
}
