//! Starts the relay of a plan that other processes play, and reads on its own machine what it
//! spends.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use measure::{
    Allocations, CpuClock, CpuQuota, CpuReadings, Environment, Processes, QuotaMeter, RelayRecord,
    SCHEMA_VERSION, Tool,
};
use relay_sim::Totals;
use tokio::time;
use wire::RelayUrl;

use crate::{
    args::Args,
    commands::run,
    outcome::{outputs, record::encodings_between},
    relays::{memory, own_relay::OwnRelay},
    share::{Orders, say_prepared},
};
use program::UsageError;
use workload::schedule::nanos;

/// How long before the start the relay says what it did until then, so that no answer is measured.
const ASKED_AHEAD: Duration = Duration::from_millis(200);

/// Between two looks at whether the relay lives.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// Between two readings of its CPU clock from the plan's last instant on.
const READS_EVERY: Duration = Duration::from_millis(10);

/// For players that are told to stop at the same instant, so that they lose no connection before.
const OUTLIVES: Duration = Duration::from_millis(100);

/// Runs `client-sim --serve`.
///
/// # Errors
/// When the relay does not start or is lost, or is told to stop before the start.
pub(crate) fn serve(args: &Args) -> anyhow::Result<()> {
    outputs::try_all(args).map_err(UsageError)?;
    run::over_links(args).map_err(UsageError)?;
    let at = reached_at(args).map_err(UsageError)?;
    let (scenario, corpus, seed) = run::inputs(args).map_err(UsageError)?;
    let workload = run::plan(args, &scenario, &corpus, seed)?;
    run::tell_plan(args, &scenario, &corpus, &workload);
    let environment = Environment::collect();
    let relay = run::start_relay(args, &workload, None, None)?;
    let relay = relay.context("--serve starts a relay")?;
    let mut process =
        run::relay_process(args, &[relay.pid], Some(&relay), None).context("it has a process id")?;
    let plan_sha256 = workload.sha256();
    let url = at.map_or_else(|| relay.url.clone(), |at| at.to_string());
    let clock = CpuClock::of_process(relay.pid)?;
    let processes = Processes::from_pids(&[relay.pid]).ok();
    let host = Host { relay, clock, processes, orders: Orders::of_stdin() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let seen = runtime.block_on(async {
        // Ctrl-C in a terminal reaches this process, too, as does its end. Who started it ends it,
        // after the players.
        program::leave_terminal_to_parent()?;
        say_prepared(&plan_sha256, &corpus.fingerprint.to_string(), Some(&url))?;
        host.watch(workload.last_due()).await
    })?;
    let totals = seen.totals.1;
    process.written_bytes = seen.written_bytes;
    let record = RelayRecord {
        schema_version: SCHEMA_VERSION.to_owned(),
        tool: Tool { name: "client-sim".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
        cores: u64::from(args.relay_threads()).min(environment.cores),
        environment: Environment { cpu_quota: seen.quota, ..environment },
        block_id: args.block_id.clone(),
        plan_sha256,
        process,
        cpu: seen.cpu,
        memory_bytes: seen.memory.0,
        memory_peak_bytes: seen.memory.1,
        encodings: seen.totals.0.zip(totals).map(|(before, after)| encodings_between(before, after)),
        compression_bytes_per_connection: totals
            .map(|totals| totals.compression_bytes / totals.connections.max(1)),
        compression_shared_bytes: totals.map(|totals| totals.compression_shared_bytes),
        allocations: seen.allocations.0.zip(seen.allocations.1).map(|(before, after)| after.since(before)),
        cpu_pressure_percent: seen.cpu_pressure_percent,
    };
    record.write(args.record.as_deref().context("--serve needs --record")?)?;
    Ok(())
}

/// The URL of `--relay-at`, which players are told.
fn reached_at(args: &Args) -> anyhow::Result<Option<RelayUrl>> {
    let at: Option<RelayUrl> = args.relay_at.as_deref().map(str::parse).transpose()?;
    ensure!(
        at.as_ref().is_none_or(|at| at.authorization().is_none()),
        "players are told the URL of --relay-at: leave out its user and password"
    );
    Ok(at)
}

/// Readings of a relay, in pairs before the start and after the end.
struct RelayReadings {
    cpu: CpuReadings,
    written_bytes: Option<u64>,
    memory: (Option<u64>, Option<u64>),
    totals: (Option<Totals>, Option<Totals>),
    allocations: (Option<Allocations>, Option<Allocations>),
    cpu_pressure_percent: Option<f64>,
    quota: Option<CpuQuota>,
}

/// The relay, and who says when it is played against.
struct Host {
    relay: OwnRelay,
    clock: CpuClock,
    /// Where the system tells of processes.
    processes: Option<Processes>,
    orders: Orders,
}

impl Host {
    /// Waits for the start, and until the stop, which is the end of the players: it comes before
    /// the plan's last instant where each of them ended early.
    async fn watch(mut self, last: Duration) -> anyhow::Result<RelayReadings> {
        let start = self.start().await?;
        self.wait_until(start - ASKED_AHEAD).await?;
        let totals = self.relay.totals();
        let allocations = self.relay.allocations();
        let memory = memory::resident(self.relay.pid).map(|resident| resident.own_bytes);
        let written_before = self.processes.as_ref().and_then(Processes::written_bytes);
        self.wait_until(start).await?;
        let quota = QuotaMeter::of_this_process();
        let begun = self.clock.read()?;
        let (mut cpu, mut every) = (CpuReadings::default(), READS_EVERY);
        let mut at = start + last;
        loop {
            let has_ended = self.stopped_before(at).await?.is_some();
            if cpu.add(nanos(start.elapsed()), self.clock.read()?.since(begun)) {
                every *= 2;
            }
            if has_ended {
                break;
            }
            at = Instant::now() + every;
        }
        let quota = quota.read();
        time::sleep(OUTLIVES).await;
        let written = self.processes.as_ref().and_then(Processes::written_bytes).zip(written_before);
        let peak = memory::resident(self.relay.pid).map(|resident| resident.own_bytes).max(memory);
        let allocated = self.relay.allocations();
        let cpu_pressure_percent = measure::cpu_pressure_percent();
        let ended = self.relay.stop().context("the relay of our own did not end well")?;
        Ok(RelayReadings {
            cpu,
            written_bytes: written.map(|(after, before)| after.saturating_sub(before)),
            memory: (memory, peak),
            // A floor relay counts nothing.
            totals: (totals, serde_json::from_str(&ended).ok()),
            allocations: (allocations, allocated),
            cpu_pressure_percent,
            quota,
        })
    }

    async fn start(&mut self) -> anyhow::Result<Instant> {
        let orders = self.orders.clone();
        let start = orders.start();
        tokio::pin!(start);
        loop {
            tokio::select! {
                biased;
                start = start.as_mut() => return start,
                stopped = self.stopped_before(Instant::now() + LOOKS_EVERY) => {
                    if let Some(reason) = stopped? {
                        bail!("stopped before the start: {reason}");
                    }
                }
            }
        }
    }

    /// Waits until an instant before the load.
    async fn wait_until(&mut self, at: Instant) -> anyhow::Result<()> {
        match self.stopped_before(at).await? {
            None => Ok(()),
            Some(reason) => bail!("stopped before the start: {reason}"),
        }
    }

    /// Waits until an instant, or until the relay is to stop; then it returns the reason.
    ///
    /// # Errors
    /// When the relay is lost.
    async fn stopped_before(&mut self, at: Instant) -> anyhow::Result<Option<String>> {
        loop {
            self.lives()?;
            let now = Instant::now();
            if now >= at {
                return Ok(None);
            }
            tokio::select! {
                reason = self.orders.stopped() => {
                    // Players that lost it may have said so first.
                    self.lives()?;
                    return Ok(Some(reason));
                }
                () = time::sleep_until(at.min(now + LOOKS_EVERY).into()) => {}
            }
        }
    }

    fn lives(&mut self) -> anyhow::Result<()> {
        match self.relay.ended()? {
            None => Ok(()),
            Some(how) => bail!("the relay was lost: {how}"),
        }
    }
}
