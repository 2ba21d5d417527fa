//! Corpus files: the format follows from the name.

mod batch;
mod lines;
mod proto;

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use codecs::{EncodeError, Event, Format};
use flate2::{Compression, GzBuilder, bufread::MultiGzDecoder, write::GzEncoder};

use self::lines::{Form, Lines};
use crate::{CorpusError, FileFormat, RecordError, file_format::Stream};
use measure::WholeFile;

/// Bytes of a file's start that identify its compression.
const START_BYTES: u64 = 64;

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

    /// Compares the name with the first bytes of the content. Fewer than four bytes pass, because
    /// the file may have been cut short.
    fn check_content(self, path: &Path, start: &[u8]) -> Result<(), CorpusError> {
        if start.len() < 4 || matches!(self, FileFormat::Batch(_)) {
            return Ok(());
        }
        let named = self.stream().map(|stream| stream.name);
        if named.is_none() && (start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff])) {
            return Err(CorpusError::Utf16 { path: path.to_owned() });
        }
        let content = Stream::of(start).map(|stream| stream.name);
        if content == named {
            return Ok(());
        }
        let word = |name: Option<&'static str>| name.unwrap_or("uncompressed");
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

/// Reads a `.pb.gz` file that is part of this program.
pub(crate) fn read_bundled(bytes: &'static [u8]) -> Result<Vec<Event<'static>>, CorpusError> {
    EventReader::of_file(Path::new("sample.pb.gz"), bytes, None)?.collect()
}

/// Reads a file event by event, in constant memory; a batch, which is bounded, at once. Ends at the
/// first damage, since half a corpus is another corpus.
#[derive(derive_more::Debug)]
pub(crate) struct EventReader {
    path: PathBuf,
    #[debug(skip)]
    source: Source,
    events_read: usize,
    ended: bool,
}

enum Source {
    Lines(Lines<Box<dyn BufRead + Send>>),
    Records(proto::Records<Box<dyn BufRead + Send>>),
    Batch(batch::Events<Box<dyn BufRead + Send>>),
}

impl EventReader {
    /// Opens a file whose stream may have at most `most_bytes` when decompressed.
    pub(crate) fn open(path: &Path, most_bytes: Option<u64>) -> Result<EventReader, CorpusError> {
        if path == Path::new("-") {
            return EventReader::of_file(path, io::stdin(), most_bytes);
        }
        let file = File::open(path).map_err(|reason| match reason.kind() {
            io::ErrorKind::NotFound => CorpusError::NotFound { path: path.to_owned() },
            _ => io_error("open", path, reason),
        })?;
        EventReader::of_file(path, file, most_bytes)
    }

    /// The events of the first `bytes` of a file.
    pub(crate) fn open_first(path: &Path, bytes: u64) -> Result<EventReader, CorpusError> {
        let file = File::open(path).map_err(|reason| io_error("open", path, reason))?;
        EventReader::of_file(path, file.take(bytes), None)
    }

    fn of_file(
        path: &Path,
        mut file: impl Read + Send + 'static,
        most_bytes: Option<u64>,
    ) -> Result<EventReader, CorpusError> {
        let named = FileFormat::from_path(path);
        let mut start = Vec::new();
        let begun = (&mut file).take(START_BYTES).read_to_end(&mut start);
        begun.map_err(|reason| io_error("read", path, reason))?;
        if start.is_empty() && !matches!(named, Ok(FileFormat::Batch(_))) {
            // An empty file holds no event, though it is no compressed stream either.
            return EventReader::new(path, Ok(FileFormat::Jsonl), None, io::empty(), most_bytes);
        }
        let stream = match &named {
            Ok(format) => {
                format.check_content(path, &start)?;
                format.stream()
            }
            Err(_) => Stream::of(&start),
        };
        let input = BufReader::new(io::Cursor::new(start).chain(file));
        EventReader::new(path, named, stream, input, most_bytes)
    }

    /// Whether the last line has no line feed.
    pub(crate) fn unterminated(&self) -> bool {
        matches!(&self.source, Source::Lines(lines) if lines.unterminated())
    }

    /// The next event, or the error in its place; continues after damage that has an end.
    pub(crate) fn record(&mut self) -> Option<Result<Event<'static>, RecordError>> {
        if self.ended {
            return None;
        }
        let read = match &mut self.source {
            Source::Lines(lines) => lines.next(),
            Source::Records(records) => records.next(),
            Source::Batch(events) => events.next(),
        };
        self.ended = match &read {
            Ok(event) => event.is_none(),
            Err(reason) => reason.is_last(),
        };
        self.events_read += usize::from(matches!(read, Ok(Some(_))));
        read.transpose()
    }

    /// Position of the record that was read last: its line in formats that have lines, and its first
    /// byte in the decompressed stream.
    pub(crate) fn place(&self) -> (Option<u64>, u64) {
        match &self.source {
            Source::Lines(lines) => lines.place(),
            Source::Records(records) => (None, records.offset()),
            Source::Batch(_) => (None, 0),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The error of the record that was read last.
    pub(crate) fn damaged(&self, reason: RecordError) -> CorpusError {
        let (line, offset_bytes) = self.place();
        let (path, events_read) = (self.path.clone(), self.events_read);
        CorpusError::Damaged { path, line, offset_bytes, events_read, reason }
    }

    /// Without a format that the name announces the content decides.
    fn new(
        path: &Path,
        format: Result<FileFormat, CorpusError>,
        stream: Option<&Stream>,
        input: impl BufRead + Send + 'static,
        most_bytes: Option<u64>,
    ) -> Result<EventReader, CorpusError> {
        let mut content: Box<dyn BufRead + Send> = match stream {
            Some(stream) if *stream == Stream::GZIP => Box::new(BufReader::new(MultiGzDecoder::new(input))),
            Some(_) => {
                let decoder =
                    zstd::Decoder::with_buffer(input).map_err(|reason| io_error("open", path, reason))?;
                Box::new(BufReader::new(decoder))
            }
            None => Box::new(input),
        };
        if let Some(most_bytes) = most_bytes {
            let stream = content.take(most_bytes.saturating_add(1));
            content = Box::new(BufReader::new(Within { stream, most_bytes }));
        }
        let format = match format {
            Ok(format) => format,
            Err(unknown) => {
                let start = content.fill_buf().map_err(|reason| io_error("read", path, reason))?;
                FileFormat::of_content(start, stream).ok_or(unknown)?
            }
        };
        let source = match format {
            FileFormat::Jsonl | FileFormat::JsonlGzip | FileFormat::JsonlZstd => {
                Source::Lines(Lines::new(content, Form::Json))
            }
            FileFormat::ProtoGzip => Source::Records(proto::Records::new(content)),
            FileFormat::NotepackText => Source::Lines(Lines::new(content, Form::NotepackText)),
            FileFormat::Batch(format) => Source::Batch(batch::Events::Unread(content, format)),
        };
        Ok(EventReader { path: path.to_owned(), source, events_read: 0, ended: false })
    }
}

impl Iterator for EventReader {
    type Item = Result<Event<'static>, CorpusError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.record()?;
        Some(record.map_err(|reason| {
            self.ended = true;
            self.damaged(reason)
        }))
    }
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

/// A stream that fails beyond its longest allowed length.
struct Within<R> {
    /// One byte more than is allowed.
    stream: io::Take<R>,
    most_bytes: u64,
}

impl<R: Read> Read for Within<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(into)?;
        if self.stream.limit() == 0 {
            let reason = format!("it is longer than {} bytes, the most that is read of it", self.most_bytes);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
        }
        Ok(read)
    }
}

/// Reads at most `limit` bytes into `buffer`, which grows only as bytes arrive.
fn read_up_to(input: &mut impl Read, limit: u64, buffer: &mut Vec<u8>) -> Result<u64, RecordError> {
    buffer.clear();
    Ok(input.take(limit).read_to_end(buffer)? as u64)
}
