//! Events in memory, with their name, origin and fingerprint.

use std::{collections::BTreeMap, path::Path, sync::LazyLock};

use codecs::Event;

use crate::{Census, CorpusError, Counted, Events, Fingerprint, Origin, Skipped};

/// Signed events in a fixed order, each id once.
#[derive(Debug, Clone)]
pub struct Corpus {
    /// The events, in file order.
    pub events: Vec<Event<'static>>,
    /// The file's name without its folders, for results.
    pub name: String,
    /// Origin of the events.
    pub origin: Origin,
    /// Names exactly these events in this order.
    pub fingerprint: Fingerprint,
    /// Records of the file that are no valid events, see [`Corpus::read_with`].
    pub skipped: Skipped,
}

impl Corpus {
    /// Reads a file whole: `.jsonl`, `.jsonl.gz`, `.jsonl.zst` (one NIP-01 object a line) or
    /// `.pb.gz` (length-delimited ProtoEvent, see `data/README.md`). Ids and signatures are not
    /// verified.
    ///
    /// # Errors
    /// [`CorpusError`] for a file that is missing, of another type, damaged, or without events. It
    /// names the place; nothing is read past damage, because half a corpus answers another
    /// question.
    pub fn read(path: &Path) -> Result<Corpus, CorpusError> {
        Corpus::read_with(path, false)
    }

    /// [`Corpus::read`], or with `skip_invalid` the valid events of the file: invalid ones are left
    /// out and counted.
    ///
    /// # Errors
    /// As [`Corpus::read`]; with `skip_invalid` only for a file that cannot be read or holds no
    /// valid event.
    pub fn read_with(path: &Path, skip_invalid: bool) -> Result<Corpus, CorpusError> {
        Corpus::from_file(Events::open(path, skip_invalid)?)
    }

    /// [`Corpus::read`] for an untrusted file, in bounded memory: its decompressed stream may have
    /// at most `most_bytes`.
    ///
    /// # Errors
    /// As [`Corpus::read`], with [`RecordError::StreamTooLarge`](crate::RecordError::StreamTooLarge)
    /// for a longer stream.
    pub fn read_within(path: &Path, most_bytes: u64) -> Result<Corpus, CorpusError> {
        Corpus::from_file(Events::open_within(path, Some(most_bytes))?)
    }

    fn from_file(mut file: Events) -> Result<Corpus, CorpusError> {
        let events = file.by_ref().collect::<Result<Vec<_>, _>>()?;
        let (path, skipped) = (file.path(), file.skipped().clone());
        if events.is_empty() {
            return Err(CorpusError::without_events(path, &skipped));
        }
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Corpus { skipped, ..Corpus::from_events(name, events) })
    }

    /// The sample in `data/sample.pb.gz`, compiled in: 5,000 generated events, the default corpus
    /// of every program.
    ///
    /// # Panics
    /// Only if the file in the repository is damaged; a test reads it.
    pub fn bundled() -> Corpus {
        // Cached: tests call this often, and unoptimised inflation of 9 MB takes seconds.
        static BUNDLED: LazyLock<Corpus> = LazyLock::new(|| {
            let bytes: &[u8] = include_bytes!("../../../data/sample.pb.gz");
            Events::from_stream(Path::new("sample.pb.gz"), bytes, None)
                .and_then(Corpus::from_file)
                .expect("a test reads the bundled sample whole")
        });
        BUNDLED.clone()
    }

    /// A corpus of events in memory. Keeps the first event of each id: a relay refuses the others,
    /// and a run that planned with them could not account for every event.
    pub fn from_events(name: String, mut events: Vec<Event<'static>>) -> Corpus {
        let mut census = Census::default();
        events.retain(|event| census.add(event));
        let Counted { origin, fingerprint, .. } = census.finish();
        Corpus { name, origin, fingerprint, events, skipped: Skipped::default() }
    }

    /// How many events there are of each kind.
    pub fn kinds(&self) -> BTreeMap<u16, usize> {
        let mut kinds = BTreeMap::new();
        for event in &self.events {
            *kinds.entry(event.kind).or_default() += 1;
        }
        kinds
    }
}
