//! Checks a scenario whose keys are right for values that make no sense.

use anyhow::{Context, ensure};
use codecs::UnknownName;
use toml::Value;

use super::schema::{
    Arrival, Bound, Connect, FanIn, LiveFilter, Population, Publish, Reconcile, Request, Scenario, Step,
    Subscribe, TagChoice,
};
use crate::figure;

/// Keys of numbers that are 1 at least.
const COUNTS: [&str; 13] = [
    "authors",
    "clients",
    "connections",
    "events",
    "over_ms",
    "pages",
    "period_ms",
    "relays",
    "rounds",
    "step.chunk",
    "times",
    "values",
    "window",
];

/// Other numbers by their key, with the least and the most that make sense, and these in words.
/// `relay-sim` sends 500 stored events for a filter without a limit and 5,000 at most (`default_limit`
/// and `max_limit` of NIP-11), and the negentropy crate takes no less than 4,096 bytes.
const RANGES: [(&str, f64, f64, &str); 10] = [
    ("rate_per_s", f64::MIN_POSITIVE, f64::MAX, "above 0"),
    ("shares", f64::MIN_POSITIVE, f64::MAX, "above 0"),
    ("seconds", f64::MIN_POSITIVE, 3_600.0, "above 0 and at most 3600"),
    ("load", 0.0, 1e3, "0 to 1000"),
    ("have", 0.0, 1.0, "0 to 1"),
    ("fan_in.chunk", 1.0, 500.0, "1 to 500"),
    ("reconcile.chunk", 1.0, 500.0, "1 to 500"),
    ("limit", 1.0, 5_000.0, "1 to 5000, the most that relay-sim sends for one filter"),
    (
        "frame_bytes",
        4_096.0,
        500_000.0,
        "4096 to 500000: as hex in JSON it becomes twice as long, and relays take 1 MiB",
    ),
    ("decode_every", 2.0, 1e6, "2 to 1000000; leave it out to decode every delivery"),
];

/// Keys of lists that have a member at least.
const LISTS: [&str; 3] = ["filter", "kinds", "phases"];

/// Checks each value by itself; `path` leads to it from the file.
pub(super) fn check_values(path: &str, value: &Value) -> anyhow::Result<()> {
    let is_of = |key: &str| path.strip_suffix(key).is_some_and(|before| before.ends_with('.'));
    let number = match value {
        Value::Table(table) => {
            return table.iter().try_for_each(|(key, value)| match key.parse::<u16>() {
                // Shares, by kind.
                Ok(_) => check_values(path, value),
                Err(_) => check_values(&format!("{path}.{key}"), value),
            });
        }
        Value::Array(list) => {
            ensure!(!list.is_empty() || !LISTS.into_iter().any(is_of), "{} must not be empty", &path[1..]);
            return list.iter().try_for_each(|value| check_values(path, value));
        }
        Value::Integer(number) => *number as f64,
        Value::Float(number) => *number,
        _ => return Ok(()),
    };
    let counts = COUNTS.map(|key| (key, 1.0, f64::MAX, "at least 1"));
    for (key, least, most, words) in counts.into_iter().chain(RANGES) {
        ensure!(!is_of(key) || (least..=most).contains(&number), "{} must be {words}", &path[1..]);
    }
    Ok(())
}

impl Scenario {
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        self.check_time()?;
        ensure!(
            self.arrivals().next().is_some(),
            "nothing happens: a scenario needs a [[request]], a [[publish]], a [[fan_in]] or a [[reconcile]]"
        );
        ensure!(
            self.subscribe.is_empty() || !self.publish.is_empty(),
            "[[subscribe]] without [[publish]]: nothing would be delivered"
        );
        for population in self.populations() {
            self.check_population(population).with_context(|| format!("in [[{}]]", population.table))?;
        }
        self.request.iter().try_for_each(|one| self.check_request(one)).context("in [[request]]")?;
        self.publish.iter().try_for_each(check_publish).context("in [[publish]]")?;
        self.subscribe.iter().try_for_each(check_subscribe).context("in [[subscribe]]")?;
        self.fan_in.iter().try_for_each(check_fan_in).context("in [[fan_in]]")?;
        self.reconcile.iter().try_for_each(|one| self.check_reconcile(one)).context("in [[reconcile]]")?;
        for (name, Bound { min, max }) in &self.expect {
            figure::check_name(name).context("in [expect]")?;
            ensure!(min.or(*max).is_some(), "[expect] {name} needs a min or a max");
        }
        Ok(())
    }

    fn check_time(&mut self) -> anyhow::Result<()> {
        for (n, phase) in self.phase.iter().enumerate() {
            ensure!(
                phase.load.iter().any(|load| *load > 0.0),
                "load of phase {:?} is two shares, [from, to], not both 0",
                phase.name
            );
            ensure!(
                self.phase[..n].iter().all(|earlier| earlier.name != phase.name),
                "two phases are called {:?}",
                phase.name
            );
        }
        if !self.phase.is_empty() {
            ensure!(self.seconds == 0.0, "seconds belongs to each [[phase]] where there are phases");
            self.seconds = self.phase.iter().map(|phase| phase.seconds).sum();
        }
        ensure!(self.seconds > 0.0 && self.seconds <= 3_600.0, "seconds must be above 0 and at most 3600");
        Ok(())
    }

    fn check_request(&self, request: &Request) -> anyhow::Result<()> {
        ensure!(
            !request.step.is_empty() || !request.live.is_empty(),
            "it needs at least one [[request.step]] or [[request.live]]"
        );
        for step in &request.step {
            check_step(step).context("in [[request.step]]")?;
        }
        ensure!(
            !request.step.first().is_some_and(|s| s.with_previous),
            "with_previous: there is no step before"
        );
        check_live(&request.live).context("in [[request.live]]")?;
        ensure!(
            request.live.is_empty() || !self.publish.is_empty(),
            "[[request.live]] without [[publish]]: nothing would be delivered"
        );
        ensure!(
            request.live.is_empty() == request.stay_ms.is_none(),
            "stay_ms says how long [[request.live]] lasts: give both or neither"
        );
        ensure!(
            request.decode_every.is_none() || request.live.is_empty(),
            "decode_every beside [[request.live]]: the events of a stay are owed one by one, so leave one of them out"
        );
        ensure!(
            request.connect == Connect::Before || !matches!(request.arrival, Arrival::Burst { .. }),
            "a burst with connect = \"{}\" has no bound on when connections are made; use shape = \"spread\"",
            if request.connect == Connect::Again { "again" } else { "per-session" }
        );
        Ok(())
    }

    fn check_reconcile(&self, reconcile: &Reconcile) -> anyhow::Result<()> {
        ensure!(
            reconcile.extra == 0 || self.request.is_empty(),
            "extra beside [[request]]: what a session asks for must be known beforehand"
        );
        Ok(())
    }

    /// Checks what all tables have. A name becomes part of the names of timings in results.
    fn check_population(&self, population: Population<'_>) -> anyhow::Result<()> {
        let Population { name, phases, .. } = population;
        ensure!(
            name.is_none_or(|name| !name.is_empty()
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')),
            "a name has lower-case letters, digits and hyphens, unlike {name:?}"
        );
        for name in phases.unwrap_or_default() {
            let known: Vec<_> = self.phase.iter().map(|phase| phase.name.as_str()).collect();
            ensure!(known.contains(&name.as_str()), UnknownName::new("phase", name, known));
        }
        Ok(())
    }
}

fn check_publish(publish: &Publish) -> anyhow::Result<()> {
    ensure!(
        publish.window.is_none() || matches!(publish.arrival, Arrival::Closed { .. }),
        "window needs arrival = {{ shape = \"closed\", … }}: open arrivals never wait"
    );
    ensure!(publish.shares.as_ref().is_none_or(|shares| !shares.0.is_empty()), "shares must not be empty");
    ensure!(publish.shares.is_none() || publish.kinds.is_none(), "it has kinds or shares, not both");
    Ok(())
}

fn check_subscribe(subscribe: &Subscribe) -> anyhow::Result<()> {
    check_live(&subscribe.filter).context("in [[subscribe.filter]]")?;
    ensure!(
        subscribe.decode_every.is_none() || subscribe.read_bytes_per_s.is_none(),
        "it has decode_every or read_bytes_per_s, not both: a slow reader catches up event by event"
    );
    Ok(())
}

fn check_fan_in(fan_in: &FanIn) -> anyhow::Result<()> {
    let FanIn { relays, duplicates, .. } = *fan_in;
    // Each relay brings an event at most once.
    let most = 1.0 - 1.0 / relays as f64;
    ensure!(
        (0.0..=most).contains(&duplicates),
        "duplicates must be 0 to {most:.2} with {relays} relays, from each of which an event comes once"
    );
    Ok(())
}

fn check_step(step: &Step) -> anyhow::Result<()> {
    check_tag(step.tag.as_ref())?;
    let drawn = step.authors.or(step.tag.as_ref().map(|tag| tag.values));
    for (key, value) in [("known", step.known), ("chunk", step.chunk)] {
        ensure!(value.is_none() || drawn.is_some(), "{key} needs authors or a tag to count");
    }
    ensure!(step.known <= drawn, "known must not exceed what is asked for");
    ensure!(step.pages.is_none() || step.limit.is_some(), "pages needs a limit: it is the length of a page");
    ensure!(step.pages.is_none() || step.newest.is_none(), "a step has pages or newest, not both");
    ensure!(
        step.kinds.is_some() || drawn.is_some() || step.limit.is_some() || step.newest.is_some(),
        "a step that asks for everything needs a limit"
    );
    Ok(())
}

fn check_live(filters: &[LiveFilter]) -> anyhow::Result<()> {
    filters.iter().try_for_each(|filter| check_tag(filter.tag.as_ref()))
}

fn check_tag(tag: Option<&TagChoice>) -> anyhow::Result<()> {
    let is_letter = tag.is_none_or(|tag| tag.name.is_ascii_alphabetic());
    ensure!(is_letter, "a tag condition has a single letter, unlike {:?}", tag.map(|tag| tag.name));
    Ok(())
}
