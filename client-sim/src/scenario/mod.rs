//! A scenario file: who connects, what they ask, publish and read, and when.
//!
//! A scenario is one TOML file under `scenarios/`; the files there are part of the program. Format and compression
//! are not in it: they are what a scenario is run with.

use std::{fs, path::Path};

use anyhow::{Context, bail, ensure};
use codecs::UnknownName;
use include_dir::{Dir, include_dir};
use serde::Deserialize;

static BUILT_IN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../scenarios");

/// What a scenario file says. Unknown keys are errors.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// File name without `.toml`.
    #[serde(skip)]
    pub name: String,
    /// What the scenario finds out.
    pub question: String,
    /// What a NIP author takes from the answer.
    pub learn: String,
    /// Where the parameters come from.
    #[serde(default)]
    pub sources: Vec<String>,
    /// How long work is started for, in seconds.
    pub seconds: f64,
    /// Clients that ask for stored events.
    #[serde(default)]
    pub request: Vec<Request>,
    /// Clients that publish.
    #[serde(default)]
    pub publish: Vec<Publish>,
    /// Clients that keep live subscriptions.
    #[serde(default)]
    pub subscribe: Vec<Subscribe>,
}

/// Clients that ask for stored events: each arrival is a session that runs through all steps.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// How many clients.
    pub connections: usize,
    /// When sessions start.
    pub arrival: Arrival,
    /// What a session asks, one step after the other.
    pub step: Vec<Step>,
}

/// One step of a session: requests sent together; the step ends with the EOSE of the last.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Kinds asked for.
    pub kinds: Vec<u16>,
    /// Authors asked for, drawn anew for every session.
    pub authors: usize,
    /// How many of the authors have such events at the relay; all when absent.
    pub known: Option<usize>,
    /// Authors in one REQ; all in one when absent.
    pub chunk: Option<usize>,
}

/// Clients that publish.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    /// How many clients share the rate.
    pub connections: usize,
    /// When events are due.
    pub arrival: Arrival,
    /// Which kinds of the corpus; all when absent.
    pub kinds: Option<Vec<u16>>,
}

/// Clients that keep live subscriptions.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subscribe {
    /// How many clients.
    pub connections: usize,
    /// One subscription each.
    pub filter: Vec<LiveFilter>,
}

/// A live subscription.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveFilter {
    /// Kinds subscribed to.
    pub kinds: Vec<u16>,
    /// How many of the publishing authors, drawn anew for every connection; any author when absent.
    pub authors: Option<usize>,
}

/// When things are due. The whole schedule is computed from the seed before the run.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(tag = "shape", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Arrival {
    /// Every connection at once, again and again.
    Burst {
        /// From one burst to the next.
        period_ms: u64,
    },
    /// Evenly spaced over all connections together.
    Constant {
        /// Arrivals per second over all connections together.
        rate_per_s: f64,
    },
    /// Independent arrivals: exponential gaps.
    Poisson {
        /// Mean arrivals per second over all connections together.
        rate_per_s: f64,
    },
}

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

    /// Loads a built-in scenario by name, or a file when `name` ends in `.toml`.
    ///
    /// # Errors
    /// Names the file and the place in it, or lists the known scenarios.
    pub fn load(name: &str) -> anyhow::Result<Scenario> {
        if let Some(stem) = name.strip_suffix(".toml") {
            let text = fs::read_to_string(name).with_context(|| format!("cannot read scenario {name}"))?;
            let stem = Path::new(stem).file_name().map_or(stem.into(), |f| f.to_string_lossy());
            return Scenario::parse(&stem, &text).with_context(|| format!("in scenario {name}"));
        }
        let Some(file) = BUILT_IN.get_file(format!("{name}.toml")) else {
            let unknown = UnknownName::new("scenario", name, Scenario::names());
            bail!("{unknown} (or the path of a file that ends in .toml)");
        };
        let text = file.contents_utf8().with_context(|| format!("scenario {name} is not UTF-8"))?;
        Scenario::parse(name, text).with_context(|| format!("in scenario {name}"))
    }

    /// Reads the text of a scenario file.
    ///
    /// # Errors
    /// Says what is wrong, where, and what is allowed there.
    pub fn parse(name: &str, text: &str) -> anyhow::Result<Scenario> {
        let mut scenario: Scenario = toml::from_str(text)?;
        name.clone_into(&mut scenario.name);
        scenario.check()?;
        Ok(scenario)
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.seconds > 0.0 && self.seconds <= 3_600.0, "seconds must be above 0 and at most 3600");
        ensure!(
            !(self.request.is_empty() && self.publish.is_empty()),
            "nothing happens: a scenario needs a [[request]] or a [[publish]]"
        );
        ensure!(
            self.subscribe.is_empty() || !self.publish.is_empty(),
            "[[subscribe]] without [[publish]]: nothing would be delivered"
        );
        for request in &self.request {
            check_population(request.connections, request.arrival).context("in [[request]]")?;
            ensure!(!request.step.is_empty(), "a [[request]] needs at least one [[request.step]]");
            for step in &request.step {
                ensure!(!step.kinds.is_empty(), "kinds of a [[request.step]] must not be empty");
                ensure!(step.authors > 0, "authors of a [[request.step]] must be at least 1");
                ensure!(step.chunk != Some(0), "chunk of a [[request.step]] must be at least 1");
                ensure!(
                    step.known.is_none_or(|known| known <= step.authors),
                    "known of a [[request.step]] must not exceed its authors"
                );
            }
        }
        for publish in &self.publish {
            check_population(publish.connections, publish.arrival).context("in [[publish]]")?;
        }
        for subscribe in &self.subscribe {
            ensure!(subscribe.connections > 0, "connections of a [[subscribe]] must be at least 1");
            ensure!(!subscribe.filter.is_empty(), "a [[subscribe]] needs at least one [[subscribe.filter]]");
        }
        Ok(())
    }

    /// How many clients connect.
    pub fn connections(&self) -> usize {
        self.publish.iter().map(|p| p.connections).sum::<usize>()
            + self.subscribe.iter().map(|s| s.connections).sum::<usize>()
            + self.request.iter().map(|r| r.connections).sum::<usize>()
    }

    /// Sets the rate of every population that has one.
    ///
    /// # Errors
    /// When there is none.
    pub fn set_publish_rate(&mut self, rate: f64) -> anyhow::Result<()> {
        ensure!(rate > 0.0 && rate.is_finite(), "a rate must be above 0");
        ensure!(!self.publish.is_empty(), "scenario {} publishes nothing, so it has no rate", self.name);
        for publish in &mut self.publish {
            match &mut publish.arrival {
                Arrival::Constant { rate_per_s } | Arrival::Poisson { rate_per_s } => *rate_per_s = rate,
                Arrival::Burst { .. } => {
                    bail!("scenario {} publishes in bursts, which have no rate", self.name)
                }
            }
        }
        Ok(())
    }
}

fn check_population(connections: usize, arrival: Arrival) -> anyhow::Result<()> {
    ensure!(connections > 0, "connections must be at least 1");
    match arrival {
        Arrival::Burst { period_ms } => ensure!(period_ms > 0, "period_ms must be at least 1"),
        Arrival::Constant { rate_per_s } | Arrival::Poisson { rate_per_s } => {
            ensure!(rate_per_s > 0.0 && rate_per_s.is_finite(), "rate_per_s must be above 0");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_scenario_loads_and_asks_its_question() {
        let names = Scenario::names();
        assert!(names.contains(&"follow-list-burst"), "{names:?}");
        for name in names {
            let scenario = Scenario::load(name).unwrap();
            assert!(scenario.question.ends_with('?'), "{name}");
            assert!(!scenario.learn.is_empty(), "{name}");
        }
    }

    #[test]
    fn unknown_keys_and_names_are_errors_that_list_what_is_known() {
        let text = Scenario::load("nope").unwrap_err().to_string();
        assert!(text.contains("note-stream"), "{text}");
        let base = BUILT_IN.get_file("note-stream.toml").unwrap().contents_utf8().unwrap();
        for extra in ["colour = 1\n", "[extra]\n"] {
            let text = format!("{:#}", Scenario::parse("x", &format!("{extra}{base}")).unwrap_err());
            assert!(text.contains("unknown field"), "{text}");
        }
        let typo = base.replace("rate_per_s = 2000", "rate = 2000");
        assert!(Scenario::parse("x", &typo).is_err());
        let typo = base.replace("rate_per_s = 2000", "rate_per_s = 2000, rtae = 1");
        assert!(Scenario::parse("x", &typo).is_err());
    }

    #[test]
    fn values_that_make_no_sense_are_refused() {
        let base = BUILT_IN.get_file("follow-list-burst.toml").unwrap().contents_utf8().unwrap();
        for (from, to) in [
            ("seconds = 2", "seconds = 0"),
            ("connections = 50", "connections = 0"),
            ("period_ms = 1000", "period_ms = 0"),
            ("known = 40", "known = 500"),
            ("chunk = 200", "chunk = 0"),
        ] {
            assert!(base.contains(from), "{from}");
            assert!(Scenario::parse("x", &base.replace(from, to)).is_err(), "{to}");
        }
    }
}
