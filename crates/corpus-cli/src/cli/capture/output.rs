//! The file that grows.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, bail};
use codecs::Event;
use corpus::{CorpusError, Cut, EventWriter, Events, FileFormat, Ids, find_cut};

use crate::cli::{Progress, tell};

/// Ids that are in the file or on their way to it; shared by all relays.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedIds(Arc<Mutex<Ids>>);

impl SharedIds {
    pub(super) fn lock(&self) -> MutexGuard<'_, Ids> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Appends to a file and remembers its events.
///
/// The file is locked while this lives, and the provenance is written under the same lock. The file
/// is not changed before the first event is written.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    /// Holds the lock, which ends with the process.
    _lock: File,
    writer: Option<EventWriter>,
    ids: SharedIds,
    events: u64,
    before: u64,
    cut: Option<Cut>,
    unterminated: bool,
}

impl Output {
    /// Opens the file for more.
    ///
    /// # Errors
    /// When another capture writes it, or it holds anything but events and, at its end, a record
    /// that a crash cut short.
    pub(super) fn open(path: &Path) -> anyhow::Result<Output> {
        if !FileFormat::from_path(path)?.can_grow() {
            return Err(CorpusError::CannotGrow { path: path.to_owned() }.into());
        }
        let lock = locked(path)?;
        let ids = SharedIds::default();
        let (mut events, mut cut) = (0, None);
        let mut file = Events::open(path, false)?;
        let mut progress = Progress::new("read", None, "events of the file");
        while let Some(event) = file.next() {
            match event {
                Ok(event) => {
                    ids.lock().insert(&event);
                    events += 1;
                    progress.report(events);
                }
                Err(damage) => {
                    let found = find_cut(&file, damage);
                    cut = Some(found.context("the file is unchanged, and --out may name another")?);
                }
            }
        }
        let unterminated = cut.is_none() && file.unterminated_line().is_some();
        let path = path.to_owned();
        Ok(Output { path, _lock: lock, writer: None, ids, events, before: events, cut, unterminated })
    }

    pub(super) fn ids(&self) -> SharedIds {
        self.ids.clone()
    }

    /// Events in the file.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// Events that this run added.
    pub(super) fn new_events(&self) -> u64 {
        self.events - self.before
    }

    pub(super) fn write(&mut self, event: &Event<'_>) -> Result<(), CorpusError> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let writer = self.begin()?;
                self.writer.insert(writer)
            }
        };
        writer.write(event)?;
        self.events += 1;
        Ok(())
    }

    /// Makes the file one that can be appended to.
    fn begin(&mut self) -> Result<EventWriter, CorpusError> {
        if let Some(cut) = self.cut.take() {
            cut.mend(|copy| {
                tell(&format!(
                    "{:?} was cut short by a crash; its {} whole events are kept, and the bytes removed from \
                     its end are in {copy:?}",
                    self.path, self.events
                ));
            })?;
        }
        let mut writer = EventWriter::append(&self.path)?;
        if std::mem::take(&mut self.unterminated) {
            writer.end_line()?;
        }
        Ok(writer)
    }

    /// Ends the compressed stream, so that everything until now is readable whatever happens. The
    /// next event begins another.
    pub(super) fn checkpoint(&mut self) -> Result<(), CorpusError> {
        self.writer.take().map_or(Ok(()), EventWriter::finish)
    }
}

/// The file, locked against other captures; created if absent.
fn locked(path: &Path) -> anyhow::Result<File> {
    // A pipe would wait for its reader, and keeps nothing to go on from.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        bail!(
            "{path:?} is a folder, a pipe or a device, and a capture goes on where its file ends: name a file"
        );
    }
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .with_context(|| format!("cannot write to {path:?}"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!("another capture writes {path:?}; wait for its end or choose another --out")
        }
        // As on NFS without lockd, 9p and FUSE.
        Err(TryLockError::Error(reason)) => {
            tell(&format!("{path:?} is not locked ({reason}): let no other capture write it"));
            Ok(file)
        }
    }
}
