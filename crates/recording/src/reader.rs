//! Reading a recording, which may be anybody's bytes.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;

use crate::{
    entry::{Entry, Header, VERSION, What},
    error::{Error, Reason},
    writer::MAX_TEXT_BYTES,
};

/// The longest line: a text whose every byte is escaped with six, and the other fields.
pub const MAX_LINE_BYTES: usize = 6 * MAX_TEXT_BYTES + 4096;

/// The largest window of zstd that is accepted: 8 MiB, as of `zstd -19`.
const MAX_WINDOW_LOG: u32 = 23;

/// The entries of a recording, one by one.
///
/// The first error is the last item. A file that was cut off, by a kill or a full disk, ends like
/// any other: [`Reader::torn`] tells them apart.
pub struct Reader<R: Read> {
    input: BufReader<zstd::Decoder<'static, BufReader<R>>>,
    file: PathBuf,
    header: Header,
    /// Lines read.
    line: u64,
    buffer: Vec<u8>,
    has_end: bool,
    is_over: bool,
}

impl Reader<File> {
    /// Opens a file and reads its first line.
    ///
    /// # Errors
    /// No such file, or not a recording of this version.
    pub fn open(file: &Path) -> Result<Reader<File>, Error> {
        let input = File::open(file).map_err(|error| Error {
            file: file.to_owned(),
            line: 1,
            reason: error.into(),
        })?;
        Reader::new(input, file)
    }
}

impl<R: Read> Reader<R> {
    /// Reads the first line of `input`. Errors name it `file`.
    ///
    /// # Errors
    /// Not a recording of this version.
    pub fn new(input: R, file: &Path) -> Result<Reader<R>, Error> {
        let failed = |reason| Error { file: file.to_owned(), line: 1, reason };
        let mut decoder = zstd::Decoder::new(input).map_err(|error| failed(error.into()))?;
        decoder.window_log_max(MAX_WINDOW_LOG).map_err(|error| failed(error.into()))?;
        let header = Header { version: VERSION, redaction: crate::Redaction::None, by: String::new() };
        let mut reader = Reader {
            input: BufReader::new(decoder),
            file: file.to_owned(),
            header,
            line: 0,
            buffer: Vec::new(),
            has_end: false,
            is_over: false,
        };
        reader.header =
            reader.line::<Header>().and_then(|header| header.ok_or(Reason::NoHeader)).map_err(failed)?;
        match reader.header.version {
            VERSION => Ok(reader),
            other => Err(failed(Reason::Version(other))),
        }
    }

    /// The first line.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether the recording has no last line, since its recorder was killed or its disk was full.
    /// What was read before is whole. Known once the iterator has ended.
    pub fn torn(&self) -> bool {
        !self.has_end
    }

    /// The next line; `None` at the end, where a line that is cut off is left out.
    fn line<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Reason> {
        self.buffer.clear();
        let most = MAX_LINE_BYTES as u64 + 1;
        match self.input.by_ref().take(most).read_until(b'\n', &mut self.buffer) {
            Ok(_) => {}
            // zstd's word for a frame that is cut off.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        match self.buffer.split_last() {
            Some((b'\n', line)) => {
                self.line += 1;
                Ok(Some(serde_json::from_slice(line)?))
            }
            _ if self.buffer.len() > MAX_LINE_BYTES => Err(Reason::TooLong),
            _ => Ok(None),
        }
    }

    fn entry(&mut self) -> Result<Option<Entry>, Reason> {
        let Some(entry) = self.line::<Entry>()? else { return Ok(None) };
        if self.has_end {
            return Err(Reason::AfterEnd);
        }
        self.has_end = matches!(entry.what, What::End(_));
        Ok(Some(entry))
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Result<Entry, Error>> {
        if self.is_over {
            return None;
        }
        let line = self.line + 1;
        let next = self.entry();
        self.is_over = !matches!(next, Ok(Some(_)));
        next.map_err(|reason| Error { file: self.file.clone(), line, reason }).transpose()
    }
}
