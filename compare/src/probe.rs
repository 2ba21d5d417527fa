//! Outcome of one probe of a search: whether the SLO held, and if not, whose miss it is.

use measure::{Quantile, RunRecord, ValidityClass};

use report::{
    Utilisation,
    merged::latency_of,
    result::{Block, Played, Probe, ProbeOutcome, Purpose},
    slo::{Measured, Slo},
    stats,
};

/// Seconds beyond which no probe is made longer.
pub(crate) const LONGEST_SECONDS: u32 = 60;

/// Share of the planned rate below which another rate was probed.
const ACHIEVED: f64 = 0.97;

/// A probe as asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlannedProbe {
    pub(crate) rate_per_s: u32,
    pub(crate) seconds: u32,
    pub(crate) purpose: Purpose,
}

/// The seconds that a probe takes at this rate, when so many answers come for each published event.
pub(crate) fn seconds(slo: &Slo, rate_per_s: u32, answers_per_event: Option<f64>, at_least: u32) -> u32 {
    let per_second = f64::from(rate_per_s) * answers_per_event.unwrap_or(f64::INFINITY);
    let needed = (slo.samples() / per_second).ceil();
    measure::whole(needed.clamp(f64::from(at_least), f64::from(LONGEST_SECONDS.max(at_least))))
}

/// Answers for each published event, where any were planned.
pub(crate) fn answers_per_event(record: &RunRecord, asked: PlannedProbe) -> Option<f64> {
    let events = f64::from(asked.rate_per_s) * f64::from(asked.seconds);
    let samples = record.latency.get(latency_of([record]).0)?.len();
    (samples > 0).then(|| samples as f64 / events)
}

/// Judges a probe.
pub(crate) fn judge(block: &Block, asked: PlannedProbe, slo: &Slo) -> Probe {
    let mut probe = Probe {
        rate_per_s: asked.rate_per_s,
        played: block.record.as_ref().map(Played::from_record),
        seconds: asked.seconds,
        purpose: asked.purpose,
        outcome: ProbeOutcome::Disturbed,
        why: Vec::new(),
        p99_ns: None,
        achieved: None,
    };
    let Some(record) = &block.record else {
        // A client that was ended from outside was still preparing or sending: clients give up on a
        // silent relay by themselves.
        if block.exit_code.is_none() {
            probe.outcome = ProbeOutcome::GeneratorLimit;
        }
        probe.why.extend(block.failure.clone());
        return probe;
    };
    let latency = latency_of([record]).0;
    let measured = Measured::from_records(&[record], asked.seconds);
    let p99 = record.latency.get(latency).map_or(Quantile::Missing, |latency| latency.quantile_ns(0.99));
    (probe.p99_ns, probe.achieved) = (p99.ns(), measured.achieved());
    let missed = slo.judge("", &measured, latency).into_iter().filter(|result| !result.met);
    let (known, unknown): (Vec<_>, Vec<_>) = missed.partition(|result| result.value.is_some());
    probe.why = known.into_iter().map(|result| result.bound).collect();
    let whole = record.counts.dropped_by_generator == 0
        && measured.achieved().is_some_and(|achieved| achieved >= ACHIEVED);
    if probe.why.is_empty() && whole && record.counts.balanced().is_ok() {
        // A busy host makes a bound harder to keep, so what is kept is kept.
        probe.outcome = if unknown.is_empty() { ProbeOutcome::Pass } else { ProbeOutcome::Disturbed };
        probe.why = unknown.into_iter().map(|result| format!("no value for {}", result.bound)).collect();
        return probe;
    }
    let (outcome, why) = whose(record, measured, latency, slo);
    probe.outcome = outcome;
    probe.why.extend(why);
    probe
}

/// Whose miss it is, with what tells it.
fn whose(record: &RunRecord, measured: Measured, latency: &str, slo: &Slo) -> (ProbeOutcome, Vec<String>) {
    let used = Utilisation::from_merged(measured.merged());
    let only = |relay: bool| {
        if relay {
            Utilisation { generator: None, ..used }.reasons()
        } else {
            Utilisation { relay: None, ..used }.reasons()
        }
    };
    if record.counts.dropped_by_generator == 0
        && let Err(failure) = record.counts.balanced()
    {
        return (ProbeOutcome::Fail, vec![failure]);
    }
    let (relay_full, generator_full) = (only(true), only(false));
    if !relay_full.is_empty() {
        return (ProbeOutcome::Fail, relay_full);
    }
    let validity = &record.validity;
    if validity.class == ValidityClass::Invalid && validity.blames_host() {
        return (ProbeOutcome::Disturbed, validity.reasons.iter().map(ToString::to_string).collect());
    }
    if !generator_full.is_empty() {
        return (ProbeOutcome::GeneratorLimit, generator_full);
    }
    // The generator has time to read and to send, so the relay is who does not.
    if let Some((first, second)) = backlog(record) {
        let why = format!("what is in flight grows from {first:.0} to {second:.0}");
        return (ProbeOutcome::Fail, vec![why]);
    }
    let lag = measured.merged().quantile("send_lag", 0.99).ns();
    let punctual = measured.without_lag();
    if slo.judge("", &punctual, latency).iter().any(|result| !result.met) {
        return (ProbeOutcome::Fail, Vec::new());
    }
    let lag = lag.map_or_else(String::new, |ns| format!(", send lag p99 {:.1} ms", ns as f64 / 1e6));
    (ProbeOutcome::GeneratorLimit, vec![format!("kept if the generator had been punctual{lag}")])
}

/// The answers due and missing in the halves of a probe in which they grow.
fn backlog(record: &RunRecord) -> Option<(f64, f64)> {
    let seconds = &record.slices.as_ref()?.seconds;
    let in_flight: Vec<f64> = seconds.iter().map(|slice| slice.in_flight as f64).collect();
    let halves = stats::halves(&in_flight)?;
    stats::grows(halves, stats::mann_kendall(&in_flight)).then_some(halves)
}
