//! `corpus capture`: real events from live relays.
//!
//! Each relay has a task (`relay.rs`) that sends requests, pages backwards and checks. Accepted
//! events go through a bounded channel to this task, which alone writes (`output.rs`). The
//! provenance next to the file counts every event (`provenance.rs`).

mod history;
mod output;
mod provenance;
mod relay;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, ensure};
use codecs::{ClientMessage, Event, Filter, Format};
use program::Interrupt;
use program::Unechoed;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{self, Instant},
};
use wire::{Compression, Endpoint, Header, RelayUrl};

use self::{
    output::Output,
    provenance::{Provenance, RelayReport, Session},
    relay::Task,
};
use super::{PROGRESS_EVERY, Progress, say, tell, unix_seconds};

/// Events to collect without `--count` and `--for`.
const DEFAULT_COUNT: u64 = 10_000;

/// Accepted events that wait to be written. An event is at most 1 MiB.
const WAITING_EVENTS: usize = 64;

/// Interval at which a compressed stream is ended: the most that a crash loses.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(60);

/// The time of a capture without `--for`: 30 years.
const FOREVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Interval of reports while nothing new comes.
const SILENCE: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  corpus capture --relay wss://relay.example --count 20000 --out real.jsonl.zst
  corpus capture --relay wss://a.example --relay wss://b.example --filter '{\"kinds\":[1,7]}' --for 10m --out live.pb.gz

The same command again continues where it ended: events in the file are kept and count. It requests the last 54 hours
before the newest event again, because gift wraps are dated back by two days, and older events as long as it finds new
ones; --again requests everything.
OUT.provenance.json has relays, filters, counts and rejected events with reasons. Keep within what the operators of
relays allow. These are people's posts: publish statistics, not events.")]
pub(crate) struct Args {
    /// Relay to capture from (wss:// or ws://); may be repeated.
    #[arg(long = "relay", value_name = "URL", required = true)]
    relays: Vec<String>,
    /// A filter, as in a REQ; may be repeated. Everything when absent. Its limit is for each
    /// relay.
    #[arg(long = "filter", value_name = "JSON", value_parser = filter)]
    filters: Vec<Filter>,
    /// End when the file holds this many events; 10000 when neither this nor --for is given.
    #[arg(long)]
    count: Option<u64>,
    /// End after this time (90s, 10m, 2h). Until then live events are taken too, not only stored
    /// ones.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// Output file; the name decides the format. An existing file is continued.
    #[arg(long)]
    out: PathBuf,
    /// Ask again for all that earlier captures of the file have, as after an import of old events.
    #[arg(long)]
    again: bool,
    /// Root certificates (PEM) to trust instead of the platform's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// A header field of every request to every relay, for a proxy in front of it; may be repeated.
    /// The provenance has only its name.
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = Unechoed::<Header>::NEW)]
    headers: Vec<Header>,
    /// Compression to request from relays: none or deflate.
    #[arg(long, default_value = "deflate")]
    compression: Compression,
    /// Events to request at once; relays with a lower limit answer with fewer.
    #[arg(long, default_value_t = 500)]
    page: u64,
    /// How long a relay may send nothing new before its answer counts as ended.
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = duration)]
    patience: Duration,
}

/// `["REQ","x",FILTER]` as the JSON codec reads it, so that a filter has one meaning.
fn filter(text: &str) -> Result<Filter, String> {
    let request = format!("[\"REQ\",\"x\",{text}]");
    let example = "expected a NIP-01 filter such as {\"kinds\":[1,7],\"since\":1700000000}";
    let message = Format::JSON.spec().library.decode_client(request.as_bytes()).map_err(|error| {
        let said = error.to_string();
        // The place is one in the request.
        let what = said.rsplit_once(" (byte ").map_or(said.as_str(), |(what, _)| what);
        format!("{what}; {example}")
    })?;
    match message {
        ClientMessage::Req { mut filters, .. } if filters.len() == 1 => match filters.remove(0) {
            Filter { unknown: Some(field), .. } => Err(format!("unknown field {field:?}; {example}")),
            filter => Ok(filter),
        },
        _ => Err(example.to_owned()),
    }
}

/// A filter as in a REQ.
fn filter_text(filter: &Filter) -> String {
    let mut bytes = Vec::new();
    let request = ClientMessage::Req { subscription: "x".into(), filters: vec![filter.clone()] };
    let written = Format::JSON.spec().library.encode_client(&request, &mut bytes);
    written.expect("a filter that was read from JSON can be written");
    let text = String::from_utf8(bytes).expect("JSON is UTF-8");
    text.trim_start_matches("[\"REQ\",\"x\",").trim_end_matches(']').to_owned()
}

/// `90s`, `10m`, `2h`, or seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let seconds = program::units::seconds(text)?;
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| format!("{seconds} s: expected a time that a clock can tell"))
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let relays = relays(args)?;
    ensure!(args.page > 0, "--page is at least 1");
    let compression = args.compression.name();
    ensure!(
        matches!(compression, "none" | "deflate"),
        "relays elsewhere know no compression {compression:?}; expected none or deflate"
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(capture(args, relays));
    // A question for a relay's NIP-11 document may still wait for its answer.
    runtime.shutdown_background();
    code
}

/// Why a capture ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
enum End {
    #[display("the count was reached")]
    Count,
    #[display("the time was over")]
    Time,
    #[display("the relays had no more of what was asked for")]
    Relays,
    #[display("of relays that were given up more may be missing")]
    GivenUp,
    #[display("interrupted")]
    Interrupted,
}

async fn capture(args: &Args, relays: Vec<Endpoint>) -> anyhow::Result<ExitCode> {
    // Until here nothing is changed, and a signal ends the program at once: a large file takes time.
    let mut output = Output::open(&args.out)?;
    let mut provenance = Provenance::open(&args.out, output.events(), args.again)?;
    let mut interrupt = Interrupt::listen()?;
    let count = args.count.or(args.time.is_none().then_some(DEFAULT_COUNT));
    let started = unix_seconds();
    let filters = if args.filters.is_empty() { vec![Filter::default()] } else { args.filters.clone() };
    let (stop, stopped) = watch::channel(false);
    let (sender, mut accepted) = mpsc::channel::<Event<'static>>(WAITING_EVENTS);
    let mut tasks = JoinSet::new();
    for relay in relays {
        let task = Task {
            settled: provenance.settled(relay.url()),
            relay,
            filters: filters.clone(),
            compression: args.compression,
            page: args.page,
            patience: args.patience,
            live: args.time.is_some(),
            started,
            ids: output.ids(),
            accepted: sender.clone(),
        };
        tasks.spawn(task.run(stopped.clone()));
    }
    drop(sender);

    let deadline = Instant::now() + args.time.unwrap_or(FOREVER);
    let mut progress = Progress::new("captured", count, "events");
    let silence = time::sleep(PROGRESS_EVERY);
    tokio::pin!(silence);
    let mut checkpoint = time::interval_at(Instant::now() + CHECKPOINT_EVERY, CHECKPOINT_EVERY);
    let mut end = if count.is_some_and(|count| output.events() >= count) { End::Count } else { End::Relays };
    let mut open = end != End::Count;
    while open {
        tokio::select! {
            event = accepted.recv() => match event {
                Some(event) => {
                    output.write(&event)?;
                    progress.report(output.events());
                    silence.as_mut().reset(Instant::now() + PROGRESS_EVERY);
                    if count.is_some_and(|count| output.events() >= count) {
                        (end, open) = (End::Count, false);
                    }
                }
                None => open = false,
            },
            _ = checkpoint.tick() => output.checkpoint()?,
            () = &mut silence => {
                progress.report(output.events());
                silence.as_mut().reset(Instant::now() + SILENCE);
            }
            () = time::sleep_until(deadline) => (end, open) = (End::Time, false),
            () = interrupt.wait() => (end, open) = (End::Interrupted, false),
        }
    }
    stop.send_replace(true);
    // Accepted events are written up to the count.
    let mut newest_left_out = None;
    while let Some(event) = accepted.recv().await {
        if count.is_none_or(|count| output.events() < count) {
            output.write(&event)?;
        } else {
            newest_left_out = newest_left_out.max(Some(event.created_at));
        }
    }
    let mut reports: Vec<RelayReport> = Vec::new();
    while let Some(report) = tasks.join_next().await {
        let mut report = report.context("a task of a relay failed; this is a bug")?;
        if let Some(created_at) = newest_left_out {
            report.unsettle(created_at);
        }
        reports.push(report);
    }
    reports.iter().for_each(|report| tell(&report.to_string()));
    let failed = reports.iter().all(|report| report.failure.is_some());
    if end == End::Relays && reports.iter().any(|report| report.failure.is_some()) {
        end = End::GivenUp;
    }
    let (events, new) = (output.events(), output.new_events());
    output.checkpoint()?;
    let session = Session {
        program: concat!("corpus capture ", env!("CARGO_PKG_VERSION")).to_owned(),
        started,
        ended: unix_seconds(),
        ended_because: end.to_string(),
        filters: args.filters.iter().map(filter_text).collect(),
        compression: args.compression.spelled_out(),
        headers: args.headers.iter().map(ToString::to_string).collect(),
        events_new: new,
        relays: reports,
    };
    provenance.add(session, events)?;
    say(&format!("{}: {events} events, {new} of them new; {end}", args.out.display()))?;
    if end == End::Interrupted {
        return Ok(ExitCode::from(130));
    }
    ensure!(
        end != End::GivenUp || !failed || new > 0,
        "no relay gave anything; the reasons are above and in the provenance"
    );
    Ok(ExitCode::SUCCESS)
}

/// Each relay once, in the order given.
fn relays(args: &Args) -> anyhow::Result<Vec<Endpoint>> {
    let mut unique: Vec<RelayUrl> = Vec::new();
    for text in &args.relays {
        let url: RelayUrl = text.parse()?;
        if !unique.iter().any(|known| known.to_string() == url.to_string()) {
            unique.push(url);
        }
    }
    let relay = |url| {
        let relay = Endpoint::new(url, args.ca.as_deref()).context("cannot check certificates of relays")?;
        relay.with_headers(args.headers.clone()).context("--header")
    };
    unique.into_iter().map(relay).collect()
}
