//! Scenarios: which clients connect, what they request, publish and read, and when.
//!
//! A scenario is one TOML file; those under `scenarios/` are built in. Format and compression are
//! not part of a scenario, so that each can be compared under the same load.

mod change;
mod check;
mod saturate;
mod schema;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, fs, path::Path, sync::Arc};

use anyhow::{Context, bail, ensure};
use codecs::{Event, KindClass, UnknownName};
use include_dir::{Dir, include_dir};
use serde::Deserialize;
use toml::{Table, Value};

use crate::recorded::Recorded;

pub(crate) use self::change::scaled;
pub use self::schema::{
    Access, Arrival, Bound, Connect, Draw, FanIn, Hot, LiveFilter, OnDuplicate, Phase, Publish, Reconcile,
    Replay, Request, Scenario, Shares, Span, Step, Subscribe, TagChoice,
};

static BUILT_IN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../scenarios");

impl Scenario {
    /// The built-in scenarios' names, in alphabetical order.
    pub fn names() -> Vec<&'static str> {
        let mut names: Vec<_> = BUILT_IN
            .files()
            .filter_map(|file| file.path().file_name()?.to_str()?.strip_suffix(".toml"))
            .collect();
        names.sort_unstable();
        names
    }

    /// Loads a built-in scenario by name, a file when `name` ends in `.toml`, or a recording when it
    /// ends in `.jsonl.zst`.
    ///
    /// # Errors
    /// Says what is wrong with the file and where, or lists the known scenarios.
    pub fn load(name: &str) -> anyhow::Result<Scenario> {
        Scenario::load_with(name, &[])
    }

    /// Loads a scenario and applies `key=value` changes to it.
    ///
    /// # Errors
    /// As [`Scenario::load`], and when a change does not apply.
    pub fn load_with(name: &str, changes: &[String]) -> anyhow::Result<Scenario> {
        if is_recording(name) {
            ensure!(
                changes.is_empty(),
                "--set changes keys of a scenario, and {name} is a recording: it has none"
            );
            return Scenario::of_recording(name).with_context(|| format!("cannot play {name}"));
        }
        let (stem, text) = read(name)?;
        Scenario::parse_with(&stem, &text, changes).with_context(|| format!("in scenario {name}"))
    }

    fn of_recording(file: &str) -> anyhow::Result<Scenario> {
        let recorded = Arc::new(Recorded::read(Path::new(file))?);
        let mut scenario: Scenario = toml::from_str(
            "question = \"What does what real clients did cost with this relay, format and compression?\"\n\
             learn = \"How far invented scenarios are from a real day.\"",
        )?;
        recorded.name.trim_end_matches(RECORDING).clone_into(&mut scenario.name);
        scenario.replay = Some(Replay { recorded, cut_s: None });
        scenario.fit();
        Ok(scenario)
    }

    /// Reads the text of a scenario file.
    ///
    /// # Errors
    /// Says what is wrong, where, and what is allowed there.
    pub fn parse(name: &str, text: &str) -> anyhow::Result<Scenario> {
        Scenario::parse_with(name, text, &[])
    }

    fn arrivals(&self) -> impl Iterator<Item = Arrival> {
        self.populations().filter_map(|population| population.arrival)
    }

    /// Why a block of so many seconds holds too few bursts, and what would do; `None` without
    /// bursts.
    pub fn too_few_bursts(&self, seconds: f64) -> Option<String> {
        /// The first burst pays for what later ones find ready.
        const FEWEST: f64 = 5.0;
        if self.saturated {
            return None;
        }
        let period = |arrival| match arrival {
            Arrival::Burst { period_ms } => Some(period_ms),
            _ => None,
        };
        let period_s = self.arrivals().filter_map(period).max()?.max(1) as f64 / 1e3;
        // The first burst is due at the start.
        let bursts = (seconds / period_s).ceil();
        let enough = ((FEWEST - 1.0) * period_s).floor() + 1.0;
        let noun = if bursts > 1.0 { "bursts" } else { "burst" };
        (bursts < FEWEST).then(|| {
            format!(
                "a block of {seconds} s of {} holds {bursts} {noun}, and fewer than {FEWEST} mix what is young with \
                 what is steady: --seconds {enough} would do",
                self.name
            )
        })
    }

    /// Whether the relay holds such a corpus event before the clock starts.
    pub(crate) fn stores(&self, event: &Event<'_>) -> bool {
        let steps = self.request.iter().flat_map(|request| &request.step).map(|step| step.kinds.as_deref());
        let fan_in = self.fan_in.iter().map(|fan_in| fan_in.kinds.as_deref());
        let reconcile = self.reconcile.iter().map(|reconcile| reconcile.kinds.as_deref());
        let mut kinds = steps.chain(fan_in).chain(reconcile);
        event.class() != KindClass::Ephemeral && kinds.any(|kinds| is_among(event, kinds))
    }

    /// Whether a plan may have such a corpus event.
    pub fn may_have(&self, event: &Event<'_>) -> bool {
        self.stores(event) || self.publish.iter().any(|publish| publish.has(event))
    }

    fn parse_with(name: &str, text: &str, changes: &[String]) -> anyhow::Result<Scenario> {
        // Parses the text itself first, because only then does an error show the line.
        let mut scenario: Scenario = toml::from_str(text)?;
        let mut table: Table = text.parse().context("it was TOML a moment ago")?;
        if !changes.is_empty() {
            changes.iter().try_for_each(|change| change::set(&mut table, change))?;
            scenario = Scenario::deserialize(table.clone())
                .with_context(|| format!("after --set {}", changes.join(" --set ")))?;
        }
        check::check_values("", &Value::Table(table))?;
        name.clone_into(&mut scenario.name);
        scenario.check()?;
        Ok(scenario)
    }
}

impl Publish {
    /// Whether its clients publish events of this one's kind.
    pub(crate) fn has(&self, event: &Event<'_>) -> bool {
        let is_shared = |Shares(shares): &Shares| shares.contains_key(&event.kind);
        is_among(event, self.kinds.as_deref()) && self.shares.as_ref().is_none_or(is_shared)
    }
}

/// Whether the event is of one of these kinds; any is without a list.
pub(crate) fn is_among(event: &Event<'_>, kinds: Option<&[u16]>) -> bool {
    kinds.is_none_or(|kinds| kinds.contains(&event.kind))
}

/// How names of recordings end.
const RECORDING: &str = ".jsonl.zst";

/// Whether the name of a scenario is the path of a recording.
pub fn is_recording(name: &str) -> bool {
    name.ends_with(RECORDING)
}

/// The scenario's name and its text.
fn read(name: &str) -> anyhow::Result<(String, Cow<'static, str>)> {
    if let Some(stem) = name.strip_suffix(".toml") {
        let text = fs::read_to_string(name).with_context(|| format!("cannot read scenario {name}"))?;
        let stem = Path::new(stem).file_name().map_or(stem.into(), |f| f.to_string_lossy());
        return Ok((stem.into_owned(), text.into()));
    }
    let Some(file) = BUILT_IN.get_file(format!("{name}.toml")) else {
        let unknown = UnknownName::new("scenario", &terms::without_password(name), Scenario::names());
        bail!(
            "{unknown} (or the path of a file that ends in .toml, or of a recording that ends in {RECORDING})"
        );
    };
    let text = file.contents_utf8().with_context(|| format!("scenario {name} is not UTF-8"))?;
    Ok((name.to_owned(), text.into()))
}
