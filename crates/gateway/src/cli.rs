//! From the command line to a running gateway.

use std::{ffi::OsString, process::ExitCode, thread::available_parallelism};

use anyhow::{Context, Result};
use serde_json::json;
use tracing::{info, level_filters::LevelFilter, warn};

use crate::{config::Config, server::serve, shared::Gateway};

/// Runs the gateway as the command line says; the first of `args` is the program's name.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let config = match program::parse::<Config>(&args.collect::<Vec<_>>()) {
        Ok(config) => config,
        Err(not_parsed) => return not_parsed.code,
    };
    let announces = config.announce;
    // The log of a gateway started by another program is that program's business.
    let level = if announces { "warn" } else { "info" };
    program::log(level);
    match run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            program::report(&format!("gateway: {error:#}"));
            if announces {
                program::tell(&json!({ "failed": format!("{error:#}") }));
            }
            ExitCode::FAILURE
        }
    }
}

fn run(config: Config) -> Result<()> {
    let (listen, metrics_listen, announces) = (config.listen, config.metrics_listen, config.announce);
    let threads = config.threads.map_or_else(|| available_parallelism().map_or(1, usize::from), usize::from);
    match program::raise_descriptor_limit() {
        // A client has a socket, and its connection to the relay has one.
        Ok(most) if most < 2 * u64::from(config.max_connections) => {
            warn!(
                most,
                "the limit of open descriptors is below two for each of --max-connections; raise it (ulimit -n, \
                 systemd: LimitNOFILE) or lower --max-connections"
            );
        }
        Ok(_) => {}
        Err(error) => warn!(%error, "cannot raise the limit of open descriptors; it also limits connections"),
    }
    // Beside them one may read standard input, and one answer for metrics.
    program::try_threads(threads + usize::from(announces) + usize::from(metrics_listen.is_some()))?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(threads).enable_all().build();
    runtime.context("cannot start the async runtime")?.block_on(async {
        // First, so that an address in use leaves no new recording behind.
        let listener = program::listen(listen)?;
        let for_metrics = metrics_listen.map(program::listen).transpose().context("cannot serve --metrics-listen")?;
        let gateway = Gateway::open(config).await?;
        let address = listener.local_addr().context("the listening socket has no address")?;
        let stop = program::stopped(announces.then_some(|_: &str| {}))?;
        if let Some(listener) = for_metrics {
            info!(address = %listener.local_addr()?, "metrics");
            gateway.serve_metrics(listener.into_std()?).context("cannot serve --metrics-listen")?;
        }
        let scheme = if gateway.has_tls() { "wss" } else { "ws" };
        info!(
            url = %format_args!("{scheme}://{address}"),
            relay = %gateway.config.relay,
            tokens = gateway.front.support.tokens().len(),
            threads,
            "listening; stop with Ctrl-C. The relay must know its public address for AUTH (NIP-42)"
        );
        if announces {
            let log_level = LevelFilter::current().to_string();
            program::tell(&json!({
                "listening": format!("{scheme}://{address}"), "pid": std::process::id(), "log_level": log_level
            }));
        }
        serve(listener, gateway, stop).await;
        Ok(())
    })
}
