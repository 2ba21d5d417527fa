//! One run: the plan, the preparation, the load, and the record of it.

use std::{
    collections::HashMap,
    ffi::OsString,
    path::Path,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering, mpsc},
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use cell::{Batching, Factor, Side};
use codecs::{Event, Format, VerifyLevel};
use corpus::{
    Corpus, Signing,
    rules::{Bound, of_kinds},
};
use link::Link;
use measure::{
    CpuClock, Environment, Expectation, PinnedCores, Processes, ProcessesCpu, RelayProcess, RunRecord,
    Status, cores,
};
use program::Interrupt;
use wire::{Compression, Offer, RelayUrlError, WireLimits};

use crate::{
    args::Args,
    commands::{
        doctor::{
            self,
            answers::Info,
            needs::{Needs, json_bytes},
        },
        floor,
        play::{Played, play},
    },
    interruption::{self, unless_interrupted},
    links::{self, Links},
    metrics::{Endpoint, Snapshot},
    outcome::{
        outputs,
        record::{self, Facts},
    },
    relays::{
        disk,
        meet::{self, Met},
        own_relay::{self, OwnRelay},
        relay_pids,
    },
    share::{Orders, Player},
    sockets::{
        dial::{self, Target, endpoint},
        resources, swarm,
    },
};
use program::UsageError;
use program::report;
use workload::{
    Over, Role, Share, Workload, demand, expect,
    inputs::{load, plan_share_over},
    plan_facts::{PlanFacts, connections_made},
    scenario::Scenario,
};

/// Plans, prepares, runs and writes the record.
pub(crate) fn run(args: &mut Args) -> anyhow::Result<RunRecord> {
    outputs::try_all(args).map_err(UsageError)?;
    // Before the network namespace of links, where nobody would reach it.
    let endpoint = args.metrics_listen.as_deref().map(Endpoint::listen).transpose().map_err(UsageError)?;
    let over_links = over_links(args).map_err(UsageError)?;
    if over_links {
        // Before the first thread: only a process of one thread may enter a user namespace.
        link::enter()?;
    }
    let mut met = if over_links { Met::default() } else { meet::find(args)? };
    let (mut scenario, corpus, seed) = inputs(args).map_err(UsageError)?;
    let mut early = args.url.is_some().then(interruption::listen).transpose()?;
    meet::agree(args, &mut met, early.as_mut())?;
    let args = &*args;
    let proof = relay_pids::proof(args).map_err(UsageError)?;
    let workload = interruption::or_exit(early.as_mut(), || plan(args, &scenario, &corpus, seed))??;
    let expected = over_links.then(|| sized(args, &workload)).transpose()?;
    // From here on a signal no longer ends the program at once: there may be something to clean up.
    let mut interrupt = early.map_or_else(interruption::listen, Ok)?;
    let (mut workload, info) = within_rules(args, &mut scenario, &corpus, (seed, workload), &mut interrupt)?;
    let whom = meet::line(args, &met, info.as_ref());
    if !args.progress_json {
        args.tell(&whom);
    }
    tell_plan(args, &scenario, &corpus, &workload);
    workload.tolerates_seam = args.url.is_some() && !args.strict_seam;
    let compression = compression(args).map_err(UsageError)?;
    let player = args.share.map(|share| Player {
        share,
        plan_sha256: workload.sha256(),
        corpus_sha256: corpus.fingerprint.to_string(),
        orders: Orders::of_stdin(),
    });
    let share = args.share.unwrap_or(Share::WHOLE);
    let shares = PlanFacts::by_agent(&workload, share.of);
    let plan_facts = &shares[usize::from(share.index)];
    let delivers = workload.reads_elsewhere() || shares.iter().any(|facts| facts.deliveries() > 0);
    let connections = usize::try_from(plan_facts.connections)?;
    // A gateway has two sockets for each client.
    let sockets = if args.cell.via_gateway { 2 * connections } else { connections };
    resources::raise_descriptor_limit(sockets).map_err(UsageError)?;
    // Beside the workers one looks names up.
    program::try_threads(usize::from(args.workers) + 1)?;
    if let Some(url) = args.url.as_ref().or(args.relay_at.as_ref()) {
        dial::check_ports(
            &url.parse().map_err(|error: RelayUrlError| UsageError(error.into()))?,
            connections,
        )
        .map_err(UsageError)?;
    }
    let environment = Environment::collect();
    let pinned = pinned(args)?;
    let store = args
        .at_rest
        .map(|_| tempfile::TempDir::with_prefix("client-sim-"))
        .transpose()
        .context("cannot make a directory in TMPDIR for --at-rest")?;
    let store = store.as_ref().map(tempfile::TempDir::path);
    let all_links = links_of(args, &workload);
    let start = || {
        let links: Vec<Link> = all_links.iter().map(|(link, _)| link.clone()).collect();
        Links::start(&links, seed, &args.congestion)
    };
    let links = over_links.then(start).transpose()?;
    let starts_any = args.starts_relay() || args.cell.via_gateway;
    let cores = pinned.as_ref().filter(|_| starts_any);
    let (mut own_relay, mut gateway) = own_relay::on_relay_cores(cores, || {
        let relay = start_relay(args, &workload, store, links)?;
        let gateway = start_gateway(args, &workload, relay.as_ref(), connections)?;
        Ok((relay, gateway))
    })?;
    if let Some(links) = own_relay.as_ref().and_then(|relay| relay.links.as_ref()) {
        links.emulation.join_users()?;
    }
    let target = target(args, (own_relay.as_ref(), gateway.as_ref()), compression, connections)?;
    let mut relay_pids = known_pids(args, own_relay.as_ref());
    let gateway_pid = gateway.as_ref().map(|gateway| gateway.pid);
    // Alone it would pass for the relay.
    relay_pids.extend(gateway_pid.filter(|_| !relay_pids.is_empty()));
    let watched = Arc::default();
    let options = swarm::Options { args, relay_pids, gateway_pid, expected, player, watched };
    endpoint.map(|endpoint| endpoint.serve(watch(&options))).transpose()?;
    let Played { shared, prepared, started_utc, mut outcome } =
        play(args, target, workload, plan_facts, &options, own_relay.as_mut(), &mut interrupt)?;
    if let Status::Incomplete { reason } = &mut outcome.status {
        let ours = [&mut own_relay, &mut gateway].into_iter().flatten();
        ours.filter_map(|one| one.ended().ok()?).for_each(|how| *reason = format!("{reason}; {how}"));
    }
    let said = outputs::said(&outcome);
    let mut facts = Facts {
        args,
        corpus: &corpus,
        seed,
        prepared: &prepared,
        relay: relay_process(args, &known_pids(args, own_relay.as_ref()), own_relay.as_ref(), info),
        proof,
        relay_totals: None,
        started_utc,
        window: Duration::from_secs_f64(scenario.seconds),
        environment,
        pinned,
        links: over_links.then_some(all_links),
        player: options.player.clone(),
    };
    // Stops the relay before the record is made, which holds the relay's totals. A relay that ends
    // badly is an error only after the record is written, and so is a gateway.
    let gateway_stopped = gateway.take_if(|_| outcome.status == Status::Complete).map(OwnRelay::stop);
    let stopped = own_relay.take_if(|_| outcome.status == Status::Complete).map(OwnRelay::stop);
    facts.relay_totals =
        stopped.as_ref().and_then(|stopped| serde_json::from_str(stopped.as_deref().ok()?).ok());
    if let Some(relay) = &mut facts.relay {
        relay.stored_bytes = store.or(args.relay_dir.as_deref()).and_then(disk::stored_bytes);
    }
    let mut record = record::record(&shared, outcome, &facts);
    record.latency_bounds = expect::latency_bounds(&scenario);
    let expected = expect::expectations(&scenario, &record, plan_facts, delivers);
    match &mut record.share {
        // Only all agents together can meet them.
        Some(share) => share.expected = expected,
        None => judge(&mut record, &expected),
    }
    outputs::finish(args, &record, &whom, &said, &shared.incidents)?;
    stopped.transpose().context("the relay of our own did not end well")?;
    gateway_stopped.transpose().context("the gateway did not end well")?;
    Ok(record)
}

/// Judges a run by what its scenario expects.
fn judge(record: &mut RunRecord, expected: &[Expectation]) {
    expected.iter().for_each(|figure| figure.judge(&mut record.validity));
    for bound in &record.latency_bounds {
        bound.judge(record.latency.get(&bound.metric), &mut record.validity);
    }
}

/// Starts a relay of our own, unless another one is named. The script of a floor relay is deleted
/// when the relay, which has read it, listens.
pub(crate) fn start_relay(
    args: &Args,
    workload: &Workload,
    store: Option<&Path>,
    links: Option<Links>,
) -> anyhow::Result<Option<OwnRelay>> {
    if !args.starts_relay() {
        return Ok(None);
    }
    let script = args.floor.then(|| floor::script(args, workload)).transpose()?;
    let flags = script.as_ref().map_or_else(
        || relay_flags(args, workload, store),
        |script| vec!["--floor".into(), script.path().into()],
    );
    let relay = match args.serve {
        Some(address) => OwnRelay::spawn(&flags, address),
        None => OwnRelay::start(&flags, links),
    };
    relay.map(Some).context("the relay of our own did not start")
}

/// Starts the gateway before the relay, where the cell has one.
fn start_gateway(
    args: &Args,
    workload: &Workload,
    own_relay: Option<&OwnRelay>,
    connections: usize,
) -> anyhow::Result<Option<OwnRelay>> {
    /// The gateway's own default.
    const FEWEST: usize = 10_000;
    if !args.cell.via_gateway {
        return Ok(None);
    }
    // A client that connects again may be there twice.
    let most = FEWEST.max(2 * connections);
    let url = reached_at(args, own_relay)?;
    let mut flags: Vec<OsString> = vec!["--relay".into(), url.into()];
    flags.extend(wire_flags(args, spoken(args, workload)));
    flags.extend(["--max-connections".into(), most.to_string().into()]);
    flags.extend(args.ca.iter().flat_map(|file| [OsString::from("--ca"), file.into()]));
    if own_relay.is_some() {
        // Else as many as the relay has cores.
        flags.extend(["--threads".into(), args.relay_threads().to_string().into()]);
    }
    let links = own_relay.and_then(|relay| relay.links.as_ref());
    OwnRelay::start_gateway(&flags, links).map(Some).context("the gateway did not start")
}

/// Where the relay listens.
fn reached_at<'a>(args: &'a Args, own_relay: Option<&'a OwnRelay>) -> anyhow::Result<&'a String> {
    let others = args.url.as_ref().or(args.relay_at.as_ref());
    let url = others.or(own_relay.map(|relay| &relay.url));
    url.context("there is a relay of our own when no --url is given")
}

/// The relay to connect to, or the gateway before it, and what to offer it.
fn target(
    args: &Args,
    (own_relay, gateway): (Option<&OwnRelay>, Option<&OwnRelay>),
    compression: Compression,
    connections: usize,
) -> anyhow::Result<Target> {
    let relay = match gateway {
        // Without compression a client of today is played, whose bytes the gateway passes.
        Some(gateway) => endpoint(&gateway.url, None, &args.header).map(wire::Endpoint::without_plain_token),
        None => endpoint(reached_at(args, own_relay)?, args.ca.as_deref(), &args.header),
    };
    Ok(Target {
        relay: relay.map_err(UsageError)?,
        offer: Offer { batched: args.cell.batching.is_some(), formats: vec![args.cell.format], compression },
        limits: WireLimits::for_connections(connections),
        implementation: args.cell.implementation,
        over_links: own_relay.is_some_and(|relay| relay.links.is_some()),
    })
}

/// How a run is, whenever it is asked.
fn watch(options: &swarm::Options<'_>) -> impl Fn() -> Snapshot + Send + Sync + 'static {
    let watched = Arc::clone(&options.watched);
    let client = CpuClock::this_process();
    let relay = Mutex::new((Processes::from_pids(&options.relay_pids).ok(), 0));
    move || {
        let mut relay = relay.lock().unwrap_or_else(PoisonError::into_inner);
        let (processes, spent_ns) = &mut *relay;
        if let Some(Ok(now)) = processes.as_mut().map(Processes::read) {
            // A relay that ended keeps what it spent: a counter never falls.
            *spent_ns = now.since(&ProcessesCpu::default()).cpu.total_ns.max(*spent_ns);
        }
        Snapshot {
            relay_cpu_ns: *spent_ns,
            client_cpu_ns: client.read().map_or(0, |cpu| cpu.total_ns),
            ..watched.get().map(|shared| Snapshot::from(&**shared)).unwrap_or_default()
        }
    }
}

/// The relay's processes, as far as they are known, without the gateway's.
fn known_pids(args: &Args, own_relay: Option<&OwnRelay>) -> Vec<u32> {
    own_relay.map_or_else(|| args.relay_pid.clone(), |relay| vec![relay.pid])
}

/// Whether users have links, by the command line or by the scenario.
pub(crate) fn over_links(args: &Args) -> anyhow::Result<bool> {
    let name = &args.cell.scenario;
    let of_populations = Scenario::load_with(name, &args.set)?.has_links();
    let is_alone = args.starts_relay() && args.serve.is_none();
    anyhow::ensure!(
        is_alone || args.cell.link.is_none(),
        "--link needs a relay that this run starts: leave out --url"
    );
    anyhow::ensure!(
        is_alone || !of_populations,
        "populations of {name} have links, which need a relay that this run starts: leave out --url, or set their link \
         to none"
    );
    Ok(of_populations || args.cell.link.is_some())
}

/// How long a run over links lasts, unless the plan asks for more than this host emulates.
fn sized(args: &Args, workload: &Workload) -> anyhow::Result<Duration> {
    let demand = demand::for_workload(workload, args.cell.link.as_ref());
    links::within_capacity(&demand, args.link_capacity, |line| args.tell(line))?;
    Ok(demand.lasts)
}

/// The links of a run, that of the command line first, each with how many connections use it.
fn links_of(args: &Args, workload: &Workload) -> Vec<(Link, u64)> {
    let count = |over: Over| workload.roles.iter().filter(|role| role.speaks.over == over).count() as u64;
    let run = args.cell.link.iter().map(|link| (link.clone(), count(Over::Run)));
    let own = workload.links.iter().enumerate().map(|(n, link)| (link.clone(), count(Over::Own(n))));
    run.chain(own).collect()
}

/// The relay's process as the record describes it, where its process id is known. `info` is an
/// external relay's description of itself.
pub(crate) fn relay_process(
    args: &Args,
    pids: &[u32],
    own_relay: Option<&OwnRelay>,
    info: Option<Info>,
) -> Option<RelayProcess> {
    let Info { software, version, .. } = match own_relay {
        Some(_) => Info {
            software: Some("relay-sim".to_owned()),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            ..Info::default()
        },
        None => info.unwrap_or_default(),
    };
    let stated = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
    let (pid, more_pids) = pids.split_first()?;
    Some(RelayProcess {
        pid: Some(*pid),
        more_pids: more_pids.to_vec(),
        software: stated(software),
        version: stated(version),
        own: own_relay.is_some(),
        is_floor: own_relay.is_some() && args.floor,
        faults: own_relay.map(|relay| relay.faults.clone()).unwrap_or_default(),
        at_rest: own_relay.and_then(|relay| relay.at_rest.clone()),
        log_level: own_relay.and_then(|relay| relay.log_level.clone()),
        ..RelayProcess::default()
    })
}

/// Loads scenario and corpus. Every error is a mistake of the user.
pub(crate) fn inputs(args: &Args) -> anyhow::Result<(Scenario, Corpus, u64)> {
    args.cell.format.codec(args.cell.implementation)?;
    check_way(args)?;
    let (name, corpus) = (&args.cell.scenario, args.corpus.as_deref());
    let (mut scenario, corpus) = load(name, &args.set, args.seconds, corpus, args.skip_invalid)?;
    scenario.set_cell(&args.cell)?;
    scenario.only_new = args.plays_for_others();
    // Work is made once the relay has said how much.
    scenario.signing = Signing { work_bits: 0, ..args.signing.read()? };
    let seed = args.seed.unwrap_or_else(|| if args.url.is_some() { any_seed() } else { 1 });
    Ok((scenario, corpus, seed))
}

/// Computes the plan. Every error is a mistake of the user.
pub(crate) fn plan(
    args: &Args,
    scenario: &Scenario,
    corpus: &Corpus,
    seed: u64,
) -> Result<Workload, UsageError> {
    let workload = planned(args, scenario, corpus, seed).map_err(UsageError)?;
    check(args, &workload).map_err(UsageError)?;
    Ok(workload)
}

fn planned(args: &Args, scenario: &Scenario, corpus: &Corpus, seed: u64) -> anyhow::Result<Workload> {
    let formats: Vec<_> =
        Format::core().chain([args.cell.format]).chain(args.comparable_with.iter().copied()).collect();
    // A relay needs to know what is published and when the plan ends; the script of a floor relay
    // answers every request.
    let needs_no_session = args.serve.is_some() && !args.floor;
    let share = args.share.unwrap_or(if needs_no_session { Share::NOBODYS } else { Share::WHOLE });
    plan_share_over(scenario, corpus, seed, &formats, share)
}

/// Asks the relay of `--url` what it takes, unless `--doctor` says so. What it refuses by its rules
/// is set aside, and what stands against the scenario is an error. Returned with the plan is what the
/// relay says of itself (NIP-11).
fn within_rules(
    args: &Args,
    scenario: &mut Scenario,
    corpus: &Corpus,
    (seed, mut workload): (u64, Workload),
    interrupt: &mut Interrupt,
) -> anyhow::Result<(Workload, Option<Info>)> {
    let mut needs = Needs::default();
    needs.add_plan(&workload, scenario, corpus);
    let signing = Signing { work_bits: args.signing.pow.unwrap_or(0), ..scenario.signing.clone() };
    let relay = args.url.as_ref().map(|url| endpoint(url, args.ca.as_deref(), &args.header));
    let relay = relay.transpose().map_err(UsageError)?;
    let answers = match (&args.doctor, &relay) {
        (Some(file), relay) => {
            doctor::read(file, relay.as_ref().map(wire::Endpoint::url)).map_err(UsageError)?
        }
        (None, None) => return Ok((workload, None)),
        (None, Some(relay)) => {
            let asking = doctor::ask(relay, &needs, (seed, &signing), args.quiet, doctor::SILENCE);
            interruption::block_on(unless_interrupted(interrupt, asking))?
        }
    };
    if let Some(why) = doctor::table::refusal(&answers, &needs) {
        let name = &scenario.name;
        match relay.as_ref().map(wire::Endpoint::url) {
            Some(url) => bail!("{url} cannot play {name}: {why} (client-sim doctor --url {url} says more)"),
            None => bail!("the relay cannot play {name}: {why}"),
        }
    }
    scenario.rules = answers.rules(&needs);
    scenario.signing.work_bits = answers.work_bits.max(signing.work_bits);
    let refuses = |event: &Event<'_>| scenario.rules.refuses(event, json_bytes(event)).is_some();
    if scenario.signing.work_bits > 0 || corpus.events.iter().any(refuses) {
        let events = workload.events.len();
        // Two plans may be more than fit into memory.
        drop(std::mem::take(&mut workload));
        let again =
            || telling_of_work(args, &scenario.signing, events, || planned(args, scenario, corpus, seed));
        workload = interruption::or_exit(Some(interrupt), again)?.with_context(|| {
            format!("the relay cannot play it without {}", scenario.rules.kinds_set_aside().join("; "))
        })?;
    }
    let live = answers.rules.kinds.iter().filter(|(_, withheld)| withheld.live && !needs.stored);
    let live: Vec<u16> = live.map(|(kind, _)| *kind).collect();
    if !live.is_empty() {
        args.tell(&format!("the relay gives back no {}: this scenario reads them live", of_kinds(&live)));
    }
    if let Some(Bound { most, said }) = answers.subscriptions(&needs) {
        workload.most_subscriptions = usize::try_from(*most).ok();
        args.tell(&format!(
            "the relay takes {most} subscriptions at one time: sessions of a connection wait for each other: {said}"
        ));
    }
    if let Some(said) = &answers.rate {
        args.tell(&format!("the relay bounds the rate of events: {said}"));
    }
    Ok((workload, answers.info))
}

/// Makes a plan of about so many events, and says how far their proof of work is.
fn telling_of_work<T>(args: &Args, signing: &Signing, events: usize, plan: impl FnOnce() -> T) -> T {
    let (done, planned) = mpsc::channel::<()>();
    let tell = move || {
        while planned.recv_timeout(doctor::TELL_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
            let (worked, bits) = (signing.worked.load(Ordering::Relaxed), signing.work_bits);
            report(&format!("proof of work of {bits} bits: {worked} of about {events} events"));
        }
    };
    if args.quiet || signing.work_bits == 0 {
        return plan();
    }
    thread::scope(|scope| {
        thread::Builder::new().spawn_scoped(scope, tell).ok();
        let plan = plan();
        drop(done);
        plan
    })
}

/// Says what the plan lacks.
pub(crate) fn tell_plan(args: &Args, scenario: &Scenario, corpus: &Corpus, workload: &Workload) {
    if let Some(reason) = scenario.too_few_bursts(scenario.seconds) {
        args.tell(&reason);
    }
    for (what, count) in scenario.replay.iter().flat_map(|replay| &replay.recorded.left_out) {
        args.tell(&format!("left out {count} {what}"));
    }
    for (reason, events) in &workload.set_aside {
        args.tell(&format!("set aside {events} of {} corpus events: {reason}", corpus.events.len()));
    }
}

/// The separate cores of the relay and of the clients; `None` with `--no-pin`, or on a single core.
/// Those of another relay are what whoever started it chose.
fn pinned(args: &Args) -> anyhow::Result<Option<PinnedCores>> {
    if !args.relay_pid.is_empty() {
        return Ok(cores::apart(&args.relay_pid));
    }
    if args.no_pin || !args.starts_relay() {
        return Ok(None);
    }
    cores::halves().context("cannot read which cores this process may use (--no-pin avoids this)")
}

/// The compression of `--compression`, with the dictionary of `--dictionary`.
fn compression(args: &Args) -> anyhow::Result<Compression> {
    let Some(file) = &args.dictionary else { return Ok(args.cell.compression) };
    let dictionary =
        wire::dictionary::read(file).with_context(|| format!("--dictionary {}", file.display()))?;
    let compression = args.cell.compression.with_dictionary(dictionary);
    anyhow::ensure!(
        compression.dictionary().is_some(),
        "--dictionary is for --compression zstd-dict, not for {}",
        args.cell.compression
    );
    Ok(compression)
}

/// A seed that differs from run to run: the standard library seeds its hash maps at random.
fn any_seed() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id())
}

/// The formats and compressions that clients speak, those of the cell first, each once.
fn spoken(args: &Args, workload: &Workload) -> (Vec<Format>, Vec<Compression>) {
    let (mut formats, mut compressions) = (vec![args.cell.format], vec![args.cell.compression]);
    for speaks in workload.spoken() {
        formats.extend(speaks.format.filter(|format| !formats.contains(format)));
        compressions.extend(speaks.compression.filter(|compression| !compressions.contains(compression)));
    }
    (formats, compressions)
}

/// Refuses a format without the implementation, and compressions that a relay could not tell apart by
/// clients' offers.
fn check_spoken(args: &Args, workload: &Workload) -> anyhow::Result<()> {
    let (formats, compressions) = spoken(args, workload);
    for format in formats {
        format.codec(args.cell.implementation).context("a population of the scenario speaks it")?;
    }
    let kind = |compression: &Compression| match compression {
        // One extension (RFC 7692), whose parameters the relay decides.
        Compression::Deflate(_) => "deflate",
        other => other.name(),
    };
    let mut kinds = HashMap::new();
    for compression in compressions {
        if let Some(other) = kinds.insert(kind(&compression), compression) {
            bail!(
                "the relay cannot speak {} with some clients and {} with others: give populations the same, or none",
                other.label(),
                compression.label()
            );
        }
    }
    Ok(())
}

/// Refuses a gateway where it could not do what is asked for.
fn check_way(args: &Args) -> anyhow::Result<()> {
    if !args.cell.via_gateway {
        return Ok(());
    }
    anyhow::ensure!(
        args.cell.batching.is_none(),
        "--via gateway makes no batches: leave out --batching or --via"
    );
    let is_part = args.share.is_some() || args.serve.is_some() || args.relay_at.is_some();
    anyhow::ensure!(
        !is_part && !args.floor,
        "--via gateway starts a gateway before a whole relay on this machine: leave it out with --share, --serve, --relay-at \
         and --floor"
    );
    Ok(())
}

/// Refuses a plan that this command line cannot play, or that goes beyond what it allows.
fn check(args: &Args, workload: &Workload) -> anyhow::Result<()> {
    check_spoken(args, workload)?;
    check_light(args, workload)?;
    // Slow readers read slowly until all is done, and a closed loop lasts as long as its answers take.
    anyhow::ensure!(
        args.share.is_none() || !workload.is_closed() || !workload.roles.iter().any(Role::reads_slowly),
        "--share cannot play slow readers (read_bytes_per_s) beside a closed loop: no agent knows when another's loop \
         ends. Leave one of them out of the scenario"
    );
    if let Some(most) = args.max_rate {
        // Clients that reconcile publish in a closed loop, too.
        anyhow::ensure!(
            !workload.publications.iter().any(|publication| publication.closed),
            "--max-rate {most}: the plan publishes in a closed loop, which only the relay's answers slow down"
        );
        let found = workload.published_per_s_max();
        anyhow::ensure!(
            found <= most as usize,
            "--max-rate {most}: the plan publishes up to {found} events in a second"
        );
    }
    if let Some(most) = args.max_connections {
        let share = args.share.unwrap_or(Share::WHOLE);
        let found = connections_made(workload, share.of)[usize::from(share.index)];
        anyhow::ensure!(
            found <= u64::from(most),
            "--max-connections {most}: this share of the plan makes {found} connections"
        );
    }
    Ok(())
}

/// Refuses light readers where a message may hold several events, and where each event is to be
/// checked.
fn check_light(args: &Args, workload: &Workload) -> anyhow::Result<()> {
    let batches = args.cell.batching.is_some();
    let counts_alone = !batches && args.cell.client_verify == VerifyLevel::None;
    if counts_alone || workload.roles.iter().all(|role| role.decode_every.is_none()) {
        return Ok(());
    }
    if args.cell.saturate.is_some() {
        bail!(
            "--saturate has readers count most deliveries unread, which does not go with --batching or --client-verify: \
             ask for --saturate=clients, or leave them out"
        );
    }
    let (flag, why) = match batches {
        true => ("--batching", "a batch does not say how many events it holds"),
        false => ("--client-verify", "they do not see the events that they count"),
    };
    bail!("decode_every of light readers beside {flag}: {why}. Leave one of them out")
}

/// What relay-sim and the gateway speak.
fn wire_flags(args: &Args, (formats, compressions): (Vec<Format>, Vec<Compression>)) -> Vec<OsString> {
    let list = |names: Vec<String>| OsString::from(names.join(","));
    let formats = list(formats.iter().map(Format::to_string).collect());
    let has_dictionaries = compressions.iter().any(|compression| compression.name() == "zstd-dict");
    let compressions = list(compressions.iter().map(Compression::spelled_out).collect());
    let dictionary = args.dictionary.iter().filter(|_| has_dictionaries);
    let dictionary = dictionary.flat_map(|file| [OsString::from("--dictionary"), file.into()]);
    let flags = ["--format".into(), formats, "--compression".into(), compressions];
    flags.into_iter().chain(dictionary).collect()
}

fn relay_flags(args: &Args, workload: &Workload, store: Option<&Path>) -> Vec<OsString> {
    let own = |factor: Factor| (format!("--{}", factor.row().relay_flag()), (factor.row().write)(&args.cell));
    let limits = args.cell.batching.into_iter().flat_map(Batching::limits);
    let flags = std::iter::once(own(Factor::Implementation)).chain(Factor::on_side(Side::Relay).map(own));
    let flags = flags.chain(limits.map(|(name, limit)| (format!("--batch-{name}"), limit.to_string())));
    let flags = flags.flat_map(|(flag, value)| [OsString::from(flag), value.into()]);
    let faults = args.relay_fault.iter();
    let faults = faults.flat_map(|fault| [OsString::from("--fault"), fault.to_string().into()]);
    let frame =
        workload.frame_bytes.map(|bytes| ["--reconcile-frame-bytes".into(), bytes.to_string().into()]);
    let frame = frame.into_iter().flatten();
    // To a gateway it speaks as any relay does.
    let spoken = match args.cell.via_gateway {
        true => (vec![Format::JSON], vec![Compression::None]),
        false => spoken(args, workload),
    };
    let flags = flags.chain(wire_flags(args, spoken));
    let store = store.into_iter().flat_map(|directory| [OsString::from("--store"), directory.into()]);
    let at_rest = args.at_rest.map(|format| ["--at-rest".into(), format.to_string().into()]);
    let flags = flags.chain(store).chain(at_rest.into_iter().flatten());
    // A corpus is replayed years after some of its events expired (NIP-40).
    let flags = flags.chain(["--keep-expired".into()]);
    flags.chain(workload.proves().then(|| "--auth".into())).chain(faults).chain(frame).collect()
}
