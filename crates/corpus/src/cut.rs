//! Finds and repairs the end of a growing file after a crash: a line without its end, or a
//! compressed stream without its end.
//!
//! Only this may be removed from a user's file, and only after a copy. Every other fault is an
//! error of the file, which stays unchanged.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use flate2::bufread::GzDecoder;
use serde::de::IgnoredAny;

use crate::{
    CorpusError, Events, FileFormat, RecordError,
    files::{EventWriter, io_error},
};

/// The end of a file that was cut short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    path: PathBuf,
    /// Start of the record or stream without an end, in bytes of the file.
    start_bytes: u64,
    /// Whole events after `start_bytes`.
    events: usize,
}

/// Finds the cut that explains why a file of events could be read no further.
///
/// # Errors
/// `damage` itself, if a crash while writing does not explain it; [`CorpusError::Io`] when the file
/// cannot be read.
pub fn find_cut(file: &Events, damage: CorpusError) -> Result<Cut, CorpusError> {
    let path = file.path();
    let format = FileFormat::from_path(path)?;
    let begins_an_event = |line: &[u8]| match format {
        FileFormat::NotepackText => true,
        // A whole value that is no event was not cut.
        _ => serde_json::from_slice::<IgnoredAny>(line).is_err_and(|error| error.is_eof()),
    };
    let start_bytes = match &damage {
        CorpusError::Damaged { offset_bytes, reason: RecordError::Decode(_), .. }
            if !format.is_compressed() && file.unterminated_line().is_some_and(begins_an_event) =>
        {
            Some(*offset_bytes)
        }
        CorpusError::Damaged { reason: RecordError::Read(reason), .. }
            if format.is_compressed() && reason.kind() == io::ErrorKind::UnexpectedEof =>
        {
            stream_cut(path, format)?
        }
        _ => None,
    };
    let Some(start_bytes) = start_bytes else { return Err(damage) };
    // The rest must be a whole file by itself.
    let start = File::open(path).map_err(|reason| io_error("open", path, reason))?.take(start_bytes);
    let (mut kept, mut whole) = (0, Events::from_stream(path, start, None)?);
    for event in &mut whole {
        event?;
        kept += 1;
    }
    if whole.unterminated_line().is_some() {
        return Err(damage);
    }
    let events = file.events_read().saturating_sub(kept);
    Ok(Cut { path: path.to_owned(), start_bytes, events })
}

/// Start of the last gzip member or zstd frame, if it has no end.
fn stream_cut(path: &Path, format: FileFormat) -> Result<Option<u64>, CorpusError> {
    let file = File::open(path).map_err(|reason| io_error("open", path, reason))?;
    let mut input = BufReader::new(file);
    let magic = format.stream().map_or(&[][..], |stream| stream.magic);
    loop {
        let start = input.stream_position().map_err(|reason| io_error("read", path, reason))?;
        let ahead = input.fill_buf().map_err(|reason| io_error("read", path, reason))?;
        if ahead.is_empty() || !ahead.iter().zip(magic).all(|(byte, expected)| byte == expected) {
            return Ok(None);
        }
        let read = match format {
            FileFormat::JsonlZstd => zstd::Decoder::with_buffer(&mut input)
                .and_then(|decoder| io::copy(&mut decoder.single_frame(), &mut io::sink())),
            _ => io::copy(&mut GzDecoder::new(&mut input), &mut io::sink()),
        };
        match read {
            Ok(_) => {}
            Err(reason) if reason.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(start)),
            Err(_) => return Ok(None),
        }
    }
}

impl Cut {
    /// Copies the cut bytes to a new file next to the user's, `NAME.cut-N.EXTENSION`, with its mode; then
    /// removes them, and appends the whole events among them. `kept` is told the copy's name before that.
    ///
    /// # Errors
    /// [`CorpusError`] when a file cannot be written; the user's is unchanged without a whole copy.
    pub fn mend(&self, kept: impl FnOnce(&Path)) -> Result<(), CorpusError> {
        let copy = self.keep()?;
        kept(&copy);
        let shorten = || -> io::Result<()> {
            let file = OpenOptions::new().write(true).open(&self.path)?;
            file.set_len(self.start_bytes)?;
            file.sync_all()
        };
        shorten().map_err(|reason| io_error("repair", &self.path, reason))?;
        if self.events > 0 {
            let mut writer = EventWriter::append(&self.path)?;
            for event in Events::open(&copy, false)?.take(self.events) {
                writer.write(&event?)?;
            }
            writer.finish()?;
        }
        Ok(())
    }

    fn keep(&self) -> Result<PathBuf, CorpusError> {
        let target = fs::canonicalize(&self.path).map_err(|reason| io_error("open", &self.path, reason))?;
        let extension = FileFormat::from_path(&self.path)?.extension();
        let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let stem = name.strip_suffix(&extension).unwrap_or(&name);
        let mut number = 1_u64;
        let (copy, mut file) = loop {
            let copy = target.with_file_name(format!("{stem}.cut-{number}{extension}"));
            match OpenOptions::new().write(true).create_new(true).open(&copy) {
                Ok(file) => break (copy, file),
                Err(reason) if reason.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(reason) => return Err(io_error("create", &copy, reason)),
            }
        };
        let mut write = || -> io::Result<()> {
            let mut original = File::open(&target)?;
            file.set_permissions(original.metadata()?.permissions())?;
            original.seek(SeekFrom::Start(self.start_bytes))?;
            io::copy(&mut original, &mut file)?;
            file.flush()?;
            file.sync_all()
        };
        write().map_err(|reason| io_error("write", &copy, reason))?;
        Ok(copy)
    }
}
