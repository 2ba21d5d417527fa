//! Messages to JSON, straight from the model.

use serde::{
    Serialize, Serializer,
    ser::{SerializeMap, SerializeSeq, SerializeStruct},
};

use crate::{Event, Filter, TagFilter, hex};

pub(super) struct EventJson<'e>(pub(super) &'e Event<'e>);

impl Serialize for EventJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let event = self.0;
        let (mut key, mut sig) = ([0; 64], [0; 128]);
        let mut object = serializer.serialize_struct("Event", 7)?;
        object.serialize_field("id", hex::encode_array(&event.id, &mut key))?;
        object.serialize_field("pubkey", hex::encode_array(&event.pubkey, &mut key))?;
        object.serialize_field("created_at", &event.created_at)?;
        object.serialize_field("kind", &event.kind)?;
        object.serialize_field("tags", &event.tags)?;
        object.serialize_field("content", &event.content)?;
        object.serialize_field("sig", hex::encode_array(&event.sig, &mut sig))?;
        object.end()
    }
}

pub(super) struct Request<'m>(pub(super) &'static str, pub(super) &'m str, pub(super) &'m [Filter]);

impl Serialize for Request<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Filter::check_number(self.2).map_err(serde::ser::Error::custom)?;
        let mut array = serializer.serialize_seq(Some(2 + self.2.len()))?;
        array.serialize_element(self.0)?;
        array.serialize_element(self.1)?;
        for filter in self.2 {
            array.serialize_element(&FilterJson(filter))?;
        }
        array.end()
    }
}

pub(super) struct FilterJson<'m>(pub(super) &'m Filter);

impl Serialize for FilterJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let filter = self.0;
        filter.check_writable().map_err(serde::ser::Error::custom)?;
        let mut object = serializer.serialize_map(None)?;
        if let Some(ids) = &filter.ids {
            object.serialize_entry("ids", &HexList(ids))?;
        }
        if let Some(authors) = &filter.authors {
            object.serialize_entry("authors", &HexList(authors))?;
        }
        if let Some(kinds) = &filter.kinds {
            object.serialize_entry("kinds", kinds)?;
        }
        for TagFilter { letter, values } in &filter.tags {
            object.serialize_entry(&format!("#{letter}"), values)?;
        }
        if let Some(since) = filter.since {
            object.serialize_entry("since", &since)?;
        }
        if let Some(until) = filter.until {
            object.serialize_entry("until", &until)?;
        }
        if let Some(limit) = filter.limit {
            object.serialize_entry("limit", &limit)?;
        }
        if let Some(search) = &filter.search {
            object.serialize_entry("search", search)?;
        }
        object.end()
    }
}

struct HexList<'m>(&'m [[u8; 32]]);

impl Serialize for HexList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut array = serializer.serialize_seq(Some(self.0.len()))?;
        let mut buffer = [0; 64];
        for bytes in self.0 {
            array.serialize_element(hex::encode_array(bytes, &mut buffer))?;
        }
        array.end()
    }
}

pub(super) struct CountJson<'m> {
    pub(super) count: u64,
    pub(super) approximate: bool,
    pub(super) hll: Option<&'m [u8; 256]>,
}

impl Serialize for CountJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("count", &self.count)?;
        if self.approximate {
            object.serialize_entry("approximate", &true)?;
        }
        if let Some(registers) = self.hll {
            let mut buffer = [0; 512];
            object.serialize_entry("hll", hex::encode_array(registers, &mut buffer))?;
        }
        object.end()
    }
}
