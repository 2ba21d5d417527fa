//! The events, as each format can hold them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use codecs::{Codec, Event, Format, Implementation};
use corpus::Corpus;

/// The kinds that have columns of their own: profiles, notes, follow lists, encrypted messages,
/// reactions, relay lists, articles.
pub(crate) const KINDS: [u16; 7] = [0, 1, 3, 4, 7, 10_002, 30_023];

/// Which events, from where.
#[derive(Debug, clap::Args)]
pub(crate) struct Source {
    /// Events to measure: .pb.gz, .jsonl, .jsonl.gz or .jsonl.zst. The bundled sample of generated
    /// events when not named. A relative path is one from the workspace's root, or else from the
    /// current folder
    #[arg(value_name = "FILE")]
    pub(crate) corpus: Option<PathBuf>,

    /// The first N events of the corpus only, for a short run
    #[arg(long, value_name = "N")]
    pub(crate) events: Option<usize>,

    /// Formats, with commas between; `core` is the nine core formats, `all` is every one
    #[arg(long, default_value = "all", value_name = "LIST")]
    pub(crate) formats: String,

    /// Passed by cargo to every bench.
    #[arg(long, hide = true)]
    pub(crate) bench: bool,
}

impl Source {
    /// The formats asked for, in the order of every table, JSON among them: shares are shares of
    /// JSON.
    ///
    /// # Errors
    /// A name that is no format; the message lists the known ones.
    pub(crate) fn formats(&self) -> anyhow::Result<Vec<Format>> {
        let mut wanted = vec![Format::JSON];
        for name in self.formats.split(',').map(str::trim) {
            match name {
                "all" => wanted.extend(Format::all()),
                "core" => wanted.extend(Format::core()),
                name => wanted.push(name.parse().context("--formats takes names, `core` or `all`")?),
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        Ok(wanted)
    }

    /// Reads the events.
    ///
    /// # Errors
    /// Says in one sentence what is wrong with the file.
    pub(crate) fn read(&self) -> anyhow::Result<Corpus> {
        let mut corpus = read_corpus(self.corpus.as_deref())?;
        if let Some(first) = self.events.filter(|first| *first < corpus.events.len()) {
            if first == 0 {
                bail!("--events 0 leaves nothing to measure; give 1 or more");
            }
            corpus.events.truncate(first);
            corpus =
                Corpus::from_events(format!("the first {first} events of {}", corpus.name), corpus.events);
        }
        Ok(corpus)
    }
}

/// The events of a file, or the bundled ones.
///
/// # Errors
/// Says in one sentence what is wrong with the file.
pub(crate) fn read_corpus(path: Option<&Path>) -> anyhow::Result<Corpus> {
    let Some(path) = path else { return Ok(Corpus::bundled()) };
    let here = from_root(path);
    let found = if here.exists() { here } else { path.to_owned() };
    if !found.exists() {
        let root = from_root(Path::new("."));
        bail!("no corpus {}; looked in {} and in the current folder", path.display(), root.display());
    }
    Ok(Corpus::read(&found)?)
}

/// Resolves a path against the workspace's root: cargo starts benches in the folder of their
/// package.
pub(crate) fn from_root(path: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the package is in `crates`");
    root.join(path)
}

/// Events that all formats of a table hold, in the corpus's order.
pub(crate) struct EventSet<'c> {
    pub(crate) events: Vec<&'c Event<'static>>,
    /// For each column, which events are in it.
    pub(crate) groups: Vec<Group>,
}

/// A column: a kind, or what is left.
pub(crate) struct Group {
    pub(crate) kind: Option<u16>,
    /// Places in [`EventSet::events`].
    pub(crate) members: Vec<usize>,
}

impl<'c> EventSet<'c> {
    fn new(events: Vec<&'c Event<'static>>) -> Self {
        let kind_of = |event: &Event<'_>| KINDS.into_iter().find(|kind| *kind == event.kind);
        let mut groups: Vec<Group> = Vec::new();
        for kind in KINDS.into_iter().map(Some).chain([None]) {
            let members = (0..events.len()).filter(|at| kind_of(events[*at]) == kind);
            groups.push(Group { kind, members: members.collect() });
        }
        EventSet { events, groups }
    }
}

/// For each format the events that it can hold, of those that every core format holds (whichever
/// are measured, so that runs compare). Most formats hold all of these and share the first set; one
/// that holds less has a set of its own, with rows of its own to be divided by.
pub(crate) struct Sets<'c> {
    pub(crate) sets: Vec<EventSet<'c>>,
    pub(crate) of_format: BTreeMap<Format, usize>,
}

impl<'c> Sets<'c> {
    /// Sorts the events of a corpus by who can hold them.
    ///
    /// # Errors
    /// A format that holds none of them.
    pub(crate) fn new(events: &'c [Event<'static>], formats: &[Format]) -> anyhow::Result<Self> {
        let hold = |event: &&Event<'_>| Format::core().all(|format| holds(format, event));
        let common: Vec<&Event<'static>> = events.iter().filter(hold).collect();
        let mut masks = vec![vec![true; common.len()]];
        let mut of_format = BTreeMap::new();
        for format in formats {
            let mask: Vec<bool> = common.iter().map(|event| holds(*format, event)).collect();
            if !mask.contains(&true) {
                bail!("{format} can hold none of the {} events", events.len());
            }
            let at = masks.iter().position(|known| *known == mask).unwrap_or_else(|| {
                masks.push(mask);
                masks.len() - 1
            });
            of_format.insert(*format, at);
        }
        let set = |mask: &Vec<bool>| {
            EventSet::new(
                common.iter().zip(mask).filter(|(_, held)| **held).map(|(event, _)| *event).collect(),
            )
        };
        Ok(Sets { sets: masks.iter().map(set).collect(), of_format })
    }

    pub(crate) fn for_format(&self, format: Format) -> &EventSet<'c> {
        &self.sets[self.of_format[&format]]
    }
}

fn holds(format: Format, event: &Event<'_>) -> bool {
    format.spec().library.encode_event(event, &mut Vec::new()).is_ok()
}

/// The codecs of a format with the word for each.
pub(crate) fn codecs_of(format: Format) -> impl Iterator<Item = (Implementation, &'static dyn Codec)> {
    Implementation::ALL.into_iter().filter_map(move |by| Some((by, format.codec(by).ok()?)))
}

/// The bytes of an event that the format is known to hold.
pub(crate) fn encode(codec: &dyn Codec, event: &Event<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    codec.encode_event(event, &mut out).expect("events that the format cannot hold were set aside");
    out
}
