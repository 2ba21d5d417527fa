//! Checks a scenario whose keys are right for values that make no sense.

use anyhow::{Context, ensure};
use codecs::UnknownName;

use super::schema::{
    Arrival, Bound, Connect, FanIn, LiveFilter, Reconcile, Request, Scenario, Step, TagChoice,
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
            !(self.request.is_empty()
                && self.publish.is_empty()
                && self.fan_in.is_empty()
                && self.reconcile.is_empty()),
            "nothing happens: a scenario needs a [[request]], a [[publish]], a [[fan_in]] or a [[reconcile]]"
        );
        ensure!(
            self.subscribe.is_empty() || !self.publish.is_empty(),
            "[[subscribe]] without [[publish]]: nothing would be delivered"
        );
        for request in &self.request {
            self.check_request(request).context("in [[request]]")?;
        }
        for publish in &self.publish {
            self.check_population(publish.connections, publish.arrival, publish.phases.as_deref())
                .and_then(|()| check_name(publish.name.as_deref()))
                .context("in [[publish]]")?;
            let closed = matches!(publish.arrival, Arrival::Closed { .. });
            ensure!(
                publish.window.is_none() || closed,
                "window of a [[publish]] needs arrival = {{ shape = \"closed\", … }}: open arrivals never wait"
            );
            ensure!(publish.window != Some(0), "window of a [[publish]] must be at least 1");
            ensure!(
                publish.shares.as_ref().is_none_or(|s| !s.0.is_empty() && s.0.values().all(|v| *v > 0.0)),
                "shares of a [[publish]] must be above 0"
            );
            ensure!(
                publish.shares.is_none() || publish.kinds.is_none(),
                "a [[publish]] has kinds or shares, not both"
            );
            ensure!(publish.hot.as_ref().is_none_or(|h| h.values > 0), "values of hot must be at least 1");
        }
        for subscribe in &self.subscribe {
            ensure!(subscribe.connections > 0, "connections of a [[subscribe]] must be at least 1");
            ensure!(!subscribe.filter.is_empty(), "a [[subscribe]] needs at least one [[subscribe.filter]]");
            check_name(subscribe.name.as_deref()).context("in [[subscribe]]")?;
            check_live(&subscribe.filter).context("in [[subscribe.filter]]")?;
            check_light(subscribe.decode_every).context("in [[subscribe]]")?;
            ensure!(
                subscribe.decode_every.is_none() || subscribe.read_bytes_per_s.is_none(),
                "a [[subscribe]] has decode_every or read_bytes_per_s, not both: a slow reader catches up event by event"
            );
        }
        for fan_in in &self.fan_in {
            self.check_fan_in(fan_in).context("in [[fan_in]]")?;
        }
        for reconcile in &self.reconcile {
            self.check_reconcile(reconcile).context("in [[reconcile]]")?;
        }
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
        self.check_population(request.connections, request.arrival, request.phases.as_deref())?;
        check_name(request.name.as_deref())?;
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

    fn check_fan_in(&self, fan_in: &FanIn) -> anyhow::Result<()> {
        let FanIn { clients, relays, duplicates, .. } = *fan_in;
        self.check_population(clients * relays, fan_in.arrival, fan_in.phases.as_deref())?;
        check_name(fan_in.name.as_deref())?;
        ensure!(fan_in.kinds.as_ref().is_none_or(|kinds| !kinds.is_empty()), "kinds must not be empty");
        ensure!(fan_in.events > 0, "events must be at least 1");
        ensure!((1..=MAX_CHUNK).contains(&fan_in.chunk), "chunk must be 1 to {MAX_CHUNK}");
        // Each relay brings an event at most once.
        let most = 1.0 - 1.0 / relays as f64;
        ensure!(
            (0.0..=most).contains(&duplicates),
            "duplicates must be 0 to {most:.2} with {relays} relays, from each of which an event comes once"
        );
        Ok(())
    }

    fn check_reconcile(&self, reconcile: &Reconcile) -> anyhow::Result<()> {
        self.check_population(reconcile.connections, reconcile.arrival, reconcile.phases.as_deref())?;
        check_name(reconcile.name.as_deref())?;
        ensure!(reconcile.kinds.as_ref().is_none_or(|kinds| !kinds.is_empty()), "kinds must not be empty");
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

    fn check_population(
        &self,
        connections: usize,
        arrival: Arrival,
        phases: Option<&[String]>,
    ) -> anyhow::Result<()> {
        ensure!(connections > 0, "connections must be at least 1");
        for name in phases.unwrap_or_default() {
            let known: Vec<_> = self.phase.iter().map(|phase| phase.name.as_str()).collect();
            ensure!(known.contains(&name.as_str()), UnknownName::new("phase", name, known));
        }
        ensure!(phases.is_none_or(|phases| !phases.is_empty()), "phases must not be empty");
        match arrival {
            Arrival::Burst { period_ms } => ensure!(period_ms > 0, "period_ms must be at least 1"),
            Arrival::Constant { rate_per_s } | Arrival::Poisson { rate_per_s } => {
                ensure!(rate_per_s > 0.0 && rate_per_s.is_finite(), "rate_per_s must be above 0");
            }
            Arrival::Spread { over_ms } => ensure!(over_ms > 0, "over_ms must be at least 1"),
            Arrival::Closed { rounds, .. } => ensure!(rounds > 0, "rounds must be at least 1"),
        }
        Ok(())
    }
}

fn check_light(decode_every: Option<u32>) -> anyhow::Result<()> {
    let (least, most) = (DECODE_EVERY.start(), DECODE_EVERY.end());
    ensure!(
        decode_every.is_none_or(|every| DECODE_EVERY.contains(&every)),
        "decode_every must be {least} to {most}; leave it out to decode every delivery"
    );
    Ok(())
}

/// A population's name becomes part of the names of its timings in results.
fn check_name(name: Option<&str>) -> anyhow::Result<()> {
    ensure!(
        name.is_none_or(|name| !name.is_empty()
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')),
        "a name has lower-case letters, digits and hyphens, unlike {name:?}"
    );
    Ok(())
}

fn check_step(step: &Step) -> anyhow::Result<()> {
    ensure!(step.kinds.as_ref().is_none_or(|kinds| !kinds.is_empty()), "kinds must not be empty");
    ensure!(step.authors != Some(0), "authors must be at least 1");
    ensure!(step.chunk != Some(0), "chunk must be at least 1");
    ensure!(step.times != Some(0), "times must be at least 1");
    ensure!(step.pages != Some(0), "pages must be at least 1");
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
        ensure!(filter.kinds.as_ref().is_none_or(|kinds| !kinds.is_empty()), "kinds must not be empty");
        ensure!(filter.authors != Some(0), "authors must be at least 1");
        check_tag(filter.tag.as_ref())?;
    }
    Ok(())
}

fn check_tag(tag: Option<&TagChoice>) -> anyhow::Result<()> {
    let Some(tag) = tag else { return Ok(()) };
    ensure!(tag.name.is_ascii_alphabetic(), "a tag condition has a single letter, unlike {:?}", tag.name);
    ensure!(tag.values > 0, "values of a tag must be at least 1");
    Ok(())
}
