//! Starts the relay of a plan that other processes play, and reads on its own machine what it
//! spends.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use measure::{CpuClock, Environment, Processes, QuotaMeter, RelayRecord, SCHEMA_VERSION, Tool};
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
    let process =
        run::relay_process(args, &[relay.pid], Some(&relay), None).context("it has a process id")?;
    let url = at.map_or_else(|| relay.url.clone(), |at| at.to_string());
    let clock = CpuClock::of_process(relay.pid)?;
    let processes = Processes::from_pids(&[relay.pid]).ok();
    let record = RelayRecord {
        schema_version: SCHEMA_VERSION.to_owned(),
        tool: Tool { name: "client-sim".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
        cores: u64::from(args.relay_threads()).min(environment.cores),
        environment,
        block_id: args.block_id.clone(),
        plan_sha256: workload.sha256(),
        process,
        ..RelayRecord::default()
    };
    let host = Host { relay, clock, processes, orders: Orders::of_stdin() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let record = runtime.block_on(async {
        // Ctrl-C in a terminal reaches this process, too, as does its end. Who started it ends it,
        // after the players.
        program::leave_terminal_to_parent()?;
        say_prepared(&record.plan_sha256, &corpus.fingerprint.to_string(), Some(&url))?;
        host.watch(record, workload.last_due()).await
    })?;
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
    /// the plan's last instant where each of them ended early. Returns the record with what was read.
    async fn watch(mut self, mut record: RelayRecord, last: Duration) -> anyhow::Result<RelayRecord> {
        let orders = self.orders.clone();
        let start = tokio::select! {
            biased;
            start = orders.start() => start?,
            reason = self.stopped() => bail!("stopped before the start: {}", reason?),
        };
        self.wait_until(start - ASKED_AHEAD).await?;
        let totals = self.relay.totals();
        let allocations = self.relay.allocations();
        record.memory_bytes = self.memory_bytes();
        let written_before = self.written_bytes();
        self.wait_until(start).await?;
        let quota = QuotaMeter::of_this_process();
        let begun = self.clock.read()?;
        let (mut at, mut every) = (start + last, READS_EVERY);
        loop {
            let stopped = time::timeout_at(at.into(), self.stopped()).await.ok().transpose()?;
            if record.cpu.add(nanos(start.elapsed()), self.clock.read()?.since(begun)) {
                every *= 2;
            }
            if stopped.is_some() {
                break;
            }
            at = Instant::now() + every;
        }
        record.environment.cpu_quota = quota.read();
        time::sleep(OUTLIVES).await;
        let written = self.written_bytes().zip(written_before);
        record.process.written_bytes = written.map(|(after, before)| after.saturating_sub(before));
        record.memory_peak_bytes = self.memory_bytes().max(record.memory_bytes);
        let allocated = allocations.zip(self.relay.allocations());
        record.allocations = allocated.map(|(before, after)| after.since(before));
        record.cpu_pressure_percent = measure::cpu_pressure_percent();
        let ended = self.relay.stop().context("the relay of our own did not end well")?;
        // A floor relay counts nothing.
        if let Ok(after) = serde_json::from_str::<Totals>(&ended) {
            record.encodings = totals.map(|before| encodings_between(before, after));
            record.compression_bytes_per_connection =
                Some(after.compression_bytes / after.connections.max(1));
            record.compression_shared_bytes = Some(after.compression_shared_bytes);
        }
        Ok(record)
    }

    fn memory_bytes(&self) -> Option<u64> {
        memory::resident(self.relay.pid).map(|resident| resident.own_bytes)
    }

    fn written_bytes(&self) -> Option<u64> {
        self.processes.as_ref().and_then(Processes::written_bytes)
    }

    /// Waits until an instant before the load.
    async fn wait_until(&mut self, at: Instant) -> anyhow::Result<()> {
        match time::timeout_at(at.into(), self.stopped()).await {
            Err(_) => Ok(()),
            Ok(reason) => bail!("stopped before the start: {}", reason?),
        }
    }

    /// Waits until the relay is to stop; returns the reason.
    ///
    /// # Errors
    /// When the relay is lost.
    async fn stopped(&mut self) -> anyhow::Result<String> {
        let mut stopped = None;
        loop {
            // Players that lost it may have said so first.
            if let Some(how) = self.relay.ended()? {
                bail!("the relay was lost: {how}");
            }
            if let Some(reason) = stopped {
                return Ok(reason);
            }
            stopped = time::timeout(LOOKS_EVERY, self.orders.stopped()).await.ok();
        }
    }
}
