//! The output of `client-sim scenarios`, `formats` and `explain`.

use std::{fmt::Write, num::NonZeroU16};

use codecs::{Format, Implementation};
use corpus::Corpus;
use serde::Serialize;
use serde_json::json;

use crate::{
    corpus_record,
    plan::{Role, Session, Workload},
    plan_facts::{self, PerSecond, PlanFacts},
    scenario::{Bound, Scenario},
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

/// A table of what each load asks for.
pub fn steps(steps: &[PerSecond]) -> String {
    let heads = ["load", "clients", "sessions/s", "publishes/s", "deliveries/s"];
    let mut out = heads.map(|head| format!("{head:>13}")).concat() + "\n";
    for PerSecond { load, clients, sessions_per_s, publishes_per_s, deliveries_per_s } in steps {
        out.push_str(&format!("{load:>13}{clients:>13}{sessions_per_s:>13.1}"));
        out.push_str(&format!("{publishes_per_s:>13.1}{deliveries_per_s:>13.1}\n"));
    }
    out
}

/// A scenario and its plan: everything that is known before the run.
#[derive(Debug)]
pub struct Explanation<'p> {
    /// The scenario.
    pub scenario: &'p Scenario,
    /// Where its events come from.
    pub corpus: &'p Corpus,
    /// Its plan.
    pub workload: &'p Workload,
    /// The seed of the plan.
    pub seed: u64,
    /// How many agents play it together; `None` for one process.
    pub agents: Option<NonZeroU16>,
}

/// Payload bytes of a plan before compression, in one format.
#[derive(Debug, Serialize)]
struct Payload {
    format: &'static str,
    to_relay_payload_bytes: u64,
    to_client_payload_bytes: u64,
}

impl Explanation<'_> {
    /// The plan as text.
    ///
    /// # Errors
    /// When writing the text fails, which a `String` does not.
    pub fn text(&self) -> anyhow::Result<String> {
        let mut out = String::new();
        let facts = PlanFacts::from_workload(self.workload);
        self.write_scenario(&mut out)?;
        writeln!(out)?;
        self.write_plan(&facts, &mut out);
        writeln!(out, "\n{}", steps(&[facts.per_second(self.scenario)]).trim_end())?;
        if let Some(of) = self.agents {
            writeln!(out, "\nPlan {}", self.workload.sha256())?;
            write_agents(&PlanFacts::by_agent(self.workload, of), &facts, &mut out)?;
        }
        writeln!(out, "\nPayload bytes before compression:")?;
        let payload = self.payload();
        let sum = |one: &Payload| one.to_relay_payload_bytes + one.to_client_payload_bytes;
        let json_bytes = payload.first().map_or(0, sum).max(1);
        for one in &payload {
            writeln!(
                out,
                "  {:<16} {:>13} to the relay {:>14} to clients   ×{:.2}",
                one.format,
                one.to_relay_payload_bytes,
                one.to_client_payload_bytes,
                sum(one) as f64 / json_bytes as f64
            )?;
        }
        if !self.scenario.expect.is_empty() {
            writeln!(out, "\nA run counts as evidence when")?;
        }
        for (figure, Bound { min, max }) in &self.scenario.expect {
            let min = min.map(|min| format!(" at least {min}"));
            let max = max.map(|max| format!(" at most {max}"));
            let both = [min, max].into_iter().flatten().collect::<Vec<_>>().join(" and");
            writeln!(out, "  {figure} is{both}")?;
        }
        Ok(out)
    }

    /// The plan as indented JSON, with a newline at its end.
    ///
    /// # Errors
    /// When writing the text fails, which a `String` does not.
    pub fn json(&self) -> anyhow::Result<String> {
        let Explanation { scenario, corpus, workload, seed, agents } = self;
        let facts = PlanFacts::from_workload(workload);
        let mut explained = json!({
            "scenario": scenario.name,
            "question": scenario.question,
            "learn": scenario.learn,
            "sources": scenario.sources,
            "seconds": scenario.seconds,
            "seed": seed,
            "corpus": corpus_record(corpus),
            "set_aside": workload.set_aside,
            "stored": workload.stored,
            "fresh": workload.fresh,
            "plan_sha256": workload.sha256(),
            "per_second": facts.per_second(scenario),
            "plan": facts,
            "payload": self.payload(),
        });
        if let Some(of) = agents {
            explained["agents"] = serde_json::to_value(PlanFacts::by_agent(workload, *of))?;
        }
        Ok(serde_json::to_string_pretty(&explained)? + "\n")
    }

    fn payload(&self) -> Vec<Payload> {
        let of = |format: Format| {
            let (to_relay_payload_bytes, to_client_payload_bytes) =
                plan_facts::payload(self.workload, format.spec().library);
            Payload { format: format.name(), to_relay_payload_bytes, to_client_payload_bytes }
        };
        Format::core().map(of).collect()
    }

    fn write_scenario(&self, out: &mut String) -> std::fmt::Result {
        let Explanation { scenario, corpus, workload, seed, .. } = self;
        writeln!(out, "{}: {}", scenario.name, scenario.question)?;
        writeln!(out, "What a NIP author learns: {}", scenario.learn)?;
        for source in &scenario.sources {
            writeln!(out, "  source: {source}")?;
        }
        let events = corpus.events.len();
        writeln!(out, "\ncorpus {} ({}, {events} events), seed {seed}", corpus.name, corpus.origin)?;
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
        Ok(())
    }

    fn write_plan(&self, facts: &PlanFacts, out: &mut String) {
        let workload = self.workload;
        let mut line = |count: u64, what: &str| out.push_str(&format!("  {count:>12} {what}\n"));
        for (_, what, of) in SUMS {
            line(of(facts), what);
        }
        let roles = |is_one: fn(&Role) -> bool| workload.roles.iter().filter(|role| is_one(role)).count();
        let sessions =
            |is_one: fn(&Session) -> bool| workload.sessions.iter().filter(|one| is_one(one)).count();
        let first = workload.sessions.iter().find_map(|session| session.reconciliation.as_ref());
        let [has, lacks, own] = first.map_or([0; 3], |one| [&one.has, &one.lacks, &one.own].map(Vec::len));
        for (count, what) in [
            (workload.stored, "events given to the relay beforehand"),
            (workload.fresh, "of the published events newly made"),
            (sessions(|_| true), "sessions"),
            (
                sessions(|session| !session.live.is_empty()),
                "sessions stay for live events, whose number depends on when the stay begins",
            ),
            (
                sessions(|session| session.reconciliation.is_some()),
                "reconciliations, whose messages are not in the sums",
            ),
            (has + lacks, "events that the relay has in the first of them"),
            (has + own, "events that its client has"),
            (has, "of these on the relay, too"),
            (roles(Role::reads_slowly), "clients read slowly; their deliveries are not in the sums"),
            (
                roles(|role| role.decode_every.is_some()),
                "clients are light readers: they decode every n-th delivery",
            ),
        ] {
            if count > 0 {
                line(count as u64, what);
            }
        }
        let repeats = workload.repeats(|_| true);
        if repeats > 0 {
            line(repeats, "deliveries of an event that the client has already");
        }
        if let Some(bytes) = facts.event_json_bytes() {
            line(measure::whole(bytes.round()), "bytes an event in JSON, on average");
        }
    }
}

/// A sum over a plan: its column in the table of agents, its words and its value.
type Sum = (&'static str, &'static str, fn(&PlanFacts) -> u64);

const SUMS: [Sum; 9] = [
    ("users", "users", |facts| facts.users),
    ("conns", "clients connected at once at most", |facts| facts.connections),
    ("made", "connections made", |facts| facts.connections_made),
    ("published", "events published", |facts| facts.published),
    ("requests", "requests for stored events", |facts| facts.requests),
    ("stored", "deliveries of stored events", |facts| facts.stored_deliveries),
    ("live", "deliveries of live events", |facts| facts.live_deliveries),
    ("timed", "of these published by the same agent", |facts| facts.live_deliveries_timed),
    ("due/s", "publications and sessions due within one second at most", |facts| facts.due_per_s_max),
];

/// A table of what each agent does, and what the split means for latencies.
fn write_agents(agents: &[PlanFacts], whole: &PlanFacts, out: &mut String) -> std::fmt::Result {
    let heads = SUMS.map(|(head, ..)| format!("{head:>10}")).concat();
    writeln!(out, "\n{} agents, each with the users whose turn it is:\n\n  agent{heads}", agents.len())?;
    for (index, facts) in agents.iter().enumerate() {
        writeln!(out, "{index:>7}{}", SUMS.map(|(.., of)| format!("{:>10}", of(facts))).concat())?;
    }
    let idle = agents.iter().filter(|facts| facts.users == 0).count();
    if idle > 0 {
        writeln!(out, "Agents with nothing to do: {idle}, because there are {} users.", whole.users)?;
    }
    let timed: u64 = agents.iter().map(|facts| facts.live_deliveries_timed).sum();
    if timed < whole.live_deliveries {
        writeln!(
            out,
            "{} of {} live deliveries come to another agent than publishes the event: they count in the
ledger and are not timed, because two machines have two clocks.",
            whole.live_deliveries - timed,
            whole.live_deliveries
        )?;
    }
    writeln!(out, "Agents must agree on the hash of the plan: client-sim explain prints it on each machine.")
}
