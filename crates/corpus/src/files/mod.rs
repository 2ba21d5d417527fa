//! Corpus files: the format follows from the name.

mod batch;
mod lines;
mod proto;
mod reader;

use std::{
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use codecs::{EncodeError, Event, Format};
use flate2::{Compression, GzBuilder, write::GzEncoder};

use self::lines::Form;
pub use self::reader::Events;
use crate::{CorpusError, FileFormat, RecordError, file_format::Stream};
use measure::WholeFile;

/// gzip's best level: corpora are written once and read often.
const GZIP_LEVEL: u32 = 9;
/// zstd's level, for the same reason; higher ones gain under 1 %.
const ZSTD_LEVEL: i32 = 15;

impl FileFormat {
    /// The format that the file's name announces.
    ///
    /// # Errors
    /// [`CorpusError::UnknownExtension`] lists the known ones.
    pub fn from_path(path: &Path) -> Result<FileFormat, CorpusError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        FileFormat::all()
            .find(|format| name.ends_with(&format.extension()))
            .ok_or_else(|| CorpusError::UnknownExtension { path: path.to_owned() })
    }

    /// The compression that the name announces, compared with the first bytes of the content. Fewer than
    /// four bytes pass, because the file may have been cut short.
    fn checked_stream(self, path: &Path, start: &[u8]) -> Result<Option<&'static Stream>, CorpusError> {
        let (named, content) = (self.stream(), Stream::of(start));
        if start.len() < 4 || matches!(self, FileFormat::Batch(_)) {
            return Ok(named);
        }
        if named.is_none() && (start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff])) {
            return Err(CorpusError::Utf16 { path: path.to_owned() });
        }
        if named == content {
            return Ok(named);
        }
        let word = |stream: Option<&Stream>| stream.map_or("uncompressed", |stream| stream.name);
        Err(CorpusError::Misnamed { path: path.to_owned(), named: word(named), content: word(content) })
    }

    /// The format of content that begins so once it is decompressed.
    fn of_content(start: &[u8], stream: Option<&Stream>) -> Option<FileFormat> {
        let text = start.strip_prefix("\u{feff}".as_bytes()).unwrap_or(start).trim_ascii_start();
        match text {
            [b'[', rest @ ..] if rest.trim_ascii_start().starts_with(b"{") => {
                Some(FileFormat::Batch(Format::JSON))
            }
            [b'[' | b'{', ..] => Some(FileFormat::Jsonl),
            _ if text.starts_with(b"notepack_") => Some(FileFormat::NotepackText),
            _ => stream.filter(|stream| **stream == Stream::GZIP).map(|_| FileFormat::ProtoGzip),
        }
    }
}

/// Writes events to a file in the format its name announces. The bytes depend only on the events
/// and on the versions of the compression libraries: no time, no name, explicit levels.
///
/// # Errors
/// [`CorpusError`] when the file cannot be written, or its format cannot hold an event. A part may
/// have been written.
pub fn write(path: &Path, events: &[Event<'_>]) -> Result<(), CorpusError> {
    EventWriter::create(path)?.write_all(events)
}

/// Writes a file event by event, in constant memory; a batch, which is bounded, when it is
/// finished. Without [`EventWriter::finish`] there is no new file, and one that grows is cut short.
#[derive(derive_more::Debug)]
pub struct EventWriter {
    path: PathBuf,
    format: FileFormat,
    #[debug(skip)]
    sink: Sink,
    /// Only in [`FileFormat::Batch`].
    #[debug(skip)]
    batch: Option<batch::Waiting>,
    index: usize,
    #[debug(skip)]
    record: Vec<u8>,
}

enum Sink {
    Plain(BufWriter<WholeFile>),
    Gzip(GzEncoder<BufWriter<WholeFile>>),
    Zstd(zstd::Encoder<'static, BufWriter<WholeFile>>),
}

impl EventWriter {
    /// Creates, or replaces, a file whose name announces its format.
    ///
    /// # Errors
    /// [`CorpusError`] when the name announces no known format or the file cannot be created.
    pub fn create(path: &Path) -> Result<EventWriter, CorpusError> {
        EventWriter::open(path, WholeFile::replacing)
    }

    /// Creates a file that does not exist yet.
    ///
    /// # Errors
    /// As [`EventWriter::create`], and [`CorpusError::Exists`].
    pub fn create_new(path: &Path) -> Result<EventWriter, CorpusError> {
        EventWriter::open(path, WholeFile::new)
    }

    /// Appends to a file, or creates it. A compressed file gets another member or frame, which
    /// readers take as one with those before it.
    ///
    /// # Errors
    /// As [`EventWriter::create`], and [`CorpusError::CannotGrow`] for a batch.
    pub fn append(path: &Path) -> Result<EventWriter, CorpusError> {
        if !FileFormat::from_path(path)?.can_grow() {
            return Err(CorpusError::CannotGrow { path: path.to_owned() });
        }
        EventWriter::open(path, WholeFile::growing)
    }

    /// Ends a line that has no line feed, before the first event is appended.
    ///
    /// # Errors
    /// [`CorpusError::Io`] when the file cannot be written.
    pub fn end_line(&mut self) -> Result<(), CorpusError> {
        self.sink.write_all(b"\n").map_err(|reason| io_error("write", &self.path, reason))
    }

    fn open(path: &Path, open: impl Fn(&Path) -> io::Result<WholeFile>) -> Result<EventWriter, CorpusError> {
        let format = FileFormat::from_path(path)?;
        measure::try_file(path)?;
        let file = BufWriter::new(open(path).map_err(|reason| io_error("create", path, reason))?);
        let sink = match format {
            FileFormat::Jsonl | FileFormat::NotepackText | FileFormat::Batch(_) => Sink::Plain(file),
            FileFormat::JsonlGzip | FileFormat::ProtoGzip => Sink::Gzip(gzip(file)),
            FileFormat::JsonlZstd => {
                let encoder = zstd::Encoder::new(file, ZSTD_LEVEL).and_then(|mut encoder| {
                    encoder.include_checksum(true)?;
                    Ok(encoder)
                });
                Sink::Zstd(encoder.map_err(|reason| io_error("create", path, reason))?)
            }
        };
        let batch = match format {
            FileFormat::Batch(format) => Some(batch::Waiting::new(format)),
            _ => None,
        };
        Ok(EventWriter { path: path.to_owned(), format, sink, batch, index: 0, record: Vec::new() })
    }

    /// Appends an event.
    ///
    /// # Errors
    /// [`CorpusError`] when the file cannot be written, or its format cannot hold the event.
    pub fn write(&mut self, event: &Event<'_>) -> Result<(), CorpusError> {
        self.record.clear();
        let record = &mut self.record;
        let encoded = match (self.format, &mut self.batch) {
            (_, Some(batch)) => batch.add(event, record),
            (FileFormat::ProtoGzip, _) => proto::encode(event, record),
            (FileFormat::NotepackText, _) => lines::encode(event, Form::NotepackText, record),
            _ => lines::encode(event, Form::Json, record),
        };
        encoded.map_err(|reason| self.refused(reason))?;
        if self.batch.is_none() {
            self.sink.write_all(&self.record).map_err(|reason| io_error("write", &self.path, reason))?;
        }
        self.index += 1;
        Ok(())
    }

    /// Appends events, and finishes.
    ///
    /// # Errors
    /// As [`EventWriter::write`] and [`EventWriter::finish`].
    pub fn write_all(mut self, events: &[Event<'_>]) -> Result<(), CorpusError> {
        events.iter().try_for_each(|event| self.write(event))?;
        self.finish()
    }

    /// Writes what is still in buffers and the end of the compressed stream.
    ///
    /// # Errors
    /// [`CorpusError::Io`] when the file cannot be written; for a batch also
    /// [`CorpusError::Encode`] when its format cannot hold the events.
    pub fn finish(mut self) -> Result<(), CorpusError> {
        if let Some(batch) = &self.batch {
            let bytes = batch.encode().map_err(|reason| self.refused(reason))?;
            self.sink.write_all(&bytes).map_err(|reason| io_error("write", &self.path, reason))?;
        }
        let file = match self.sink {
            Sink::Plain(file) => Ok(file),
            Sink::Gzip(encoder) => encoder.finish(),
            Sink::Zstd(encoder) => encoder.finish(),
        };
        let finished = file.and_then(|file| file.into_inner()?.finish());
        finished.map_err(|reason| io_error("write", &self.path, reason))
    }

    fn refused(&self, reason: EncodeError) -> CorpusError {
        CorpusError::Encode { path: self.path.clone(), index: self.index, reason }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Plain(out) => out.write(bytes),
            Sink::Gzip(out) => out.write(bytes),
            Sink::Zstd(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Plain(out) => out.flush(),
            Sink::Gzip(out) => out.flush(),
            Sink::Zstd(out) => out.flush(),
        }
    }
}

fn gzip<W: Write>(out: W) -> GzEncoder<W> {
    GzBuilder::new().mtime(0).operating_system(255).write(out, Compression::new(GZIP_LEVEL))
}

pub(crate) fn io_error(action: &'static str, path: &Path, reason: io::Error) -> CorpusError {
    let path = path.to_owned();
    match reason.kind() {
        io::ErrorKind::AlreadyExists => CorpusError::Exists { path },
        _ => CorpusError::Io { action, path, reason },
    }
}

/// Reads at most `limit` bytes into `buffer`, which grows only as bytes arrive.
fn read_up_to(input: &mut impl Read, limit: u64, buffer: &mut Vec<u8>) -> Result<u64, RecordError> {
    buffer.clear();
    Ok(input.take(limit).read_to_end(buffer)? as u64)
}
