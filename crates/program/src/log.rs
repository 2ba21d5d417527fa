//! The log of a program, on standard error.

use std::io::stderr;

use tracing_subscriber::EnvFilter;

/// Logs of the HTTP client, which hold the heads of requests and so what is secret in them.
const SECRET_LOGS: [&str; 2] = ["ureq=off", "ureq_proto::util=off"];

/// Begins the log: what RUST_LOG asks for, else all from this level on, but no secrets. A program that
/// runs others in its own process has begun it once.
pub fn log(level: &str) {
    let asked = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let without = SECRET_LOGS.map(|directive| directive.parse().expect("a constant that was tried"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(without.into_iter().fold(asked, EnvFilter::add_directive))
        .with_writer(stderr)
        // It would print them to standard error, and panic where nobody reads that.
        .log_internal_errors(false)
        .with_ansi(anstream::AutoStream::choice(&stderr()) != anstream::ColorChoice::Never)
        .try_init();
}
