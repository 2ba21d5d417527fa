//! Reads corpus files: whole, or every record verified.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use codecs::{Event, VerifyLevel};
use flate2::bufread::MultiGzDecoder;

use super::{
    batch, io_error,
    lines::{Form, Lines},
    proto,
};
use crate::{
    CorpusError, FileFormat, Invalid, RecordError, Skipped, error::place, file_format::Stream,
    keys::in_parallel,
};

/// Bytes of a file's start that identify its compression.
const START_BYTES: u64 = 64;

/// Records that are checked together, on all cores: some 5 MB of memory, 100 ms of a core.
const TOGETHER: usize = 2_048;

/// The events of a file, record by record in constant memory; a batch, which is bounded, at once.
#[derive(derive_more::Debug)]
pub struct Events {
    path: PathBuf,
    #[debug(skip)]
    source: Source,
    events_read: usize,
    ended: bool,
    skips_invalid: bool,
    skipped: Skipped,
    /// Records that are checked.
    ready: VecDeque<Result<Result<Event<'static>, Invalid>, CorpusError>>,
}

enum Source {
    Lines(Lines<Box<dyn BufRead + Send>>),
    Records(proto::Records<Box<dyn BufRead + Send>>),
    Batch(batch::Events<Box<dyn BufRead + Send>>),
}

impl Events {
    /// Opens a file whose name or content announces its format; `-` is standard input. A pipe is
    /// read once, from its start to its end. Without `skip_invalid` nothing is verified, and a
    /// record that is no event is an error, which ends the file: half a corpus is another corpus.
    ///
    /// # Errors
    /// [`CorpusError`] when there is none, it cannot be opened, or neither announces a known format.
    pub fn open(path: &Path, skip_invalid: bool) -> Result<Events, CorpusError> {
        Ok(Events { skips_invalid: skip_invalid, ..Events::open_within(path, None)? })
    }

    /// Opens a file whose stream may have at most `most_bytes` when decompressed.
    pub(crate) fn open_within(path: &Path, most_bytes: Option<u64>) -> Result<Events, CorpusError> {
        if path == Path::new("-") {
            return Events::from_stream(path, io::stdin(), most_bytes);
        }
        let file = File::open(path).map_err(|reason| match reason.kind() {
            io::ErrorKind::NotFound => CorpusError::NotFound { path: path.to_owned() },
            _ => io_error("open", path, reason),
        })?;
        Events::from_stream(path, file, most_bytes)
    }

    /// The events of a stream whose format this path or its content announces.
    pub(crate) fn from_stream(
        path: &Path,
        mut stream: impl Read + Send + 'static,
        most_bytes: Option<u64>,
    ) -> Result<Events, CorpusError> {
        let failed = |reason| io_error("read", path, reason);
        let mut start = Vec::new();
        (&mut stream).take(START_BYTES).read_to_end(&mut start).map_err(failed)?;
        let mut named = FileFormat::from_path(path);
        if start.is_empty() && !matches!(named, Ok(FileFormat::Batch(_))) {
            // An empty file holds no event, though it is no compressed stream either.
            named = Ok(FileFormat::Jsonl);
        }
        let compression = match &named {
            Ok(format) => format.checked_stream(path, &start)?,
            Err(_) => Stream::of(&start),
        };
        let mut content = decompressed(io::Cursor::new(start).chain(stream), compression, most_bytes)
            .map_err(|reason| io_error("open", path, reason))?;
        let format = match named {
            Ok(format) => format,
            Err(unknown) => {
                FileFormat::of_content(content.fill_buf().map_err(failed)?, compression).ok_or(unknown)?
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
        Ok(Events {
            path: path.to_owned(),
            source,
            events_read: 0,
            ended: false,
            skips_invalid: false,
            skipped: Skipped::default(),
            ready: VecDeque::new(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Records that were left out so far.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// Events that were read so far.
    pub(crate) fn events_read(&self) -> usize {
        self.events_read
    }

    /// The last line, if it has no line feed, so that whatever is appended needs one first. Known when the
    /// last event was read, and not with `skip_invalid`.
    pub fn unterminated_line(&self) -> Option<&[u8]> {
        if let Source::Lines(lines) = &self.source { lines.unterminated() } else { None }
    }

    /// The next record, verified: an event, or why it is none. Ends where nothing more can be found, and
    /// fails only if the system or a batch does.
    pub fn checked(&mut self) -> Option<Result<Result<Event<'static>, Invalid>, CorpusError>> {
        if self.ready.is_empty() {
            self.check_some();
        }
        self.ready.pop_front()
    }

    fn check_some(&mut self) {
        let (mut records, mut failed) = (Vec::new(), None);
        while records.len() < TOGETHER
            && let Some(record) = self.record()
        {
            match record {
                Err(reason) if reason.is_of_all() => failed = Some(self.damaged(reason)),
                record => records.push((self.place(), record)),
            }
        }
        let wrong = in_parallel(records.len(), |n| match &records[n].1 {
            Ok(event) => event.verify(VerifyLevel::Full).err().map(|error| error.to_string()),
            Err(reason) if reason.is_last() => Some(format!("{reason}; nothing behind it can be read")),
            Err(reason) => Some(reason.to_string()),
        });
        let path = &self.path;
        let checked = records.into_iter().zip(wrong).map(|(((line, offset_bytes), record), wrong)| {
            Ok(match (record, wrong) {
                (Ok(event), None) => Ok(event),
                (record, wrong) => Err(Invalid {
                    line,
                    offset_bytes,
                    id: record.ok().map(|event| event.id),
                    reason: wrong.unwrap_or_default(),
                    place: place(path, offset_bytes),
                }),
            })
        });
        self.ready.extend(checked.chain(failed.map(Err)));
    }

    /// The next event, or the error in its place; continues after damage that has an end.
    fn record(&mut self) -> Option<Result<Event<'static>, RecordError>> {
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
    fn place(&self) -> (Option<u64>, u64) {
        match &self.source {
            Source::Lines(lines) => lines.place(),
            Source::Records(records) => (None, records.offset()),
            Source::Batch(_) => (None, 0),
        }
    }

    /// The error of the record that was read last.
    fn damaged(&self, reason: RecordError) -> CorpusError {
        let (line, offset_bytes) = self.place();
        let (path, events_read) = (self.path.clone(), self.events_read);
        CorpusError::Damaged { path, line, offset_bytes, events_read, reason }
    }
}

impl Iterator for Events {
    type Item = Result<Event<'static>, CorpusError>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.skips_invalid {
            let record = self.record()?;
            self.ended |= record.is_err();
            return Some(record.map_err(|reason| self.damaged(reason)));
        }
        loop {
            match self.checked()? {
                Ok(Ok(event)) => return Some(Ok(event)),
                Ok(Err(invalid)) => self.skipped.add(&invalid),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The content of a stream, which may have at most `most_bytes`.
fn decompressed(
    stream: impl Read + Send + 'static,
    compression: Option<&Stream>,
    most_bytes: Option<u64>,
) -> io::Result<Box<dyn BufRead + Send>> {
    let input = BufReader::new(stream);
    let content: Box<dyn BufRead + Send> = match compression {
        Some(stream) if *stream == Stream::GZIP => Box::new(BufReader::new(MultiGzDecoder::new(input))),
        Some(_) => Box::new(BufReader::new(zstd::Decoder::with_buffer(input)?)),
        None => Box::new(input),
    };
    Ok(match most_bytes {
        Some(most_bytes) => {
            let stream = content.take(most_bytes.saturating_add(1));
            Box::new(BufReader::new(Within { stream, most_bytes }))
        }
        None => content,
    })
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
