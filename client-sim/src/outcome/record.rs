//! Turns the outcome of a run into its [`RunRecord`].

use std::time::Duration;

use cell::{Cell, Saturate};
use corpus::Corpus;
use link::Link;
use measure::{
    AgreementRecord, CompressionMemoryRecord, EncodingsRecord, Environment, FlowRecord, LinkRecord, NO_LINK,
    NOT_SATURATED, Pace, PinnedCores, Planted, PopulationRecord, Quantile, ReasonKind, RelayProcess,
    RunRecord, SCHEMA_VERSION, Saturated, ShareRecord, Signals, Spans, Status, Subject, Tool, TrafficRecord,
    UNKNOWN_HERE, UsableCores, Validity, ValidityClass,
};
use program::command_line;
use relay_sim::Totals;
use wire::{Agreement, Compression, Flow, Traffic};

use crate::{
    args::Args,
    links,
    relays::relay_pids::Proof,
    share::Player,
    sockets::{prepare::Prepared, swarm::Outcome},
};
use client::{Report, ledger, shared::Shared};
use workload::{Over, Publication, Role, Speaks, Timing, schedule::nanos};

/// Everything about a run except its outcome.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    /// The command line as given.
    pub args: &'a Args,
    /// Where the events came from.
    pub corpus: &'a Corpus,
    /// The seed of the plan.
    pub seed: u64,
    /// The agreement, and what the relay did before the clock started.
    pub prepared: &'a Prepared,
    /// The relay's process.
    pub relay: Option<RelayProcess>,
    /// Whether that is the relay.
    pub proof: Proof,
    /// The relay's own totals, of a relay of our own that ended well.
    pub relay_totals: Option<Totals>,
    /// Wall clock at the start.
    pub started_utc: String,
    /// The span in which work is started.
    pub window: Duration,
    /// The machine, as read before the run.
    pub environment: Environment,
    /// The cores of relay and clients.
    pub pinned: Option<PinnedCores>,
    /// The links, each with how many connections use it.
    pub links: Option<Vec<(Link, u64)>>,
    /// The player of a share, where other agents played the others.
    pub player: Option<Player>,
}

/// Closes the ledger, judges the validity and fills in the record.
pub(crate) fn record(shared: &Shared, outcome: Outcome, facts: &Facts<'_>) -> RunRecord {
    // Other agents' clients report nothing here.
    let nothing = Report::default();
    let mut reports = vec![&nothing; shared.workload.roles.len()];
    outcome.clients.iter().for_each(|(id, client)| reports[*id] = &client.report);
    let mut counts = ledger::close(shared, &reports, outcome.status == Status::Complete);
    counts.deliveries_wrong_before_start = facts.prepared.wrong;
    let populations = populations(shared, &outcome, &reports, facts);
    let elapsed_ns = ledger::elapsed_ns(&shared.workload, &reports);
    let active_spans = ledger::active_spans(&shared.workload, &reports);
    let (spans, interval_ns) = ledger::throughput_spans(&shared.workload, &reports);
    let traffic = outcome.clients.iter().fold(Traffic::default(), |sum, (_, client)| sum + client.traffic);
    let active_ns = active_spans.iter().map(|(from, to)| to - from).sum();
    let mut validity = judge(shared, &outcome, (counts, active_ns), facts);
    let faults = facts.relay.as_ref().map(|relay| relay.faults.join(" ")).filter(|faults| !faults.is_empty());
    let doubt = facts.proof.unproven.clone().filter(|_| facts.proof.is_doubtful);
    let lacks_cpu = outcome.cost.relay.is_some_and(|relay| relay.is_incomplete);
    let saturated = saturated(&outcome, active_ns, facts).filter(|_| !shared.is_share());
    for reason in [
        faults.map(|faults| ReasonKind::Faulty { faults }),
        outcome.cost.allocations.map(|_| ReasonKind::AllocationsCounted {}),
        doubt.map(|doubt| ReasonKind::RelayUnproven { doubt }),
        lacks_cpu.then_some(ReasonKind::RelayCpuIncomplete {}),
        UNKNOWN_HERE.map(|why| ReasonKind::Said { sentence: why.to_owned() }),
        saturated.as_ref().and_then(Saturated::shortfall),
        ran_dry(shared),
    ] {
        reason.into_iter().for_each(|reason| validity.add(ValidityClass::Suspect, reason));
    }
    let log_level = tracing::level_filters::LevelFilter::current().to_string();
    validity.judge_log(Subject::Clients, Some(&log_level));
    validity.judge_log(Subject::Relay, facts.relay.as_ref().and_then(|relay| relay.log_level.as_deref()));
    if let Some(host) = &outcome.cost.host {
        host.judge(facts.links.is_some(), &mut validity);
    }
    let link = link_record(&outcome, facts);
    if let Some(link) = &link {
        link.judge(&mut validity);
    }
    RunRecord {
        schema_version: SCHEMA_VERSION.to_owned(),
        tool: Tool { name: "client-sim".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
        commit: program::built_from().map(str::to_owned),
        environment: Environment {
            cpu_quota: outcome.cost.quota.or(facts.environment.cpu_quota),
            ..facts.environment.clone()
        },
        command: command_line(&std::env::args_os().collect::<Vec<_>>()),
        started_utc: facts.started_utc.clone(),
        cell: cell(facts).recorded(),
        seed: facts.seed,
        corpus: workload::corpus_record(facts.corpus),
        status: outcome.status.clone(),
        agreement: agreement_record(facts),
        relay: relay(&outcome, facts),
        connections: shared.connections() as u64,
        elapsed_ns,
        active_ns,
        counts,
        traffic: TrafficRecord {
            to_relay: flow(traffic.sent),
            to_client: flow(traffic.received),
            handshake_to_relay_bytes: traffic.handshake_sent_bytes,
            handshake_to_client_bytes: traffic.handshake_received_bytes,
        },
        client_cpu: outcome.cost.client_cpu,
        relay_cpu: outcome.cost.relay.map(|relay| relay.cpu),
        gateway_cpu: outcome.cost.gateway_cpu,
        populations,
        validity,
        log_level: Some(log_level),
        link,
        host: outcome.cost.host.clone(),
        memory: outcome.memory,
        compression_memory: compression_memory(&outcome, facts),
        pinned: facts.pinned.clone(),
        usable_cores: Some(usable_cores(&outcome, facts)),
        saturated,
        allocations: outcome.cost.allocations,
        encodings: encodings(facts),
        // Packets cost CPU that loopback does not take.
        first_delivery: facts.prepared.first_delivery.clone().filter(|_| facts.links.is_none()),
        share: facts.player.as_ref().map(|player| ShareRecord {
            index: player.share.index,
            of: player.share.of,
            block_id: facts.args.block_id.clone(),
            plan_sha256: player.plan_sha256.clone(),
            started_late_ns: shared.started_late_ns(),
            handshake_ns_min: shared.handshake_ns_min(),
            ended_after_ns: nanos(outcome.wall),
            active_spans_ns: Spans::to_store(active_spans),
            throughput_spans_ns: Spans::to_store(spans.iter().copied()),
            wanted_interval_ns: interval_ns,
            intervals: outcome.recorder.throughput.clone().coarse_enough_to_store(),
            burst_sends: burst_sends(shared),
            pace: pace(shared, &outcome),
            expected: Vec::new(),
        }),
        throughput: outcome.recorder.throughput.within(&spans, interval_ns),
        slices: outcome.recorder.slices(u64::try_from(facts.window.as_nanos()).unwrap_or(u64::MAX)),
        latency: outcome.recorder.into_named(&shared.workload.labels),
        ..RunRecord::default()
    }
}

/// The relay's process, with counts of the faults that it planted (`relay-sim --fault`).
fn relay(outcome: &Outcome, facts: &Facts<'_>) -> Option<RelayProcess> {
    let relay = facts.relay.clone()?;
    let misbehaves = !relay.faults.is_empty();
    let totals = facts.relay_totals.zip(facts.prepared.totals).filter(|_| misbehaves);
    let planted = totals.map(|(after, before)| Planted {
        lost: after.planted_lost - before.planted_lost,
        doubled: after.planted_doubled - before.planted_doubled,
        altered: after.planted_altered - before.planted_altered,
        invented: after.planted_invented - before.planted_invented,
        misrouted: after.planted_misrouted - before.planted_misrouted,
    });
    Some(RelayProcess {
        planted,
        processes: outcome.cost.relay.map(|relay| relay.processes),
        unproven: facts.proof.unproven.clone(),
        cpu_quota: outcome.cost.relay_quota,
        written_bytes: outcome.cost.relay_written_bytes,
        ..relay
    })
}

/// Deliveries in the measured time by where the relay had their bytes from.
fn encodings(facts: &Facts<'_>) -> Option<EncodingsRecord> {
    let (after, before) = facts.relay_totals.zip(facts.prepared.totals)?;
    Some(encodings_between(before, after))
}

/// Deliveries between two readings of the relay's totals by where it had their bytes from.
pub(crate) fn encodings_between(before: Totals, after: Totals) -> EncodingsRecord {
    EncodingsRecord {
        spliced: after.encodings_spliced.saturating_sub(before.encodings_spliced),
        cold: after.encodings_cold.saturating_sub(before.encodings_cold),
        cached: after.encodings_cached.saturating_sub(before.encodings_cached),
    }
}

fn agreement_record(facts: &Facts<'_>) -> AgreementRecord {
    let Prepared { agreement, address, .. } = facts.prepared;
    AgreementRecord {
        token: agreement.token.clone(),
        extensions: agreement.extensions.clone(),
        address: address.map(|address| address.to_string()),
    }
}

/// The cell that both ends agreed on.
fn cell(facts: &Facts<'_>) -> Cell {
    let asked = &facts.args.cell;
    let Agreement { format, compression, batched, .. } = facts.prepared.agreement;
    let batching = batched.then(|| asked.batching.unwrap_or_default());
    Cell { format, compression, batching, ..asked.clone() }
}

/// The emulator's work in the measured time.
fn link_record(outcome: &Outcome, facts: &Facts<'_>) -> Option<LinkRecord> {
    let report = outcome.cost.links.clone()?;
    Some(links::record(facts.links.as_ref()?, facts.args.cell.link.as_ref(), report))
}

/// Ledger and bytes of each population, if one has its own format, compression or link, or reads lightly.
fn populations(
    shared: &Shared,
    outcome: &Outcome,
    reports: &[&Report],
    facts: &Facts<'_>,
) -> Vec<PopulationRecord> {
    let workload = &shared.workload;
    if workload.roles.iter().all(|role| role.speaks == Speaks::default() && role.decode_every.is_none()) {
        return Vec::new();
    }
    let several_links = workload.roles.iter().any(|role| role.speaks.over != Over::Run);
    let link = |over| match over {
        Over::Run => facts.args.cell.link.as_ref(),
        Over::Nothing => None,
        Over::Own(place) => workload.links.get(place),
    };
    let group = |role: &Role| (role.label, role.speaks, role.decode_every);
    let mut groups: Vec<(Option<usize>, Speaks, Option<u32>)> = Vec::new();
    for role in &workload.roles {
        if !groups.contains(&group(role)) {
            groups.push(group(role));
        }
    }
    let agreed = cell(facts);
    let record = |(label, speaks, decode_every): (Option<usize>, Speaks, Option<u32>)| {
        let is_one =
            |id: usize| shared.carries(id) && group(&workload.roles[id]) == (label, speaks, decode_every);
        let ones = || outcome.clients.iter().filter(|(id, _)| is_one(*id));
        let traffic = ones().fold(Traffic::default(), |sum, (_, client)| sum + client.traffic);
        PopulationRecord {
            name: label.map(|label| workload.labels[label].clone()),
            format: speaks.format.unwrap_or(agreed.format).to_string(),
            compression: speaks.compression.unwrap_or(agreed.compression).label(),
            link: several_links.then(|| link(speaks.over).map_or_else(|| NO_LINK.to_owned(), Link::label)),
            decode_every,
            connections: (0..workload.roles.len()).filter(|id| is_one(*id)).count() as u64,
            counts: ledger::close_of(shared, reports, outcome.status == Status::Complete, is_one),
            to_relay: flow(traffic.sent),
            to_client: flow(traffic.received),
        }
    };
    groups.into_iter().map(record).collect()
}

/// Memory of compression on both ends; `None` without compression.
fn compression_memory(outcome: &Outcome, facts: &Facts<'_>) -> Option<CompressionMemoryRecord> {
    if cell(facts).compression == Compression::None {
        return None;
    }
    let connections: u64 = outcome.clients.iter().map(|(_, client)| client.connections).sum();
    let memories = || outcome.clients.iter().map(|(_, client)| client.compression_memory);
    let own: usize = memories().map(|memory| memory.own_bytes).sum();
    let shared = memories().map(|memory| memory.shared_bytes).max().unwrap_or(0);
    // The gateway compresses for its relay.
    let relay = facts.relay_totals.filter(|_| !facts.args.cell.via_gateway);
    Some(CompressionMemoryRecord {
        client_bytes_per_connection: own as u64 / connections.max(1),
        client_shared_bytes: shared as u64,
        relay_bytes_per_connection: relay.map(|totals| totals.compression_bytes / totals.connections.max(1)),
        relay_shared_bytes: relay.map(|totals| totals.compression_shared_bytes),
    })
}

fn flow(flow: Flow) -> FlowRecord {
    FlowRecord { messages: flow.messages, payload_bytes: flow.payload_bytes, wire_bytes: flow.wire_bytes }
}

/// Judges whether one run is valid, by the rules of `crates/measure/src/validity/mod.rs`
/// (docs/methodology.md, "When a block counts").
fn judge(
    shared: &Shared,
    outcome: &Outcome,
    (counts, active_ns): (measure::Counts, u64),
    facts: &Facts<'_>,
) -> Validity {
    let p99 = |timing| outcome.recorder.all(timing).map_or(Quantile::Missing, |l| l.quantile_ns(0.99));
    let own_relay = outcome.cost.relay.filter(|_| facts.relay.as_ref().is_some_and(|relay| relay.own));
    // A gateway is ours, too.
    let own_relay_ns =
        own_relay.map(|relay| relay.cpu).or(outcome.cost.gateway_cpu).map_or(0, |cpu| cpu.total_ns);
    Signals {
        counts,
        is_share: shared.is_share(),
        interrupted: outcome.status == Status::Interrupted,
        clipped: outcome.recorder.clipped(),
        rate_per_second: pace(shared, outcome).and_then(Pace::rate),
        send_lag_ns_p99: p99(Timing::SendLag),
        burst_sends: burst_sends(shared),
        generator_cpu_ns: outcome.cost.client_cpu.total_ns,
        generator_wait_ns: outcome.cost.client_wait_ns,
        generator_cores: usable_cores(outcome, facts).clients,
        relay_cpu_ns: outcome.cost.relay.map(|relay| relay.cpu.total_ns),
        // A run ends when everything is answered; the pause after its last burst belongs to the
        // load like those before.
        elapsed_ns: u64::try_from(outcome.wall.max(facts.window).as_nanos()).unwrap_or(u64::MAX),
        active_ns,
        saturates: facts.args.cell.saturate.is_some(),
        // Three processes, the emulator among them, put a host of two cores under pressure by themselves.
        // Over links the emulator's lateness shows the harm.
        cpu_pressure_percent: measure::cpu_pressure_percent().filter(|_| facts.links.is_none()),
        quota: outcome.cost.quota,
        quota_cpu_ns: outcome.cost.client_cpu.total_ns + own_relay_ns,
        relay_quota: outcome.cost.relay_quota,
    }
    .judge()
}

/// The end that was saturated while work was outstanding; `None` if the run ended before its load began.
fn saturated(outcome: &Outcome, active_ns: u64, facts: &Facts<'_>) -> Option<Saturated> {
    let asked = facts.args.cell.saturate.map_or(NOT_SATURATED, Saturate::name);
    let times =
        (outcome.cost.relay.map(|relay| relay.cpu), outcome.cost.relay_thread_ns, outcome.cost.client_cpu);
    (active_ns > 0).then(|| Saturated::from_times(asked, times, usable_cores(outcome, facts), active_ns))
}

/// The reason against a run in which a connection of the closed loop ran out of events before 95 % of
/// the time.
fn ran_dry(shared: &Shared) -> Option<ReasonKind> {
    const NEARLY: f64 = 0.95;
    let until = shared.workload.until?;
    let ends =
        shared.workload.floods.iter().map(|flood| shared.sent_ns((flood.first + flood.count - 1) as usize));
    let after_ns = ends.filter(|sent| *sent > 0).min()?;
    let of_ns = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
    (Duration::from_nanos(after_ns) < until.mul_f64(NEARLY))
        .then_some(ReasonKind::EventsUsedUp { after_ns, of_ns })
}

/// The cores that each end can keep busy: its threads, and no more than it is pinned to. The
/// run's own relay has the quota of this process.
fn usable_cores(outcome: &Outcome, facts: &Facts<'_>) -> UsableCores {
    let (threads, workers) = (u64::from(facts.args.relay_threads()), u64::from(facts.args.workers));
    // The gateway has as many threads as its relay.
    let threads = if facts.args.cell.via_gateway { 2 * threads } else { threads };
    let pinned = facts.pinned.as_ref();
    let own = facts.relay.as_ref().is_some_and(|relay| relay.own);
    let of_relay = pinned.map(|cores| cores.relay.len() as u64);
    UsableCores {
        // The threads of an external relay are unknown.
        relay: if own { Some(of_relay.map_or(threads, |cores| threads.min(cores))) } else { of_relay },
        clients: pinned.map_or(workers, |cores| workers.min(cores.clients.len() as u64)),
        ..UsableCores::default()
    }
    .within(if own { outcome.cost.quota } else { outcome.cost.relay_quota }, outcome.cost.quota)
}

/// The most sends of this process that the plan has due at one instant.
fn burst_sends(shared: &Shared) -> u64 {
    let due = shared.workload.timeline(|connection| shared.carries(connection));
    due.chunk_by(|one, next| one.0 == next.0).map(<[_]>::len).max().unwrap_or(0) as u64
}

/// Pace of this process's publications at planned instants. `None` for a closed loop, which has no
/// rate, and for a run that ended early.
fn pace(shared: &Shared, outcome: &Outcome) -> Option<Pace> {
    if outcome.status != Status::Complete || shared.workload.is_closed() {
        return None;
    }
    let publications = &shared.workload.publications;
    let due_ns = |planned: Option<&Publication>| planned.map_or(0, |planned| nanos(planned.at));
    let first_ns = due_ns(publications.first());
    let own = || publications.iter().enumerate().filter(|(_, planned)| shared.carries(planned.connection));
    Some(Pace {
        planned: own().count() as u64,
        sent: own().filter(|(n, _)| shared.was_sent(*n)).count() as u64,
        span_ns: due_ns(publications.last()).saturating_sub(first_ns),
        sent_span_ns: shared.last_sent_ns().saturating_sub(first_ns),
    })
}
