//! The output of `client-sim scenarios`, `formats` and `explain`.

use std::{borrow::Cow, collections::BTreeMap, fmt::Write, num::NonZeroU16};

use codecs::{Format, Implementation};
use corpus::Corpus;
use measure::CorpusRecord;
use serde::Serialize;

use crate::{
    corpus_record,
    plan::{Role, Workload},
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

/// The output of `client-sim explain --json`.
#[derive(Debug, Serialize)]
struct Explained<'p> {
    scenario: &'p str,
    question: &'p str,
    learn: &'p str,
    sources: &'p [String],
    /// Seconds in which work is started.
    seconds: f64,
    /// Events and requests a second of each of them.
    per_second: PerSecond,
    seed: u64,
    corpus: CorpusRecord,
    /// How many corpus events are not streamed, by reason.
    set_aside: &'p BTreeMap<Cow<'static, str>, usize>,
    /// Events that the relay holds before the clock starts.
    stored: usize,
    /// Events that were newly made.
    fresh: usize,
    plan_sha256: String,
    plan: PlanFacts,
    payload: Vec<Payload>,
    /// The share of each agent, in the order of their indices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    agents: Vec<PlanFacts>,
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
        let explained = Explained {
            scenario: &scenario.name,
            question: &scenario.question,
            learn: &scenario.learn,
            sources: &scenario.sources,
            seconds: scenario.seconds,
            seed: *seed,
            corpus: corpus_record(corpus),
            set_aside: &workload.set_aside,
            stored: workload.stored,
            fresh: workload.fresh,
            plan_sha256: workload.sha256(),
            per_second: facts.per_second(scenario),
            plan: facts,
            payload: self.payload(),
            agents: agents.map_or_else(Vec::new, |of| PlanFacts::by_agent(workload, of)),
        };
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
        line(facts.connections, "clients connected at once at most");
        line(facts.connections_made, "connections made");
        line(workload.stored as u64, "events given to the relay beforehand");
        line(facts.published, &format!("events published, {} of them newly made", workload.fresh));
        line(facts.sessions, &format!("sessions with {} requests", facts.requests));
        line(facts.stored_deliveries, "deliveries of stored events");
        line(facts.live_deliveries, "deliveries of live events");
        let roles =
            |is_one: fn(&Role) -> bool| workload.roles.iter().filter(|role| is_one(role)).count() as u64;
        let stays = workload.sessions.iter().filter(|session| !session.live.is_empty()).count();
        let reconciliations =
            || workload.sessions.iter().filter_map(|session| session.reconciliation.as_ref());
        for (count, what) in [
            (stays as u64, "sessions stay for live events, whose number depends on when the stay begins"),
            (reconciliations().count() as u64, "reconciliations, whose messages are not in the sums"),
            (workload.repeats(|_| true), "deliveries of an event that the client has already"),
            (roles(Role::reads_slowly), "clients read slowly; their deliveries are not in the sums"),
            (
                roles(|role| role.decode_every.is_some()),
                "clients are light readers: they decode every n-th delivery",
            ),
        ] {
            if count > 0 {
                line(count, what);
            }
        }
        if let Some(first) = reconciliations().next() {
            let (has, own) = (first.has.len(), first.own.len());
            let what =
                format!("events are on the relay; the first client has {has} of them and {own} of its own");
            line((has + first.lacks.len()) as u64, &what);
        }
        if let Some(bytes) = facts.event_json_bytes() {
            line(measure::whole(bytes.round()), "bytes an event in JSON, on average");
        }
    }
}

/// A column of the agents' table: its head, its width, and its value.
type Column = (&'static str, usize, fn(&PlanFacts) -> u64);

const COLUMNS: [Column; 9] = [
    ("users", 9, |facts| facts.users),
    ("conns", 9, |facts| facts.connections),
    ("made", 9, |facts| facts.connections_made),
    ("published", 11, |facts| facts.published),
    ("requests", 10, |facts| facts.requests),
    ("stored", 12, |facts| facts.stored_deliveries),
    ("live", 12, |facts| facts.live_deliveries),
    ("timed", 12, |facts| facts.live_deliveries_timed),
    ("due/s", 7, |facts| facts.due_per_s_max),
];

/// A table of what each agent does, its smallest and largest values, and what the split means for
/// latencies.
fn write_agents(agents: &[PlanFacts], whole: &PlanFacts, out: &mut String) -> std::fmt::Result {
    let line = |name: &str, value: &dyn Fn(fn(&PlanFacts) -> u64) -> u64| {
        let cells = COLUMNS.into_iter().map(|(_, width, of)| format!("{:>width$}", value(of)));
        format!("{name:>7}{}", cells.collect::<String>())
    };
    let heads = COLUMNS.into_iter().map(|(name, width, _)| format!("{name:>width$}"));
    writeln!(out, "\n{} agents, each with the users whose turn it is:\n", agents.len())?;
    writeln!(out, "{:>7}{}", "agent", heads.collect::<String>())?;
    for (index, facts) in agents.iter().enumerate() {
        writeln!(out, "{}", line(&index.to_string(), &|of| of(facts)))?;
    }
    let values = |of: fn(&PlanFacts) -> u64| agents.iter().map(of);
    writeln!(out, "{}", line("least", &|of| values(of).min().unwrap_or(0)))?;
    writeln!(out, "{}", line("most", &|of| values(of).max().unwrap_or(0)))?;
    writeln!(
        out,
        "
  conns: connections at once; made: connections made over the run
  stored, live: deliveries; timed: live deliveries of events that the same agent publishes
  due/s: the most publications and sessions that are due within one second
"
    )?;
    let idle = agents.iter().filter(|facts| facts.users == 0).count();
    if idle > 0 {
        writeln!(out, "Agents with nothing to do: {idle}, because there are {} users.", whole.users)?;
    }
    let timed: u64 = values(|facts| facts.live_deliveries_timed).sum();
    let apart = whole.live_deliveries - timed;
    if apart > 0 {
        writeln!(
            out,
            "{apart} of {} live deliveries come to another agent than publishes the event: they count in the
ledger and are not timed, because two machines have two clocks.",
            whole.live_deliveries
        )?;
    }
    writeln!(out, "Agents must agree on the hash of the plan: client-sim explain prints it on each machine.")
}
