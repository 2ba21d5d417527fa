//! Checks a scenario whose keys are right for values that make no sense.

use anyhow::{Context, ensure};
use codecs::UnknownName;

use super::schema::{
    Arrival, Bound, Connect, FanIn, LiveFilter, Population, Publish, Reconcile, Request, Scenario, Step,
    Subscribe, TagChoice,
};
use crate::figure;

/// Most stored events that `relay-sim` sends for one filter (`--max-limit`; `max_limit` of NIP-11).
const MAX_LIMIT: u64 = 5_000;

/// Stored events that `relay-sim` sends for a filter without a limit (`--default-limit`;
/// `default_limit` of NIP-11).
const MAX_CHUNK: usize = 500;

/// Sizes of a negentropy message: the least that the negentropy crate takes, and the most that fits
/// into a message of 1 MiB.
const FRAME_BYTES: std::ops::RangeInclusive<usize> = 4_096..=500_000;

/// Values of `decode_every`: 1 is what clients do without it.
const DECODE_EVERY: std::ops::RangeInclusive<u32> = 2..=1_000_000;

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
            ensure!(phase.seconds > 0.0, "seconds of phase {:?} must be above 0", phase.name);
            ensure!(
                phase.load.iter().all(|load| (0.0..=1e3).contains(load))
                    && phase.load.iter().any(|l| *l > 0.0),
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
        check_light(request.decode_every)?;
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
        check_kinds(reconcile.kinds.as_deref())?;
        ensure!((0.0..=1.0).contains(&reconcile.have), "have is a share, 0 to 1");
        ensure!(
            FRAME_BYTES.contains(&reconcile.frame_bytes),
            "frame_bytes must be {} to {}: as hex in JSON it becomes twice as long, and relays take 1 MiB",
            FRAME_BYTES.start(),
            FRAME_BYTES.end()
        );
        ensure!((1..=MAX_CHUNK).contains(&reconcile.chunk), "chunk must be 1 to {MAX_CHUNK}");
        ensure!(
            reconcile.extra == 0 || self.request.is_empty(),
            "extra beside [[request]]: what a session asks for must be known beforehand"
        );
        Ok(())
    }

    /// Checks what all tables have. A name becomes part of the names of timings in results.
    fn check_population(&self, population: Population<'_>) -> anyhow::Result<()> {
        let Population { name, arrival, phases, .. } = population;
        ensure!(
            name.is_none_or(|name| !name.is_empty()
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')),
            "a name has lower-case letters, digits and hyphens, unlike {name:?}"
        );
        ensure!(population.connections() > 0, "connections must be at least 1");
        for name in phases.unwrap_or_default() {
            let known: Vec<_> = self.phase.iter().map(|phase| phase.name.as_str()).collect();
            ensure!(known.contains(&name.as_str()), UnknownName::new("phase", name, known));
        }
        ensure!(phases.is_none_or(|phases| !phases.is_empty()), "phases must not be empty");
        match arrival {
            Some(Arrival::Burst { period_ms }) => ensure!(period_ms > 0, "period_ms must be at least 1"),
            Some(Arrival::Constant { rate_per_s } | Arrival::Poisson { rate_per_s }) => {
                ensure!(rate_per_s > 0.0 && rate_per_s.is_finite(), "rate_per_s must be above 0");
            }
            Some(Arrival::Spread { over_ms }) => ensure!(over_ms > 0, "over_ms must be at least 1"),
            Some(Arrival::Closed { rounds, .. }) => ensure!(rounds > 0, "rounds must be at least 1"),
            None => {}
        }
        Ok(())
    }
}

fn check_publish(publish: &Publish) -> anyhow::Result<()> {
    at_least_one([
        ("window", publish.window),
        ("values of hot", publish.hot.as_ref().map(|hot| hot.values)),
    ])?;
    ensure!(
        publish.window.is_none() || matches!(publish.arrival, Arrival::Closed { .. }),
        "window needs arrival = {{ shape = \"closed\", … }}: open arrivals never wait"
    );
    ensure!(
        publish.shares.as_ref().is_none_or(|s| !s.0.is_empty() && s.0.values().all(|v| *v > 0.0)),
        "shares must be above 0"
    );
    ensure!(publish.shares.is_none() || publish.kinds.is_none(), "it has kinds or shares, not both");
    Ok(())
}

fn check_subscribe(subscribe: &Subscribe) -> anyhow::Result<()> {
    ensure!(!subscribe.filter.is_empty(), "it needs at least one [[subscribe.filter]]");
    check_live(&subscribe.filter).context("in [[subscribe.filter]]")?;
    check_light(subscribe.decode_every)?;
    ensure!(
        subscribe.decode_every.is_none() || subscribe.read_bytes_per_s.is_none(),
        "it has decode_every or read_bytes_per_s, not both: a slow reader catches up event by event"
    );
    Ok(())
}

fn check_fan_in(fan_in: &FanIn) -> anyhow::Result<()> {
    let FanIn { relays, duplicates, .. } = *fan_in;
    check_kinds(fan_in.kinds.as_deref())?;
    at_least_one([("events", Some(fan_in.events))])?;
    ensure!((1..=MAX_CHUNK).contains(&fan_in.chunk), "chunk must be 1 to {MAX_CHUNK}");
    // Each relay brings an event at most once.
    let most = 1.0 - 1.0 / relays as f64;
    ensure!(
        (0.0..=most).contains(&duplicates),
        "duplicates must be 0 to {most:.2} with {relays} relays, from each of which an event comes once"
    );
    Ok(())
}

/// Refuses 0 for these keys.
fn at_least_one<const N: usize>(values: [(&str, Option<usize>); N]) -> anyhow::Result<()> {
    for (key, value) in values {
        ensure!(value != Some(0), "{key} must be at least 1");
    }
    Ok(())
}

fn check_kinds(kinds: Option<&[u16]>) -> anyhow::Result<()> {
    ensure!(kinds.is_none_or(|kinds| !kinds.is_empty()), "kinds must not be empty");
    Ok(())
}

fn check_light(decode_every: Option<u32>) -> anyhow::Result<()> {
    let (least, most) = (DECODE_EVERY.start(), DECODE_EVERY.end());
    ensure!(
        decode_every.is_none_or(|every| DECODE_EVERY.contains(&every)),
        "decode_every must be {least} to {most}; leave it out to decode every delivery"
    );
    Ok(())
}

fn check_step(step: &Step) -> anyhow::Result<()> {
    check_kinds(step.kinds.as_deref())?;
    let Step { authors, chunk, times, pages, .. } = *step;
    at_least_one([("authors", authors), ("chunk", chunk), ("times", times), ("pages", pages)])?;
    check_tag(step.tag.as_ref())?;
    let drawn = step.authors.or(step.tag.as_ref().map(|tag| tag.values));
    for (key, value) in [("known", step.known), ("chunk", step.chunk)] {
        ensure!(value.is_none() || drawn.is_some(), "{key} needs authors or a tag to count");
    }
    ensure!(step.known <= drawn, "known must not exceed what is asked for");
    ensure!(
        step.limit.is_none_or(|limit| (1..=MAX_LIMIT).contains(&limit)),
        "limit must be 1 to {MAX_LIMIT}, the most that relay-sim sends for one filter"
    );
    ensure!(step.pages.is_none() || step.limit.is_some(), "pages needs a limit: it is the length of a page");
    ensure!(step.pages.is_none() || step.newest.is_none(), "a step has pages or newest, not both");
    ensure!(
        step.kinds.is_some() || drawn.is_some() || step.limit.is_some() || step.newest.is_some(),
        "a step that asks for everything needs a limit"
    );
    Ok(())
}

fn check_live(filters: &[LiveFilter]) -> anyhow::Result<()> {
    for filter in filters {
        check_kinds(filter.kinds.as_deref())?;
        at_least_one([("authors", filter.authors)])?;
        check_tag(filter.tag.as_ref())?;
    }
    Ok(())
}

fn check_tag(tag: Option<&TagChoice>) -> anyhow::Result<()> {
    let Some(tag) = tag else { return Ok(()) };
    ensure!(tag.name.is_ascii_alphabetic(), "a tag condition has a single letter, unlike {:?}", tag.name);
    at_least_one([("values of a tag", Some(tag.values))])
}
