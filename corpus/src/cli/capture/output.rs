//! The file that grows.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context;
use codecs::Event;
use corpus::{CorpusError, EventReader, EventWriter, FileFormat, MAX_IDS};

/// The first half of each id, see [`corpus::Census`].
type Half = [u8; 16];

/// Ids that are in the file or on their way to it; shared by all relays.
#[derive(Debug, Default)]
pub(super) struct Ids(Mutex<HashSet<Half>>);

impl Ids {
    /// Whether nobody has it yet.
    pub(super) fn is_new(&self, event: &Event<'_>) -> bool {
        !self.set().contains(&half(event))
    }

    /// Takes it for the file; false where another relay was faster. Beyond [`MAX_IDS`] nothing is
    /// remembered.
    pub(super) fn take(&self, event: &Event<'_>) -> bool {
        let mut set = self.set();
        if set.len() >= MAX_IDS { !set.contains(&half(event)) } else { set.insert(half(event)) }
    }

    fn set(&self) -> std::sync::MutexGuard<'_, HashSet<Half>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn half(event: &Event<'_>) -> Half {
    event.id.first_chunk().copied().expect("an id has 32 bytes")
}

/// Appends to a file and remembers what it holds.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    writer: EventWriter,
    ids: Arc<Ids>,
    events: u64,
    before: u64,
    /// Since the last checkpoint.
    unsaved: u64,
    repaired: u64,
}

impl Output {
    /// Opens the file for more. What a crash cut short is cut back to the last whole event first.
    pub(super) fn open(path: &Path) -> anyhow::Result<Output> {
        if !FileFormat::of(path)?.can_grow() {
            return Err(CorpusError::CannotGrow { path: path.to_owned() }.into());
        }
        let ids = Arc::new(Ids::default());
        let (mut events, mut damage) = (0, None);
        if path.exists() {
            for event in EventReader::open(path)? {
                match event {
                    Ok(event) => {
                        ids.take(&event);
                        events += 1;
                    }
                    Err(error) => damage = Some(error),
                }
            }
        }
        if let Some(damage) = &damage {
            repair(path, events).with_context(|| format!("cannot repair: {damage}"))?;
        }
        let repaired = u64::from(damage.is_some());
        let writer = EventWriter::append(path)?;
        Ok(Output { path: path.to_owned(), writer, ids, events, before: events, unsaved: 0, repaired })
    }

    pub(super) fn ids(&self) -> Arc<Ids> {
        Arc::clone(&self.ids)
    }

    /// All in the file.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// Those of this run.
    pub(super) fn new_events(&self) -> u64 {
        self.events - self.before
    }

    /// How often the file had to be cut back.
    pub(super) fn repaired(&self) -> u64 {
        self.repaired
    }

    pub(super) fn write(&mut self, event: &Event<'_>) -> Result<(), CorpusError> {
        self.writer.write(event)?;
        self.events += 1;
        self.unsaved += 1;
        Ok(())
    }

    /// Ends the compressed stream and begins the next one, so that everything until now is readable
    /// whatever happens.
    pub(super) fn checkpoint(&mut self) -> Result<(), CorpusError> {
        if self.unsaved == 0 {
            return Ok(());
        }
        let next = EventWriter::append(&self.path)?;
        std::mem::replace(&mut self.writer, next).finish()?;
        self.unsaved = 0;
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(), CorpusError> {
        self.writer.finish()
    }
}

/// Copies the first `events` events and puts the copy in the file's place.
fn repair(path: &Path, events: u64) -> anyhow::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let copy = path.with_file_name(format!("repaired-{name}"));
    let mut writer = EventWriter::create(&copy)?;
    for event in EventReader::open(path)?.take(usize::try_from(events)?) {
        writer.write(&event?)?;
    }
    writer.finish()?;
    fs::rename(&copy, path).with_context(|| format!("cannot put {copy:?} in the place of {path:?}"))
}
