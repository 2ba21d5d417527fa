//! The output of `client-sim scenarios`, `formats` and `explain`.

use std::fmt::Write;

use codecs::{Format, Implementation};
use corpus::Corpus;

use crate::{
    plan_facts::{self, PlanFacts},
    scenario::{Bound, Scenario},
    workload::Workload,
};

/// The built-in scenarios with their questions.
///
/// # Errors
/// When one of them does not load, which a test rules out.
pub fn list() -> anyhow::Result<String> {
    let mut out = String::new();
    for name in Scenario::names() {
        let Scenario { question, .. } = Scenario::load(name)?;
        writeln!(out, "{name:<22} {question}")?;
    }
    Ok(out)
}

/// One line for each wire format: its name, whether it is a core format, its implementations and
/// whose code the library is.
pub fn formats() -> String {
    let line = |format: Format| {
        let group = if Format::core().any(|core| core == format) { "core" } else { "beside" };
        let code = format.code(Implementation::Library);
        let tuned = if format.spec().tuned.is_some() { " tuned" } else { "" };
        let implementations = format!("library ({code}){tuned}");
        format!("{:<22} {group:<7} {implementations}\n", format.name())
    };
    Format::all().map(line).collect()
}

/// Describes the plan of a scenario: everything that is known before the run.
///
/// # Errors
/// When writing the text fails, which a `String` does not.
pub fn explain(
    scenario: &Scenario,
    corpus: &Corpus,
    workload: &Workload,
    seed: u64,
) -> anyhow::Result<String> {
    let mut out = String::new();
    let facts = PlanFacts::of(workload);
    writeln!(out, "{}: {}", scenario.name, scenario.question)?;
    writeln!(out, "What a NIP author learns: {}", scenario.learn)?;
    for source in &scenario.sources {
        writeln!(out, "  source: {source}")?;
    }
    writeln!(
        out,
        "\ncorpus {} ({}, {} events), seed {seed}",
        corpus.name,
        corpus.origin,
        corpus.events.len()
    )?;
    for (reason, events) in &workload.set_aside {
        writeln!(out, "  {events} events set aside: {reason}")?;
    }
    writeln!(out, "\nLasts {:.1} s, and as long as answers take.", scenario.seconds)?;
    for phase in &scenario.phase {
        let [from, to] = phase.load.map(|load| load * 100.0);
        let warm_up = if phase.warm_up { ", latencies left out" } else { "" };
        writeln!(
            out,
            "  phase {}: {:.1} s, load {from:.0} % to {to:.0} %{warm_up}",
            phase.name, phase.seconds
        )?;
    }
    writeln!(out, "\n  {:>12} clients connected at once at most", facts.connections)?;
    writeln!(out, "  {:>12} connections made", facts.connections_made)?;
    writeln!(out, "  {:>12} events given to the relay beforehand", workload.stored)?;
    writeln!(out, "  {:>12} events published, {} of them newly made", facts.published, workload.fresh)?;
    writeln!(out, "  {:>12} sessions with {} requests", workload.sessions.len(), facts.requests)?;
    writeln!(out, "  {:>12} deliveries of stored events", facts.stored_deliveries)?;
    writeln!(out, "  {:>12} deliveries of live events", facts.live_deliveries)?;
    let stays = workload.sessions.iter().filter(|session| !session.live.is_empty()).count();
    if stays > 0 {
        writeln!(
            out,
            "  {stays:>12} sessions stay for live events, whose number depends on when the stay begins"
        )?;
    }
    let reconciliations: Vec<_> =
        workload.sessions.iter().filter_map(|session| session.reconciliation.as_ref()).collect();
    if let Some(first) = reconciliations.first() {
        writeln!(out, "  {:>12} reconciliations, whose messages are not in the sums", reconciliations.len())?;
        writeln!(
            out,
            "  {:>12} events are on the relay; the first client has {} of them and {} of its own",
            first.has.len() + first.lacks.len(),
            first.has.len(),
            first.own.len()
        )?;
    }
    if workload.repeats > 0 {
        writeln!(out, "  {:>12} deliveries of an event that the client has already", workload.repeats)?;
    }
    let slow = workload.roles.iter().filter(|role| role.reads_slowly()).count();
    if slow > 0 {
        writeln!(out, "  {slow:>12} clients read slowly; their deliveries are not in the sums")?;
    }
    if let Some(bytes) = facts.event_json_bytes() {
        writeln!(out, "  {bytes:>12.0} bytes an event in JSON, on average")?;
    }
    writeln!(out, "\nPayload bytes before compression:")?;
    let mut json_bytes = None;
    for format in Format::core() {
        let (to_relay, to_client) = plan_facts::payload(workload, format.codec(Implementation::Library)?);
        let both = to_relay.payload_bytes + to_client.payload_bytes;
        let json_bytes = *json_bytes.get_or_insert(both);
        writeln!(
            out,
            "  {:<16} {:>13} to the relay {:>14} to clients   ×{:.2}",
            format.name(),
            to_relay.payload_bytes,
            to_client.payload_bytes,
            both as f64 / json_bytes.max(1) as f64
        )?;
    }
    if !scenario.expect.is_empty() {
        writeln!(out, "\nA run counts as evidence when")?;
    }
    for (figure, Bound { min, max }) in &scenario.expect {
        let min = min.map(|min| format!(" at least {min}"));
        let max = max.map(|max| format!(" at most {max}"));
        let both = [min, max].into_iter().flatten().collect::<Vec<_>>().join(" and");
        writeln!(out, "  {figure} is{both}")?;
    }
    Ok(out)
}
