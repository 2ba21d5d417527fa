//! The layouts of a corpus file, by extension, and the largest record in one.

use codecs::Format;

/// Largest record: the most that a damaged length can allocate. It equals relay-sim's largest message.
/// The longest known follow list, of 6,165 entries (`data/README.md`), takes under half of these bytes.
pub const MAX_RECORD_BYTES: usize = 1 << 20;

/// Largest batch: one value, which is read and written whole, so this bounds memory. Tens of
/// thousands of events; longer corpora belong into another format.
pub const MAX_BATCH_BYTES: usize = 64 << 20;

/// The layout of events in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// One NIP-01 object a line; read also as NIP-01's EVENT message of a relay.
    Jsonl,
    /// [`FileFormat::Jsonl`] in gzip, one member or several.
    JsonlGzip,
    /// [`FileFormat::Jsonl`] in zstd, one frame or several.
    JsonlZstd,
    /// ProtoEvent messages, each after its length as a varint, in gzip.
    ProtoGzip,
    /// One event a line in Notepack's text form, see [`codecs::notepack_text`].
    NotepackText,
    /// One batch of a wire format, see [`codecs::Batch`].
    Batch(Format),
}

impl FileFormat {
    /// Every format.
    pub fn all() -> impl Iterator<Item = FileFormat> {
        use FileFormat::{Batch, Jsonl, JsonlGzip, JsonlZstd, NotepackText, ProtoGzip};
        let batches = Format::all().filter(|format| format.spec().batch.is_some()).map(Batch);
        [Jsonl, JsonlGzip, JsonlZstd, ProtoGzip, NotepackText].into_iter().chain(batches)
    }

    /// The file name's ending.
    pub fn extension(self) -> String {
        match self {
            FileFormat::Jsonl => ".jsonl".to_owned(),
            FileFormat::JsonlGzip => ".jsonl.gz".to_owned(),
            FileFormat::JsonlZstd => ".jsonl.zst".to_owned(),
            FileFormat::ProtoGzip => ".pb.gz".to_owned(),
            FileFormat::NotepackText => ".notepack.txt".to_owned(),
            FileFormat::Batch(format) => format!(".{format}.batch"),
        }
    }

    /// Whether events can be added to a file: a batch begins with its number of events.
    pub fn can_grow(self) -> bool {
        !matches!(self, FileFormat::Batch(_))
    }

    /// Whether the bytes of a file are compressed, so that offsets belong to another stream.
    pub(crate) fn is_compressed(self) -> bool {
        self.stream().is_some()
    }

    /// The compression that the name announces.
    pub(crate) fn stream(self) -> Option<&'static Stream> {
        match self {
            FileFormat::JsonlGzip | FileFormat::ProtoGzip => Some(&Stream::GZIP),
            FileFormat::JsonlZstd => Some(&Stream::ZSTD),
            FileFormat::Jsonl | FileFormat::NotepackText | FileFormat::Batch(_) => None,
        }
    }

    /// Every extension, for messages.
    pub(crate) fn known() -> String {
        FileFormat::all().map(FileFormat::extension).collect::<Vec<_>>().join(" ")
    }
}

/// A compressed stream, which is known by its first bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) name: &'static str,
    pub(crate) magic: &'static [u8],
}

impl Stream {
    /// RFC 1952 §2.3.1.
    pub(crate) const GZIP: Stream = Stream { name: "gzip", magic: &[0x1f, 0x8b] };
    /// RFC 8878 §3.1.1.
    pub(crate) const ZSTD: Stream = Stream { name: "zstd", magic: &[0x28, 0xb5, 0x2f, 0xfd] };

    /// The stream that begins so.
    pub(crate) fn of(start: &[u8]) -> Option<&'static Stream> {
        match start {
            // A skippable frame (RFC 8878 §3.1.2), which zstd reads over.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(&Stream::ZSTD),
            _ => [&Stream::GZIP, &Stream::ZSTD].into_iter().find(|stream| start.starts_with(stream.magic)),
        }
    }
}
