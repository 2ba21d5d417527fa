//! Protobuf with ids, keys and signatures as lowercase hex text, through prost; see
//! schema/nostr.proto.
//!
//! ```text
//! event    0a40 id  1240 pubkey  18 vi(created_at)  20 vi(kind)  (2a len (0a len value)*)*  32 len content
//!          3a8001 sig                       zero and empty are absent
//! ```
//!
//! prost wants an owned struct to encode from: ids, keys and the signature become hex `String`s and
//! every tag value is copied. On the way back the hex is parsed and text is moved. A strict walk
//! goes before prost's decoder (`protobuf/strict.rs`).

use std::borrow::Cow;

use prost::Message;

use super::{
    generated::nostr as pb,
    protobuf::{self, protobuf_codec, strict},
};
use crate::{
    ClientMessage, Codec, DecodeError, EncodeError, EoseHints, Event, EventCodec, Filter, Limits,
    RelayMessage, Tag, TagFilter, envelope::check_filters, hex,
};

#[derive(Debug)]
pub(super) struct ProtoString;

impl protobuf::Dialect for ProtoString {
    const LIBRARY: &'static dyn Codec = &ProtoString;
    const SPELLED: bool = true;
}

protobuf_codec!(ProtoString, "proto-string", Text);

fn to_key(bytes: &[u8]) -> String {
    hex::encode(bytes)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "proto-binary's twin of this function takes the vector apart"
)]
fn from_key<const N: usize>(text: String) -> Option<[u8; N]> {
    hex::decode_array(text.as_bytes())
}

fn to_value(text: &str) -> String {
    text.to_owned()
}

fn from_value(text: String) -> String {
    text
}
