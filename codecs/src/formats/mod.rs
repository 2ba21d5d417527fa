//! The registry: every wire format of this project, in the order of every table.

mod batch;
mod capacity;
mod capnp;
mod capnp_packed;
mod cbor;
mod cbor_intkey;
mod cbor_packed;
mod cbor_schemaless;
mod dannypack;
mod flatbuffers;
mod generated;
mod go_nostr;
mod json;
mod msgpack;
mod notepack;
mod nson;
mod proto_binary;
mod proto_compact;
mod proto_string;
mod protobuf;
mod tlv;
mod tuned;

use std::{fmt, str::FromStr};

pub use self::batch::{Batch, BatchLayout};
pub use self::capacity::{Capacity, OneForm};
pub use self::notepack::text as notepack_text;
use self::tuned::Tuned;
use crate::{codec::Codec, envelope::Common, model::Event, name::UnknownName};

/// Defaults of a format of [`Group::Other`].
const OTHER: FormatSpec = FormatSpec {
    name: "",
    group: Group::Other,
    token: "",
    opcode: Opcode::Binary,
    layout: "",
    capacity: Capacity::ANY,
    one_form: OneForm::Nothing,
    batch: None,
    library_crate: None,
    library: &json::Json,
    tuned: None,
};

/// Defaults of a format of [`Group::Core`].
const CORE: FormatSpec = FormatSpec { group: Group::Core, ..OTHER };

/// Every format. One file and one entry here make a format; everything else follows.
pub static FORMATS: &[FormatSpec] = &[
    FormatSpec {
        name: "json",
        token: "nostr.json",
        opcode: Opcode::Text,
        layout: "JSON array, exactly NIP-01",
        batch: Some(BatchLayout::JsonArray),
        library_crate: Some("serde_json"),
        library: &json::Json,
        tuned: Some(&Tuned(json::TunedJson)),
        ..CORE
    },
    FormatSpec {
        name: "cbor-schemaless",
        token: "nostr.cbor-schemaless.v1",
        layout: "CBOR map with JSON's field names, ids as bytes",
        batch: Some(BatchLayout::CborArray),
        library_crate: Some("ciborium"),
        library: &cbor::Cbor::<cbor_schemaless::CborSchemaless>::NEW,
        tuned: Some(&Tuned(cbor::TunedCbor::<cbor_schemaless::CborSchemaless>::NEW)),
        ..CORE
    },
    FormatSpec {
        name: "cbor-packed",
        token: "nostr.cbor-packed.v1",
        layout: "CBOR array, hex tag values as bytes",
        one_form: OneForm::Events,
        batch: Some(BatchLayout::CborArray),
        library_crate: Some("ciborium"),
        library: &cbor::Cbor::<cbor_packed::CborPacked>::NEW,
        tuned: Some(&Tuned(cbor::TunedCbor::<cbor_packed::CborPacked>::NEW)),
        ..CORE
    },
    FormatSpec {
        name: "cbor-intkey",
        token: "nostr.cbor-intkey.v1",
        layout: "CBOR map with integer keys, hex tag values as bytes",
        batch: Some(BatchLayout::CborArray),
        library_crate: Some("ciborium"),
        library: &cbor::Cbor::<cbor_intkey::CborIntkey>::NEW,
        tuned: Some(&Tuned(cbor::TunedCbor::<cbor_intkey::CborIntkey>::NEW)),
        ..CORE
    },
    FormatSpec {
        name: "proto-string",
        token: "nostr.proto-string.v1",
        layout: "protobuf, ids and keys as hex text",
        batch: Some(BatchLayout::ProtobufField),
        library_crate: Some("prost"),
        library: &proto_string::ProtoString,
        tuned: Some(&Tuned(protobuf::TunedProtobuf::<proto_string::ProtoString>::NEW)),
        ..CORE
    },
    FormatSpec {
        name: "proto-binary",
        token: "nostr.proto-binary.v1",
        layout: "protobuf, ids and keys as bytes",
        batch: Some(BatchLayout::ProtobufField),
        library_crate: Some("prost"),
        library: &proto_binary::ProtoBinary,
        tuned: Some(&Tuned(protobuf::TunedProtobuf::<proto_binary::ProtoBinary>::NEW)),
        ..CORE
    },
    FormatSpec {
        name: "capnp",
        token: "nostr.capnp.v1",
        layout: "Cap'n Proto, three blobs, hex compacted",
        capacity: capnp::CAPACITY,
        batch: Some(BatchLayout::CapnpList),
        library_crate: Some("capnp"),
        library: &capnp::Capnp,
        tuned: Some(&Tuned(capnp::TunedCapnp)),
        ..CORE
    },
    FormatSpec {
        name: "dannypack",
        token: "nostr.dannypack.v1",
        layout: "fixed fields first, hex compacted, common envelope",
        capacity: dannypack::CAPACITY,
        one_form: OneForm::EventsAndRelayMessages,
        batch: Some(BatchLayout::CountAndLengths),
        library: &Common { name: "dannypack", event: dannypack::DannyPack },
        tuned: Some(&Common { name: "dannypack", event: dannypack::DannyPack }),
        ..CORE
    },
    FormatSpec {
        name: "notepack",
        token: "nostr.notepack.v1",
        layout: "varints, hex compacted, common envelope",
        capacity: Capacity::ENVELOPE,
        one_form: OneForm::EventsAndRelayMessages,
        batch: Some(BatchLayout::CountAndLengths),
        library_crate: Some("notepack"),
        library: &Common { name: "notepack", event: notepack::Notepack },
        tuned: Some(&Common { name: "notepack", event: notepack::TunedNotepack }),
        ..CORE
    },
    FormatSpec {
        name: "capnp-packed",
        token: "nostr.capnp-packed.v1",
        layout: "Cap'n Proto, zeros squeezed out word by word",
        capacity: capnp::CAPACITY,
        batch: Some(BatchLayout::CapnpPackedList),
        library_crate: Some("capnp"),
        library: &capnp_packed::CapnpPacked,
        ..OTHER
    },
    FormatSpec {
        name: "proto-compact",
        token: "nostr.proto-compact.v1",
        layout: "protobuf, ids and hex tag values as bytes",
        batch: Some(BatchLayout::ProtobufField),
        library_crate: Some("prost"),
        library: &proto_compact::ProtoCompact,
        ..OTHER
    },
    FormatSpec {
        name: "msgpack",
        token: "nostr.msgpack.v1",
        layout: "MessagePack array, hex compacted, common envelope",
        capacity: Capacity::ENVELOPE,
        one_form: OneForm::EventsAndRelayMessages,
        library_crate: Some("rmp"),
        library: &Common { name: "msgpack", event: msgpack::MsgPack },
        ..OTHER
    },
    FormatSpec {
        name: "flatbuffers",
        token: "nostr.flatbuffers.v1",
        layout: "FlatBuffers tables, hex compacted, common envelope",
        capacity: Capacity::ENVELOPE,
        library_crate: Some("flatbuffers"),
        library: &Common { name: "flatbuffers", event: flatbuffers::FlatBuffers },
        ..OTHER
    },
    FormatSpec {
        name: "nson",
        token: "nostr.nson.v1",
        opcode: Opcode::Text,
        layout: "JSON that says where its parts end",
        library: &nson::Nson,
        ..OTHER
    },
    FormatSpec {
        name: "go-nostr-binary",
        token: "nostr.go-nostr-binary.v1",
        layout: "big-endian fields, 2106 at the latest, common envelope",
        capacity: go_nostr::GO_NOSTR_BINARY_CAPACITY,
        one_form: OneForm::EventsAndRelayMessages,
        library: &Common { name: "go-nostr-binary", event: go_nostr::GO_NOSTR_BINARY },
        ..OTHER
    },
    FormatSpec {
        name: "leaner",
        token: "nostr.leaner.v1",
        layout: "go-nostr-binary with up to 255 tags, common envelope",
        capacity: go_nostr::LEANER_CAPACITY,
        one_form: OneForm::EventsAndRelayMessages,
        library: &Common { name: "leaner", event: go_nostr::LEANER },
        ..OTHER
    },
    FormatSpec {
        name: "tlv",
        token: "nostr.tlv.v1",
        layout: "type, length, value; values up to 255 bytes, common envelope",
        capacity: tlv::CAPACITY,
        one_form: OneForm::EventsAndRelayMessages,
        library: &Common { name: "tlv", event: tlv::Tlv },
        ..OTHER
    },
];

/// An entry of [`FORMATS`].
#[derive(Debug)]
pub struct FormatSpec {
    /// The flag, the file name, the table row.
    pub name: &'static str,
    /// Which question it answers.
    pub group: Group,
    /// The WebSocket subprotocol token without a compression suffix.
    pub token: &'static str,
    /// The WebSocket frame type of uncompressed messages.
    pub opcode: Opcode,
    /// The layout in one line, for `--help`.
    pub layout: &'static str,
    /// Bounds on an event.
    pub capacity: Capacity,
    /// The parts of a message that have one form only.
    pub one_form: OneForm,
    /// The layout of a batch, if one is defined; see [`Format::batch`].
    pub batch: Option<BatchLayout>,
    /// The crate that reads and writes events in [`Implementation::Library`]; `None` if the code is
    /// this repository's.
    pub library_crate: Option<&'static str>,
    /// [`Implementation::Library`].
    pub library: &'static dyn Codec,
    /// [`Implementation::Tuned`], if it exists.
    pub tuned: Option<&'static dyn Codec>,
}

/// Why a format is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Compared by default. Each holds nearly every event.
    Core,
    /// Compared by name. Some hold much less, see [`Capacity`].
    Other,
}

/// A WebSocket data frame's type (RFC 6455 §5.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    /// UTF-8 text.
    Text,
    /// Bytes.
    Binary,
}

/// A wire format: its place in [`FORMATS`].
///
/// ```
/// use codecs::{Format, Implementation};
///
/// let format: Format = "nson".parse()?;
/// assert_eq!(format.spec().token, "nostr.nson.v1");
/// assert!(format.codec(Implementation::Tuned).is_err()); // it has the library's only
///
/// let unknown = "xml".parse::<Format>().unwrap_err();
/// assert!(unknown.to_string().starts_with(r#"unknown format "xml"; known: json "#));
/// # Ok::<(), codecs::UnknownName>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Format(usize);

impl Format {
    /// Plain NIP-01, which every peer speaks.
    pub const JSON: Format = Format(0);

    /// Every format in the order of every table.
    pub fn all() -> impl ExactSizeIterator<Item = Format> {
        (0..FORMATS.len()).map(Format)
    }

    /// The formats of [`Group::Core`].
    pub fn core() -> impl Iterator<Item = Format> {
        Format::all().filter(|format| format.spec().group == Group::Core)
    }

    /// The entry itself.
    pub fn spec(self) -> &'static FormatSpec {
        &FORMATS[self.0]
    }

    /// The flag, the file name, the table row.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// The position in [`FORMATS`], for tables with a slot for each format.
    pub fn index(self) -> usize {
        self.0
    }

    /// The event's bytes in `message`, a client's EVENT that a codec of this format read, if they
    /// equal [`EventCodec::encode_event`]'s. A relay may then pass them on. `None` if they differ,
    /// and in formats where the comparison costs as much as encoding.
    ///
    /// ```
    /// use codecs::{Format, Implementation};
    ///
    /// let (format, codec) = (Format::JSON, Format::JSON.codec(Implementation::Tuned)?);
    /// let key = "07".repeat(32);
    /// let event = format!(
    ///     r#"{{"id":"{key}","pubkey":"{key}","created_at":1,"kind":1,"tags":[],"content":"","sig":"{key}{key}"}}"#
    /// );
    /// let read = codec.decode_event(event.as_bytes())?;
    /// let message = format!(r#"["EVENT",{event}]"#);
    /// let found = format.canonical_event(codec, message.as_bytes(), &read);
    /// assert_eq!(found, Some(event.as_bytes()));
    ///
    /// let spaced = message.replace(":1,", ": 1,");
    /// assert_eq!(format.canonical_event(codec, spaced.as_bytes(), &read), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`EventCodec::encode_event`]: crate::EventCodec::encode_event
    pub fn canonical_event<'a>(
        self,
        codec: &dyn Codec,
        message: &'a [u8],
        event: &Event<'_>,
    ) -> Option<&'a [u8]> {
        match self.spec().one_form {
            OneForm::Events | OneForm::EventsAndRelayMessages => codec.event_in(message),
            OneForm::Nothing if self == Format::JSON => {
                codec.event_in(message).filter(|text| json::is_canonical(text, event))
            }
            OneForm::Nothing => None,
        }
    }

    /// Whose code an implementation is: a crate, or this repository.
    ///
    /// ```
    /// use codecs::{Format, Implementation};
    ///
    /// assert_eq!(Format::JSON.code(Implementation::Library), "serde_json");
    /// assert_eq!(Format::JSON.code(Implementation::Tuned), "this repository");
    /// let dannypack: Format = "dannypack".parse()?;
    /// assert_eq!(dannypack.code(Implementation::Library), "this repository");
    /// # Ok::<(), codecs::UnknownName>(())
    /// ```
    pub fn code(self, implementation: Implementation) -> &'static str {
        let library = match implementation {
            Implementation::Library => self.spec().library_crate,
            Implementation::Tuned => None,
        };
        library.unwrap_or("this repository")
    }

    /// The codec of this format by that implementation.
    ///
    /// # Errors
    /// [`UnknownName`] when the format has no such implementation; the message lists those it has.
    pub fn codec(self, implementation: Implementation) -> Result<&'static dyn Codec, UnknownName> {
        let spec = self.spec();
        let codec = match implementation {
            Implementation::Library => Some(spec.library),
            Implementation::Tuned => spec.tuned,
        };
        codec.ok_or_else(|| {
            let what = format!("implementation of {self}");
            UnknownName::new(&what, implementation.name(), [Implementation::Library.name()])
        })
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Format::all()
            .find(|format| format.name() == name)
            .ok_or_else(|| UnknownName::new("format", name, Format::all().map(Format::name)))
    }
}

/// The author of the code that reads and writes the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Implementation {
    /// The ecosystem's library: what an adopter gets today. Formats without one have code of this
    /// repository, see [`FormatSpec::library_crate`].
    Library,
    /// Code written here for this format: what the format can do.
    Tuned,
}

crate::names! { Implementation, "implementation": Library = "library", Tuned = "tuned" }
