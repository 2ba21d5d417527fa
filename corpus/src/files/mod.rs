//! Corpus files: the format follows from the name.

mod jsonl;
mod proto;

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    path::Path,
};

use codecs::Event;
use flate2::{Compression, GzBuilder, bufread::MultiGzDecoder, write::GzEncoder};

use crate::{CorpusError, RecordError};

/// Larger than the largest follow list known (450,386 bytes as JSON) and as large as the largest message a relay
/// accepts here; what a damaged length can make us allocate.
pub const MAX_RECORD_BYTES: usize = 1 << 20;

/// Small files matter more than the second it takes: corpora are written once and read often.
const GZIP_LEVEL: u32 = 9;
/// As above; higher levels gain under 1% on follow lists, which are noise to a compressor.
const ZSTD_LEVEL: i32 = 15;

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

    /// How names of such files end.
    pub fn extension(self) -> &'static str {
        match self {
            FileFormat::Jsonl => ".jsonl",
            FileFormat::JsonlGzip => ".jsonl.gz",
            FileFormat::JsonlZstd => ".jsonl.zst",
            FileFormat::ProtoGzip => ".pb.gz",
        }
    }

    /// The format that the file's name announces.
    ///
    /// # Errors
    /// [`CorpusError::UnknownExtension`] lists the known ones.
    pub fn of(path: &Path) -> Result<FileFormat, CorpusError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        FileFormat::ALL
            .into_iter()
            .find(|format| name.ends_with(format.extension()))
            .ok_or_else(|| CorpusError::UnknownExtension { path: path.to_owned() })
    }

    pub(crate) fn known() -> String {
        FileFormat::ALL.map(FileFormat::extension).join(" ")
    }
}

/// Writes events to a file in the format its name announces. The bytes depend only on the events and on the
/// versions of the compression libraries: no time, no name, explicit levels.
///
/// # Errors
/// [`CorpusError`] when the file cannot be written, or its format cannot hold an event. A part may have been
/// written.
pub fn write(path: &Path, events: &[Event<'_>]) -> Result<(), CorpusError> {
    let format = FileFormat::of(path)?;
    let file = File::create(path).map_err(|reason| io_error("create", path, reason))?;
    let mut file = BufWriter::new(file);
    let written = match format {
        FileFormat::Jsonl => jsonl::write(events, &mut file),
        FileFormat::JsonlGzip => {
            let mut encoder = gzip(&mut file);
            jsonl::write(events, &mut encoder).and_then(|()| Ok(encoder.try_finish()?))
        }
        FileFormat::JsonlZstd => {
            zstd::Encoder::new(&mut file, ZSTD_LEVEL).map_err(WriteError::from).and_then(|mut encoder| {
                encoder.include_checksum(true)?;
                jsonl::write(events, &mut encoder)?;
                encoder.finish()?;
                Ok(())
            })
        }
        FileFormat::ProtoGzip => {
            let mut encoder = gzip(&mut file);
            proto::write(events, &mut encoder).and_then(|()| Ok(encoder.try_finish()?))
        }
    };
    written.and_then(|()| Ok(file.flush()?)).map_err(|error| match error {
        WriteError::Io(reason) => io_error("write", path, reason),
        WriteError::Encode { index, reason } => CorpusError::Encode { path: path.to_owned(), index, reason },
    })
}

/// Reads every event of a file, in order, duplicates included.
pub(crate) fn read(path: &Path) -> Result<Vec<Event<'static>>, CorpusError> {
    let format = FileFormat::of(path);
    let file = File::open(path).map_err(|reason| match reason.kind() {
        io::ErrorKind::NotFound => CorpusError::NotFound { path: path.to_owned() },
        _ => io_error("open", path, reason),
    })?;
    let file = BufReader::new(file);
    match format? {
        FileFormat::Jsonl => read_lines(path, file),
        FileFormat::JsonlGzip => read_lines(path, BufReader::new(MultiGzDecoder::new(file))),
        FileFormat::JsonlZstd => {
            let decoder =
                zstd::Decoder::with_buffer(file).map_err(|reason| io_error("open", path, reason))?;
            read_lines(path, BufReader::new(decoder))
        }
        FileFormat::ProtoGzip => read_records(path, file),
    }
}

/// Reads a `.pb.gz` file that is part of this program.
pub(crate) fn read_bundled(bytes: &[u8]) -> Result<Vec<Event<'static>>, CorpusError> {
    read_records(Path::new("sample.pb.gz"), bytes)
}

fn read_lines(path: &Path, input: impl BufRead) -> Result<Vec<Event<'static>>, CorpusError> {
    let mut events = Vec::new();
    jsonl::read(input, &mut events).map_err(|(line, reason)| CorpusError::Line {
        path: path.to_owned(),
        line,
        events_read: events.len(),
        reason,
    })?;
    Ok(events)
}

fn read_records(path: &Path, compressed: impl BufRead) -> Result<Vec<Event<'static>>, CorpusError> {
    let mut events = Vec::new();
    let input = BufReader::new(MultiGzDecoder::new(compressed));
    proto::read(input, &mut events).map_err(|(offset_bytes, reason)| CorpusError::Offset {
        path: path.to_owned(),
        offset_bytes,
        events_read: events.len(),
        reason,
    })?;
    Ok(events)
}

fn gzip<W: Write>(out: W) -> GzEncoder<W> {
    GzBuilder::new().mtime(0).operating_system(255).write(out, Compression::new(GZIP_LEVEL))
}

fn io_error(action: &'static str, path: &Path, reason: io::Error) -> CorpusError {
    CorpusError::Io { action, path: path.to_owned(), reason }
}

/// Why writing stopped; [`write`] adds the path.
#[derive(Debug)]
enum WriteError {
    Io(io::Error),
    Encode { index: usize, reason: codecs::EncodeError },
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        WriteError::Io(error)
    }
}

/// Reads at most `limit` bytes into `buffer`, which grows only as bytes arrive.
fn read_up_to(input: &mut impl Read, limit: u64, buffer: &mut Vec<u8>) -> Result<u64, RecordError> {
    buffer.clear();
    Ok(input.take(limit).read_to_end(buffer)? as u64)
}
