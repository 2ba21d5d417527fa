//! Writing a recording.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
};

use zstd::stream::raw::CParameter;

use crate::entry::{Body, Entry, Header, Line, Message, What};

/// The longest text that is written; of a longer message its length is.
pub const MAX_TEXT_BYTES: usize = 4 << 20;

/// The level of compression: the fastest, since a gateway has other work.
pub(crate) const LEVEL: i32 = 1;

/// Bytes in which an event is found again that was sent to another client, and places that are remembered of
/// them, as powers of two: more than at this level by default.
const WINDOW_LOG: u32 = 23;
const HASH_LOG: u32 = 18;

/// Creates the file of a recording, which its owner alone may read (mode 0600).
///
/// # Errors
/// The file exists already, or cannot be created.
pub fn create(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)
}

/// Writes a recording.
///
/// After [`Writer::end_frame`] what was written before can be read, whatever happens to the rest.
pub struct Writer<W: Write> {
    /// `None` only while a frame is replaced by the next, or after that failed.
    encoder: Option<zstd::Encoder<'static, W>>,
    line: Vec<u8>,
    /// Whether the frame has a line.
    has_lines: bool,
}

impl<W: Write> Writer<W> {
    /// Writes the first line.
    ///
    /// # Errors
    /// Those of the output.
    pub fn new(output: W, header: &Header) -> io::Result<Writer<W>> {
        let mut writer = Writer { encoder: Some(encoder(output)?), line: Vec::new(), has_lines: false };
        writer.put(header)?;
        writer.end_frame()?;
        Ok(writer)
    }

    /// Writes a line. A text of more than [`MAX_TEXT_BYTES`] is withheld.
    ///
    /// # Errors
    /// Those of the output. The recording is over then.
    pub fn write(&mut self, mut entry: Entry) -> io::Result<()> {
        if let What::Message(Message { body, .. }) = &mut entry.what
            && let Body::Text(text) = body
            && text.len() > MAX_TEXT_BYTES
        {
            *body = Body::Withheld { text_bytes: text.len() as u64, kind: None };
        }
        self.put(&Line::from(entry))
    }

    fn put(&mut self, line: &impl serde::Serialize) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, line)?;
        self.line.push(b'\n');
        self.has_lines = true;
        self.encoder.as_mut().ok_or_else(over)?.write_all(&self.line)
    }

    /// Ends the zstd frame, so that what was written can be read from here on.
    ///
    /// # Errors
    /// Those of the output. The recording is over then.
    pub fn end_frame(&mut self) -> io::Result<()> {
        if self.has_lines {
            let mut output = self.encoder.take().ok_or_else(over)?.finish()?;
            output.flush()?;
            self.encoder = Some(encoder(output)?);
            self.has_lines = false;
        }
        Ok(())
    }
}

fn over() -> io::Error {
    io::Error::other("the recording has failed before")
}

fn encoder<W: Write>(output: W) -> io::Result<zstd::Encoder<'static, W>> {
    let mut encoder = zstd::Encoder::new(output, LEVEL)?;
    encoder.include_checksum(true)?;
    encoder.window_log(WINDOW_LOG)?;
    encoder.set_parameter(CParameter::HashLog(HASH_LOG))?;
    Ok(encoder)
}
