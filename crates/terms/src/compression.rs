//! The compressions under comparison, with every parameter written out.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use codecs::UnknownName;

use crate::dictionary::Dictionary;

/// How messages of a connection are compressed. Parameters are complete: no library default
/// decides.
///
/// ```
/// use terms::Compression;
///
/// let compression: Compression = "deflate:level=4:min_bytes=100".parse().unwrap();
/// assert_eq!(compression.name(), "deflate");
/// assert_eq!(compression.label(), "deflate:level=4:min_bytes=100");
/// assert!(compression.parameters().starts_with("level=4 window_bits=15 "));
/// assert!("gzip".parse::<Compression>().unwrap_err().to_string().contains("known: none deflate"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Payloads travel as they are.
    None,
    /// The WebSocket extension permessage-deflate (RFC 7692).
    Deflate(DeflateParams),
    /// The zstd layer (docs/transport.md), agreed by a suffix of the subprotocol token.
    Zstd(ZstdParams),
}

/// Parameters of permessage-deflate. `upload_…` is the client's direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeflateParams {
    /// zlib's level of this end, 0 to 9.
    pub level: i32,
    /// Base-2 logarithm of the relay's window, 9 to 15.
    pub window_bits: u8,
    /// That of a client.
    pub upload_window_bits: u8,
    /// Whether the relay's window survives from one message to the next (RFC 7692 §7.1.1).
    pub takeover: bool,
    /// Whether a client's does.
    pub upload_takeover: bool,
    /// The relay sends smaller payloads uncompressed.
    pub min_bytes: usize,
    /// A client sends smaller payloads uncompressed.
    pub upload_min_bytes: usize,
    /// Whether the relay compresses a payload once for many connections; requires that its window
    /// does not survive.
    pub shared: bool,
}

impl DeflateParams {
    /// `deflate` on the command line: zlib's own level, and the meaning of a bare
    /// `permessage-deflate`.
    pub const DEFAULT: DeflateParams = DeflateParams {
        level: 6,
        window_bits: 15,
        upload_window_bits: 15,
        takeover: true,
        upload_takeover: true,
        min_bytes: 0,
        upload_min_bytes: 0,
        shared: false,
    };

    /// `deflate-no-takeover` on the command line: no message refers to an earlier one.
    pub const NO_TAKEOVER: DeflateParams =
        DeflateParams { takeover: false, upload_takeover: false, ..Self::DEFAULT };

    /// `deflate-shared` on the command line: compressed once for all readers, for payloads of at
    /// least 128 bytes.
    pub const SHARED: DeflateParams = DeflateParams {
        takeover: false,
        min_bytes: EVENT_BYTES,
        upload_min_bytes: EVENT_BYTES,
        shared: true,
        ..Self::DEFAULT
    };
}

/// Parameters of the zstd layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZstdParams {
    /// zstd's level of this end, -7 to 22; negative levels are the fast modes.
    pub level: i32,
    /// Base-2 logarithm of this end's window, 10 to 27; for streams up to 17, because the peer
    /// keeps a window for each.
    pub window_bits: u8,
    /// The relay sends smaller payloads uncompressed.
    pub min_bytes: usize,
    /// A client sends smaller payloads uncompressed.
    pub upload_min_bytes: usize,
    /// The data that a message may refer to.
    pub mode: ZstdMode,
}

/// The data that a zstd message may refer to besides itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZstdMode {
    /// Nothing: each is a frame of its own.
    Frames,
    /// All earlier messages of its direction: they are one stream.
    Stream,
    /// Nothing, as `Frames`; but what messages to many connections have in common is a frame of its
    /// own, compressed once, as with a dictionary.
    Shared,
    /// A dictionary that both ends have. `None` is the format's bundled one; after the agreement it
    /// is always `Some`.
    Dictionary(Option<Dictionary>),
}

impl ZstdParams {
    /// `zstd` on the command line: level 1 with its window of 512 KiB, for payloads of at least 256
    /// bytes.
    pub const DEFAULT: ZstdParams = ZstdParams {
        level: 1,
        window_bits: 19,
        min_bytes: 256,
        upload_min_bytes: 256,
        mode: ZstdMode::Frames,
    };

    /// `zstd-stream` on the command line: the largest window of a stream, 128 KiB, for payloads of
    /// any size.
    pub const STREAM: ZstdParams = ZstdParams {
        window_bits: ZSTD_STREAM_MAX_WINDOW_BITS,
        min_bytes: 0,
        upload_min_bytes: 0,
        mode: ZstdMode::Stream,
        ..Self::DEFAULT
    };

    /// `zstd-shared` on the command line: as `zstd`, for payloads of at least 128 bytes.
    pub const SHARED: ZstdParams = ZstdParams {
        min_bytes: EVENT_BYTES,
        upload_min_bytes: EVENT_BYTES,
        mode: ZstdMode::Shared,
        ..Self::DEFAULT
    };

    /// `zstd-dict` on the command line: as `zstd-shared`.
    pub const DICTIONARY: ZstdParams = ZstdParams { mode: ZstdMode::Dictionary(None), ..Self::SHARED };

    /// These parameters with the client's limit as this end's.
    pub fn of_client(self) -> ZstdParams {
        ZstdParams { min_bytes: self.upload_min_bytes, ..self }
    }
}

/// Id, key and signature of an event: no message with an event is smaller. OK, EOSE and their like
/// are, and save a tenth or nothing by a compression of their own (docs/transport.md).
const EVENT_BYTES: usize = 128;

/// Compresses nothing: no payload is this long.
const NEVER_BYTES: usize = usize::MAX;

/// The largest window of a stream, at either end.
pub const ZSTD_STREAM_MAX_WINDOW_BITS: u8 = 17;

/// Why text is no compression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompressionError {
    /// A name that is not known.
    #[error(transparent)]
    Name(#[from] UnknownName),
    /// An unknown parameter.
    #[error("{compression} has no parameter {parameter:?}; known: {known}, as in {compression}:{example}")]
    Parameter {
        /// The compression's name.
        compression: &'static str,
        /// The name that was given.
        parameter: String,
        /// The names that the compression has.
        known: String,
        /// All of them with their default values.
        example: String,
    },
    /// A value out of its range.
    #[error("{parameter}={value}: expected {expected}")]
    Value {
        /// The parameter.
        parameter: &'static str,
        /// The value.
        value: String,
        /// The values that are possible.
        expected: String,
    },
}

impl Compression {
    /// Every name, in the order of every table.
    pub const NAMES: [&'static str; 8] = [
        "none",
        "deflate",
        "deflate-no-takeover",
        "deflate-shared",
        "zstd",
        "zstd-stream",
        "zstd-shared",
        "zstd-dict",
    ];

    /// Each compression at its best setting, for a comparison with the defaults. docs/transport.md
    /// has the rule and the table.
    pub const BEST_KNOWN: [&'static str; 8] = [
        "none",
        "deflate:level=2:window_bits=12",
        "deflate-no-takeover:level=4",
        "deflate-shared:window_bits=12",
        "zstd",
        "zstd-stream",
        "zstd-shared",
        "zstd-dict",
    ];

    /// The compression of that name, with its default parameters.
    ///
    /// # Errors
    /// [`UnknownName`] lists the known names.
    pub fn named(name: &str) -> Result<Compression, UnknownName> {
        match name {
            "none" => Ok(Compression::None),
            "deflate" => Ok(Compression::Deflate(DeflateParams::DEFAULT)),
            "deflate-no-takeover" => Ok(Compression::Deflate(DeflateParams::NO_TAKEOVER)),
            "deflate-shared" => Ok(Compression::Deflate(DeflateParams::SHARED)),
            "zstd" => Ok(Compression::Zstd(ZstdParams::DEFAULT)),
            "zstd-stream" => Ok(Compression::Zstd(ZstdParams::STREAM)),
            "zstd-shared" => Ok(Compression::Zstd(ZstdParams::SHARED)),
            "zstd-dict" => Ok(Compression::Zstd(ZstdParams::DICTIONARY)),
            _ => Err(UnknownName::new("compression", name, Self::NAMES)),
        }
    }

    /// The name on the command line and in results; for deflate, by the takeover of the relay's
    /// direction.
    pub fn name(&self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Deflate(params) if params.takeover => "deflate",
            Compression::Deflate(params) if params.shared => "deflate-shared",
            Compression::Deflate(_) => "deflate-no-takeover",
            Compression::Zstd(params) => match params.mode {
                ZstdMode::Frames => "zstd",
                ZstdMode::Stream => "zstd-stream",
                ZstdMode::Shared => "zstd-shared",
                ZstdMode::Dictionary(_) => "zstd-dict",
            },
        }
    }

    /// The compression with this dictionary, if it uses dictionaries.
    #[must_use]
    pub fn with_dictionary(mut self, dictionary: Dictionary) -> Compression {
        if let Compression::Zstd(ZstdParams { mode: ZstdMode::Dictionary(of), .. }) = &mut self {
            *of = Some(dictionary);
        }
        self
    }

    /// The same with the bundled dictionary of the format, if it uses one; `None` if the format has
    /// none.
    pub fn of_format(mut self, format: &str) -> Option<Compression> {
        if let Compression::Zstd(ZstdParams { mode: ZstdMode::Dictionary(of @ None), .. }) = &mut self {
            *of = Some(Dictionary::bundled(format)?);
        }
        Some(self)
    }

    /// The named dictionary.
    pub fn dictionary(&self) -> Option<Dictionary> {
        match self {
            Compression::Zstd(ZstdParams { mode: ZstdMode::Dictionary(dictionary), .. }) => *dictionary,
            _ => None,
        }
    }

    /// Every parameter, for results: `level=6 window_bits=15 …`; empty for `none`. `upload_…` is
    /// the client's direction.
    pub fn parameters(&self) -> String {
        let mut list: Vec<String> =
            self.list().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        if let Some(dictionary) = self.dictionary() {
            list.push(format!("dictionary={}", dictionary.id()));
            list.push(format!("dictionary_bytes={}", dictionary.bytes().len()));
        }
        list.join(" ")
    }

    /// Name and the parameters that differ from the default ones, as [`FromStr`] reads them: one
    /// text for one meaning. The dictionary is not part of it.
    pub fn label(&self) -> String {
        let default = Compression::named(self.name()).map(|default| default.list()).unwrap_or_default();
        let differing = self.list().into_iter().filter(|parameter| !default.contains(parameter));
        differing.fold(self.name().to_owned(), |text, (name, value)| format!("{text}:{name}={value}"))
    }

    /// Name and every parameter, as [`FromStr`] reads them:
    /// `zstd:level=1:window_bits=19:min_bytes=256`.
    pub fn spelled_out(&self) -> String {
        let list = self.list().into_iter().map(|(name, value)| format!(":{name}={value}"));
        list.fold(self.name().to_owned(), |text, parameter| text + &parameter)
    }

    fn list(&self) -> Vec<(&'static str, String)> {
        let mut copy = *self;
        copy.slots().into_iter().map(|(name, slot)| (name, slot.to_string())).collect()
    }

    /// Every parameter.
    fn slots(&mut self) -> Vec<(&'static str, Slot<'_>)> {
        match self {
            Compression::None => Vec::new(),
            Compression::Deflate(params) => vec![
                ("level", Slot::Level(&mut params.level, 0..=9)),
                ("window_bits", Slot::Window(&mut params.window_bits, 9..=15)),
                ("upload_window_bits", Slot::Window(&mut params.upload_window_bits, 9..=15)),
                ("upload_takeover", Slot::YesNo(&mut params.upload_takeover)),
                ("min_bytes", Slot::Bytes(&mut params.min_bytes)),
                ("upload_min_bytes", Slot::Bytes(&mut params.upload_min_bytes)),
            ],
            Compression::Zstd(params) => {
                let widest = if params.mode == ZstdMode::Stream { ZSTD_STREAM_MAX_WINDOW_BITS } else { 27 };
                vec![
                    ("level", Slot::Level(&mut params.level, -7..=22)),
                    ("window_bits", Slot::Window(&mut params.window_bits, 10..=widest)),
                    ("min_bytes", Slot::Bytes(&mut params.min_bytes)),
                    ("upload_min_bytes", Slot::Bytes(&mut params.upload_min_bytes)),
                ]
            }
        }
    }

    fn set(&mut self, parameter: &str, value: &str) -> Result<(), CompressionError> {
        let mut slots = self.slots().into_iter();
        if let Some((parameter, slot)) = slots.find(|(name, _)| *name == parameter) {
            return slot.set(value).map_err(|expected| CompressionError::Value {
                parameter,
                value: value.to_owned(),
                expected,
            });
        }
        let known: Vec<_> = self.list().into_iter().map(|(name, _)| name).collect();
        Err(CompressionError::Parameter {
            compression: self.name(),
            parameter: parameter.to_owned(),
            known: if known.is_empty() { "none at all".to_owned() } else { known.join(" ") },
            example: self.spelled_out().split_once(':').map_or("", |(_, list)| list).to_owned(),
        })
    }
}

/// Where a parameter's value stands, and what it may be.
enum Slot<'p> {
    Level(&'p mut i32, RangeInclusive<i32>),
    Window(&'p mut u8, RangeInclusive<u8>),
    YesNo(&'p mut bool),
    /// The least payload that is compressed.
    Bytes(&'p mut usize),
}

impl fmt::Display for Slot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slot::Level(level, _) => write!(f, "{level}"),
            Slot::Window(bits, _) => write!(f, "{bits}"),
            Slot::YesNo(yes) => f.write_str(if **yes { "yes" } else { "no" }),
            Slot::Bytes(bytes) if **bytes == NEVER_BYTES => f.write_str("never"),
            Slot::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

impl Slot<'_> {
    /// Reads a value, or says what was expected.
    fn set(self, value: &str) -> Result<(), String> {
        match self {
            Slot::Level(level, range) => *level = number(value, &range)?,
            Slot::Window(bits, range) => *bits = number(value, &range)?,
            Slot::YesNo(yes) => {
                let read = ["yes", "no"].contains(&value).then_some(value == "yes");
                *yes = read.ok_or("yes or no")?;
            }
            Slot::Bytes(bytes) => {
                let read = if value == "never" { Some(NEVER_BYTES) } else { value.parse().ok() };
                *bytes = read.ok_or("a number of bytes, or never")?;
            }
        }
        Ok(())
    }
}

fn number<N: FromStr + PartialOrd + fmt::Display>(
    value: &str,
    range: &RangeInclusive<N>,
) -> Result<N, String> {
    let read = value.parse().ok().filter(|number| range.contains(number));
    read.ok_or_else(|| format!("a number from {} to {}", range.start(), range.end()))
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name, and parameters that differ from the default ones: `deflate`,
/// `deflate:level=4:min_bytes=100`.
impl FromStr for Compression {
    type Err = CompressionError;

    fn from_str(text: &str) -> Result<Self, CompressionError> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let mut compression = Self::named(name)?;
        for parameter in parameters.split(':').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            compression.set(name, value)?;
        }
        Ok(compression)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_best_known_setting_is_spelled_as_it_is_read() {
        for (name, best) in Compression::NAMES.into_iter().zip(Compression::BEST_KNOWN) {
            let (compression, best_known): (Compression, Compression) =
                (name.parse().unwrap(), best.parse().unwrap());
            assert_eq!((compression.name(), best_known.name()), (name, name));
            assert_eq!(compression.spelled_out().parse(), Ok(compression), "{}", compression.spelled_out());
            assert_eq!(best_known.label(), best);
        }
    }

    #[test]
    fn a_label_has_what_differs_and_one_meaning_has_one_label() {
        for (text, label) in [
            ("none", "none"),
            ("deflate", "deflate"),
            ("deflate:level=6:min_bytes=0", "deflate"),
            ("deflate:min_bytes=7:level=4", "deflate:level=4:min_bytes=7"),
            ("deflate-shared:upload_takeover=no", "deflate-shared:upload_takeover=no"),
            ("deflate-shared:upload_min_bytes=never", "deflate-shared:upload_min_bytes=never"),
            ("deflate-shared:upload_min_bytes=128", "deflate-shared"),
            ("zstd-dict:level=3:min_bytes=128", "zstd-dict:level=3"),
        ] {
            let compression: Compression = text.parse().unwrap();
            assert_eq!(compression.label(), label);
            assert_eq!(label.parse(), Ok(compression));
        }
    }

    #[test]
    fn a_dictionary_belongs_to_a_format_unless_it_was_given() {
        let bundled: Compression = "zstd-dict".parse().unwrap();
        let (json, other) = ("json", "cbor-packed");
        let of =
            |compression: Compression, format| compression.of_format(format).unwrap().dictionary().unwrap();
        assert_ne!(of(bundled, json), of(bundled, other));
        let given = bundled.with_dictionary(of(bundled, other));
        assert_eq!(of(given, json), of(bundled, other));
        let text = given.parameters();
        assert!(
            text.starts_with("level=1 window_bits=19 min_bytes=128 upload_min_bytes=128 dictionary="),
            "{text}"
        );
        assert_eq!(Compression::None.with_dictionary(of(bundled, json)), Compression::None);
    }

    #[test]
    fn what_is_wrong_is_answered_with_what_would_be_right() {
        for (text, expected) in [
            (
                "gzip",
                "unknown compression \"gzip\" (did you mean deflate?); known: none deflate deflate-no-takeover deflate-shared zstd zstd-stream \
                 zstd-shared zstd-dict",
            ),
            ("deflate:level=10", "level=10: expected a number from 0 to 9"),
            ("deflate:window_bits=8", "window_bits=8: expected a number from 9 to 15"),
            ("zstd-stream:window_bits=18", "window_bits=18: expected a number from 10 to 17"),
            ("deflate:upload_takeover=maybe", "upload_takeover=maybe: expected yes or no"),
            (
                "zstd:upload_takeover=no",
                "zstd has no parameter \"upload_takeover\"; known: level window_bits min_bytes upload_min_bytes, \
                 as in zstd:level=1:window_bits=19:min_bytes=256:upload_min_bytes=256",
            ),
            ("deflate:upload_min_bytes=all", "upload_min_bytes=all: expected a number of bytes, or never"),
        ] {
            assert_eq!(text.parse::<Compression>().unwrap_err().to_string(), expected);
        }
    }
}
