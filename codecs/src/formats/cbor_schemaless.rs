//! CBOR map with JSON's field names:
//!
//! ```text
//! a7 "id":bstr32 "pubkey":bstr32 "created_at":int "kind":uint "tags":[[tstr…]…] "content":tstr "sig":bstr64
//! ```
//!
//! For readers without a schema, so tag values stay the text that they are in JSON. Fields come in
//! this order; unknown ones may follow. Messages are JSON's arrays, verbs and filter fields as
//! CBOR; see the `cbor` module.

use serde::{Deserializer, Serializer};

use super::cbor::{self, Dialect};
use crate::Event;

#[derive(Debug)]
pub(super) struct CborSchemaless;

impl Dialect for CborSchemaless {
    const SPELLED: bool = true;
    const COMPACT: bool = false;
    const EVENT_HEAD: u8 = 0xa7;
    const KEYS: [&'static [u8]; 7] =
        [b"\x62id", b"\x66pubkey", b"\x6acreated_at", b"\x64kind", b"\x64tags", b"\x67content", b"\x63sig"];

    fn write_event<S: Serializer>(event: &Event<'_>, serializer: S) -> Result<S::Ok, S::Error> {
        cbor::write_map::<Self, S>(event, serializer)
    }

    fn read_event<'de, R: Deserializer<'de>>(deserializer: R) -> Result<Event<'static>, R::Error> {
        cbor::read_map::<Self, R>(deserializer)
    }
}
