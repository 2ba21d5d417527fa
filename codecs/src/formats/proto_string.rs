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

use super::{
    generated::nostr as pb,
    protobuf::{Dialect, Key, TagValue, conversions},
};
use crate::{DecodeError, Event, Tag};

#[derive(Debug)]
pub(super) struct ProtoString;

impl Dialect for ProtoString {
    const NAME: &'static str = "proto-string";
    const SPELLED: bool = true;
    const COMPACT: bool = false;
    conversions!();
}
