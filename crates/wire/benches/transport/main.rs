//! The cost of the transport beside raw TCP and beside tungstenite's defaults.
//!
//! `cargo bench -p wire --bench transport` plays every pair in alternation on two cores and prints
//! ratios of the same run. docs/transport.md has the table and says how to read it.

mod echo;
mod fan_out;
mod idle;
mod stream;
mod vectored;

use std::{process::ExitCode, sync::mpsc, thread};

use anyhow::{Context, ensure};
use clap::{Parser, ValueEnum};
use nix::{
    sched::{CpuSet, sched_setaffinity},
    time::{ClockId, clock_gettime},
    unistd::Pid,
};
use wire::{Compression, ServerConfig, Support, WireLimits};

/// The cost of the transport, as ratios of the same run.
#[derive(Debug, Parser)]
#[command(name = "transport")]
struct Args {
    /// Rounds; ratios are medians of ratios within a round.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,

    /// Parts to run, separated by commas; all by default.
    #[arg(long, value_enum, value_delimiter = ',')]
    part: Vec<Part>,

    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// 700-byte messages, 16 a flush: CPU of both ends beside length-prefixed TCP, and the tap
    /// beside tungstenite
    Stream,
    /// One event to 500 connections, 8 a flush: the sender's CPU compressed once beside
    /// uncompressed
    FanOut,
    /// 1,000 connections that wait for each echo: round trips a second beside tungstenite's default
    /// buffers
    Echo,
    /// 5,000 connections that spoke once: memory each
    Idle,
    /// Events copied into a write buffer, and events named where they are (`writev`): CPU of the
    /// sender
    Vectored,
}

/// The core of senders and servers, and that of their peers.
const SERVER_CORE: usize = 0;
const PEER_CORE: usize = 1;

fn main() -> ExitCode {
    match bench(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn bench(args: &Args) -> anyhow::Result<()> {
    let wants = |part| args.part.is_empty() || args.part.contains(&part);
    let rounds = usize::from(args.rounds);
    say(&format!("{rounds} rounds"));
    // First: later parts leave memory that could be reused.
    if wants(Part::Idle) {
        idle::measure()?;
    }
    if wants(Part::Stream) {
        stream::measure(rounds)?;
    }
    if wants(Part::FanOut) {
        fan_out::measure(rounds)?;
    }
    if wants(Part::Echo) {
        echo::measure(rounds)?;
    }
    if wants(Part::Vectored) {
        vectored::measure(rounds)?;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a bench's result")]
fn say(line: &str) {
    println!("{line}");
}

/// Runs `work` on a thread of its own, pinned to a core, with a runtime of its own.
fn on_core<T: Send + 'static>(
    core: usize,
    work: impl AsyncFnOnce() -> anyhow::Result<T> + Send + 'static,
) -> thread::JoinHandle<anyhow::Result<T>> {
    thread::spawn(move || {
        let mut set = CpuSet::new();
        set.set(core)?;
        sched_setaffinity(Pid::from_raw(0), &set).context("this bench needs two cores")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        tokio::task::LocalSet::new().block_on(&runtime, work())
    })
}

fn join<T>(thread: thread::JoinHandle<anyhow::Result<T>>) -> anyhow::Result<T> {
    thread.join().map_err(|_| anyhow::anyhow!("a thread of the bench panicked"))?
}

/// CPU time of the calling thread.
fn cpu_ns() -> anyhow::Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(u64::try_from(time.tv_sec())? * 1_000_000_000 + u64::try_from(time.tv_nsec())?)
}

/// Tells the other thread the address of a listener on port 0.
fn address_channel() -> (mpsc::Sender<std::net::SocketAddr>, mpsc::Receiver<std::net::SocketAddr>) {
    mpsc::channel()
}

fn server_config(compression: Compression) -> ServerConfig {
    let support = Support { formats: vec![], compressions: vec![compression], batched: false };
    ServerConfig { support, limits: WireLimits::default(), relay_info: String::new(), tls: None }
}

async fn accepted(stream: tokio::net::TcpStream, config: &ServerConfig) -> anyhow::Result<wire::Connection> {
    match wire::accept(stream, config).await? {
        wire::Accepted::WebSocket(connection) => Ok(*connection),
        wire::Accepted::Http => anyhow::bail!("a WebSocket was expected"),
    }
}

/// A client's socket behind its handshake; `headers` are further lines of the request.
async fn raw_client(address: std::net::SocketAddr, headers: &str) -> anyhow::Result<tokio::net::TcpStream> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{headers}\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        ensure!(stream.read_buf(&mut answer).await? > 0, "the server refused the handshake");
    }
    Ok(stream)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}
