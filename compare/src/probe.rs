//! Outcome of one probe of a search: whether its target was met, and if not, whose miss it is.

use measure::{Quantile, RunRecord, ValidityClass};

use report::{
    Utilisation,
    merged::{Merged, latency_of},
    result::{Axis, Block, Played, Probe, ProbeOutcome, Purpose, SearchConfig},
    slo::{Measured, Slo},
    stats,
};

/// Share of the planned rate below which another rate was probed.
const ACHIEVED: f64 = 0.97;

/// Judges a probe of one cell, or of two over the same link.
pub(crate) fn judge(
    blocks: &[Block],
    rate_per_s: u32,
    purpose: Purpose,
    (question, slo, seconds): (&SearchConfig, &Slo, u32),
) -> Probe {
    let record = blocks.first().and_then(|block| block.record.as_ref());
    let mut probe = Probe {
        rate_per_s,
        played: record.filter(|_| blocks.len() == 1).map(Played::from_record),
        seconds,
        purpose,
        outcome: ProbeOutcome::Disturbed,
        why: Vec::new(),
        p99_ns: None,
        achieved: None,
        quotient: None,
        counts: None,
        said: None,
    };
    match (blocks, record) {
        ([one, other], _) => judge_times([one, other], &mut probe),
        ([_], Some(record)) => {
            if question.slo.is_empty() {
                probe.outcome = ProbeOutcome::Pass;
            } else {
                judge_slo(record, slo, &mut probe);
            }
            if let Some(share) = question.utilisation {
                judge_share(record, share, question.axis(), &mut probe);
            }
        }
        // A client that was ended from outside was still preparing or sending: clients give up on a
        // silent relay by themselves.
        _ if blocks.iter().any(|block| block.exit_code.is_none()) => {
            probe.outcome = ProbeOutcome::GeneratorLimit;
        }
        _ => {}
    }
    if probe.why.is_empty() && record.is_none() {
        probe.why.extend(blocks.iter().filter_map(|block| block.failure.clone()));
    }
    if probe.outcome != ProbeOutcome::Pass {
        probe.counts = record.map(|record| record.counts);
        let said: Vec<&str> = blocks.iter().filter_map(|block| block.failure.as_deref()).collect();
        probe.said = (!said.is_empty()).then(|| said.join("\n"));
    }
    probe
}

/// Which of two cells took less time: p50 of sessions, or without them of the latency of the tables.
fn judge_times(blocks: [&Block; 2], probe: &mut Probe) {
    let records = || blocks.iter().filter_map(|block| block.record.as_ref());
    let latency = latency_of(records()).0;
    let ns = blocks.map(|block| block.usable()?.latency.get(latency)?.quantile_ns(0.5).ns());
    for (block, _) in blocks.iter().zip(ns).filter(|(_, ns)| ns.is_none()) {
        probe
            .why
            .extend(block.failure.iter().filter_map(|failure| failure.lines().last()).map(str::to_owned));
        probe.why.extend(
            block.record.iter().flat_map(|record| record.validity.reasons.iter().map(ToString::to_string)),
        );
    }
    let [Some(one), Some(other)] = ns else {
        if probe.why.is_empty() {
            probe.why.push(format!("too few samples of {latency} for a median"));
        }
        return;
    };
    let quotient = one as f64 / (other as f64).max(1.0);
    probe.quotient = Some(quotient);
    probe.outcome = if quotient < 1.0 { ProbeOutcome::Pass } else { ProbeOutcome::Fail };
}

/// How far the busiest process is from a share of its cores; where loads are searched, the relay.
fn judge_share(record: &RunRecord, share: f64, axis: Axis, probe: &mut Probe) {
    let merged = Merged::of_counts([record]);
    let used = Utilisation::of_whole_time(&merged);
    let generator = used.generator.filter(|_| axis == Axis::Rate);
    let full = Utilisation { relay: None, ..Utilisation::from_merged(&merged) };
    let Some(most) = used.relay.into_iter().chain(generator).reduce(f64::max).filter(|most| *most > 0.0)
    else {
        probe.outcome = ProbeOutcome::Disturbed;
        probe.why = vec!["the relay does not tell its CPU time and cores".to_owned()];
        return;
    };
    probe.quotient = Some(most / share);
    // Whichever side it is: the latencies of the cell would be those of its queue.
    if most > share {
        probe.outcome = ProbeOutcome::Fail;
        probe.why = Utilisation { generator, ..used }.above(share);
    } else if full.is_saturated() {
        probe.outcome = ProbeOutcome::GeneratorLimit;
        probe.why = full.reasons();
    }
}

/// Whether the SLO held, and whose miss it is.
fn judge_slo(record: &RunRecord, slo: &Slo, probe: &mut Probe) {
    let latency = latency_of([record]).0;
    let measured = Measured::from_records(&[record], probe.seconds);
    let p99 = record.latency.get(latency).map_or(Quantile::Missing, |latency| latency.quantile_ns(0.99));
    (probe.p99_ns, probe.achieved) = (p99.ns(), measured.achieved());
    let missed = slo.judge("", &measured, latency).into_iter().filter(|result| !result.met);
    let (known, unknown): (Vec<_>, Vec<_>) = missed.partition(|result| result.value.is_some());
    probe.why = known.into_iter().map(|result| result.bound).collect();
    let whole = record.counts.dropped_by_generator == 0
        && measured.achieved().is_some_and(|achieved| achieved >= ACHIEVED);
    if probe.why.is_empty() && whole && record.counts.balanced().is_ok() {
        if unknown.is_empty() {
            // A busy host makes a bound harder to keep, so what is kept is kept.
            probe.outcome = ProbeOutcome::Pass;
            let is_invalid = record.validity.class == ValidityClass::Invalid;
            probe.why.extend(record.validity.reasons.iter().filter(|_| is_invalid).map(ToString::to_string));
        } else {
            let answers = record.latency.get(latency).map_or(0, measure::Latency::len);
            let few = |bound| format!("{answers} answers in {} s are too few for {bound}", probe.seconds);
            probe.why = unknown.into_iter().map(|result| few(result.bound)).collect();
            probe.outcome = ProbeOutcome::TooFewAnswers;
        }
        return;
    }
    let (outcome, why) = whose(record, measured, latency, slo);
    probe.outcome = outcome;
    probe.why.extend(why);
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
