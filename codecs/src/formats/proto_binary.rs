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

use super::{
    generated::nostr_binary as pb,
    protobuf::{Dialect, Key, TagValue, conversions},
};
use crate::{DecodeError, Event, Tag};

#[derive(Debug)]
pub(super) struct ProtoBinary;

impl Dialect for ProtoBinary {
    const NAME: &'static str = "proto-binary";
    const SPELLED: bool = false;
    const COMPACT: bool = false;
    conversions!();
}
