//! Writing a recording.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
};

use zstd::stream::raw::CParameter;

use crate::entry::{Body, Entry, Header, Message, What};

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
    options.open(file).map_err(|error| {
        let reason = format!("cannot record in {}: name a new file: {error}", file.display());
        io::Error::new(error.kind(), reason)
    })
}

/// Writes a recording.
///
/// After [`Writer::flush`] what was written before can be read, whatever happens to the rest.
pub struct Writer<W: Write> {
    encoder: zstd::Encoder<'static, W>,
    line: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Writes the first line.
    ///
    /// # Errors
    /// Those of the output.
    pub fn new(output: W, header: &Header) -> io::Result<Writer<W>> {
        let mut writer = Writer { encoder: encoder(output)?, line: Vec::new() };
        writer.put(header)?;
        writer.flush()?;
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
        self.put(&entry)
    }

    fn put(&mut self, line: &impl serde::Serialize) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, line)?;
        self.line.push(b'\n');
        self.encoder.write_all(&self.line)
    }

    /// Ends a block of zstd, so that what was written can be read from here on.
    ///
    /// # Errors
    /// Those of the output. The recording is over then.
    pub fn flush(&mut self) -> io::Result<()> {
        self.encoder.flush()
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(self) -> io::Result<()> {
        self.encoder.finish()?.flush()
    }
}

fn encoder<W: Write>(output: W) -> io::Result<zstd::Encoder<'static, W>> {
    let mut encoder = zstd::Encoder::new(output, LEVEL)?;
    encoder.include_checksum(true)?;
    encoder.window_log(WINDOW_LOG)?;
    encoder.set_parameter(CParameter::HashLog(HASH_LOG))?;
    Ok(encoder)
}
