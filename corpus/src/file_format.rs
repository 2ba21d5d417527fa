//! The layouts of a corpus file, by extension, and the largest record in one.

/// Largest record, and so the most that a damaged length can allocate: as large as the largest
/// message that relay-sim accepts. Known follow lists have up to 6,165 entries (`data/README.md`),
/// under half of it.
pub const MAX_RECORD_BYTES: usize = 1 << 20;

/// How events are laid out in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// One NIP-01 object a line.
    Jsonl,
    /// [`FileFormat::Jsonl`] in gzip, one member or several.
    JsonlGzip,
    /// [`FileFormat::Jsonl`] in zstd, one frame or several.
    JsonlZstd,
    /// ProtoEvent messages, each behind its length as a varint, in gzip.
    ProtoGzip,
}

impl FileFormat {
    /// Every format.
    pub const ALL: [FileFormat; 4] =
        [FileFormat::Jsonl, FileFormat::JsonlGzip, FileFormat::JsonlZstd, FileFormat::ProtoGzip];

    /// The file name's ending.
    pub fn extension(self) -> &'static str {
        match self {
            FileFormat::Jsonl => ".jsonl",
            FileFormat::JsonlGzip => ".jsonl.gz",
            FileFormat::JsonlZstd => ".jsonl.zst",
            FileFormat::ProtoGzip => ".pb.gz",
        }
    }

    /// Every extension, for messages.
    pub(crate) fn known() -> String {
        FileFormat::ALL.map(FileFormat::extension).join(" ")
    }
}
