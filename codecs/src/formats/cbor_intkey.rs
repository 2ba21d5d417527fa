//! CBOR map with small integers as keys:
//!
//! ```text
//! a7 0:id bstr32  1:pubkey bstr32  2:created_at int  3:kind uint  4:tags [[tstr / bstr…]…]  5:content tstr  6:sig bstr64
//! ```
//!
//! Tag values that are lowercase hex of even length from 8 digits on are byte strings. Keys ascend;
//! keys from 7 on are a later version's and ignored. Messages are numbered arrays; see the `cbor`
//! module.

use serde::{Deserializer, Serializer};

use super::cbor::{self, Dialect};
use crate::Event;

#[derive(Debug)]
pub(super) struct CborIntkey;

impl Dialect for CborIntkey {
    const SPELLED: bool = false;
    const COMPACT: bool = true;
    const EVENT_HEAD: u8 = 0xa7;
    const KEYS: [&'static [u8]; 7] = [&[0], &[1], &[2], &[3], &[4], &[5], &[6]];

    fn write_event<S: Serializer>(event: &Event<'_>, serializer: S) -> Result<S::Ok, S::Error> {
        cbor::write_map::<Self, S>(event, serializer)
    }

    fn read_event<'de, R: Deserializer<'de>>(deserializer: R) -> Result<Event<'static>, R::Error> {
        cbor::read_map::<Self, R>(deserializer)
    }
}
