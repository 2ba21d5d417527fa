//! From the command line to a running relay.

use std::{ffi::OsString, fs, io, path::Path, process::ExitCode, sync::Arc};

use anyhow::{Context, Result};
use codecs::Format;
use recording::{Recorder, Redaction};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tracing::{info, level_filters::LevelFilter, warn};

use crate::{
    args::Args,
    fault::{self, Fault},
    floor::{self, Script},
    relay::Relay,
    server,
    totals::Totals,
};

/// The line that a relay started with `--announce` prints once it listens. The last line it prints
/// is its [`Totals`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// Its URL.
    pub listening: String,
    /// Its process.
    pub pid: u32,
    /// How it misbehaves, because it was told to.
    #[serde(default)]
    pub faults: Vec<String>,
    /// The format of its events on disk; `None` for a relay with everything in memory.
    #[serde(default)]
    pub at_rest: Option<String>,
    /// The most that it logs: off, error, warn, info, debug or trace.
    #[serde(default)]
    pub log_level: Option<String>,
}

/// The line that a relay started with `--announce` prints instead when it cannot listen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Why, with the cause.
    pub failed: String,
}

/// Runs the relay as the command line says; `args` are the arguments after the program's name.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = std::iter::once("relay-sim".into()).chain(args).collect();
    let announces = args.iter().any(|arg| arg == "--announce");
    let args = match program::parse::<Args>(&args) {
        Ok(args) => args,
        Err(not_parsed) => {
            if announces {
                say_failed(not_parsed.said.lines().next().unwrap_or_default());
            }
            return not_parsed.code;
        }
    };
    // The log of a relay started by another program is that program's business.
    let level = if args.announce { "warn" } else { "info" };
    program::log(level);
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            program::report(&format!("relay-sim: {error:#}"));
            if announces {
                say_failed(&format!("{error:#}"));
            }
            ExitCode::FAILURE
        }
    }
}

/// Tells the program that started this one why there is no relay.
fn say_failed(why: &str) {
    program::tell(&Refusal { failed: why.to_owned() });
}

fn run(mut args: Args) -> Result<()> {
    let (listen, threads, announce) = (args.listen, usize::from(args.threads), args.announce);
    let script = args.floor.as_deref().map(Script::read).transpose()?;
    let record = args.record.take();
    let mut config = args.into_config()?;
    if let Err(error) = program::raise_descriptor_limit() {
        warn!(%error, "cannot raise the limit of open descriptors; it also limits connections");
    }
    // Beside them one reads standard input.
    program::try_threads(if threads == 1 { 1 } else { threads + 1 })?;
    let runtime = if threads == 1 {
        tokio::runtime::Builder::new_current_thread().enable_all().build()
    } else {
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()
    };
    let scheme = if config.tls.is_some() { "wss" } else { "ws" };
    runtime.context("cannot start the async runtime")?.block_on(async {
        // First, so that an address in use leaves no new recording behind.
        let listener = program::listen(listen)?;
        let address = listener.local_addr().context("the listening socket has no address")?;
        let faults: Vec<_> = config.faults.iter().map(ToString::to_string).collect();
        config.recorder = record.as_deref().map(recorder).transpose()?;
        let relay = server::open(config).inspect_err(|_| _ = record.as_deref().map(fs::remove_file))?;
        let listener = delayed(listener, &relay).context("cannot delay what is sent")?;
        let config = &relay.config;
        let asked = Arc::clone(&relay);
        // Asked before and after a span of time, to tell its cost.
        let answer = move |line: &str| match line {
            "allocations" => program::tell(&serde_json::json!(measure::Allocations::so_far())),
            "totals" => program::tell(&asked.totals()),
            _ => {}
        };
        let stop = program::stopped(announce.then_some(answer))?;
        info!(
            url = %format_args!("{scheme}://{address}"),
            formats = %names(&config.formats),
            implementation = %config.implementation,
            compressions = %names(&config.compressions),
            verify = %config.verify,
            at_rest = relay.at_rest().map_or("memory", Format::name),
            threads,
            "listening; stop with Ctrl-C"
        );
        if announce {
            let listening = format!("{scheme}://{address}");
            let at_rest = relay.at_rest().map(|format| format.to_string());
            let log_level = Some(LevelFilter::current().to_string());
            let pid = std::process::id();
            program::tell(&Announcement { listening, pid, faults: faults.clone(), at_rest, log_level });
        }
        if let Some(script) = script {
            floor::serve(listener, script, stop).await?;
            if announce {
                program::tell(&serde_json::json!({ "floor": true }));
            }
            return Ok(());
        }
        let totals = server::serve_relay(listener, Arc::clone(&relay), stop).await;
        info!(
            connections = totals.connections,
            events = totals.events_received,
            rejected = totals.events_rejected,
            requests = totals.requests,
            deliveries = totals.deliveries_live + totals.deliveries_stored,
            slow_consumers = totals.slow_consumers,
            malformed = totals.malformed,
            "stopped"
        );
        if announce {
            say_totals(&totals, &relay.faults.hits())?;
        }
        Ok(())
    })
}

/// Begins to record.
fn recorder(file: &Path) -> io::Result<Arc<Recorder>> {
    Recorder::start(file, Redaction::Pseudonyms, concat!("relay-sim ", env!("CARGO_PKG_VERSION")))
}

/// The listener that the relay serves: another one behind a delay, when that is among the faults.
fn delayed(listener: TcpListener, relay: &Relay) -> Result<TcpListener> {
    if !relay.config.faults.iter().any(Fault::is_a_delay) {
        return Ok(listener);
    }
    let outer = listener.into_std()?;
    outer.set_nonblocking(false)?;
    let inner = fault::behind_a_delay(outer, Arc::clone(&relay.faults))?;
    inner.set_nonblocking(true)?;
    Ok(TcpListener::from_std(inner)?)
}

fn names<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}

/// The totals with the faults, and how often each hit.
fn say_totals(totals: &Totals, hits: &[(String, u64)]) -> Result<()> {
    let mut line = serde_json::to_value(totals).context("totals do not serialize")?;
    line["faults"] = hits.iter().map(|(fault, _)| fault.as_str()).collect();
    line["hits"] = hits.iter().map(|(_, hits)| *hits).collect();
    program::tell(&line);
    Ok(())
}
