//! How does tungstenite-deflate compare with the crates that a Rust user would otherwise take?
//!
//! Each contender is an echo server in a process of its own, on one thread. This program is the one
//! client of all: in every round it plays the same messages to each in turn, over fresh
//! connections, and reads the server's CPU clock before and after. `run` in this folder starts it.

mod client;
mod contenders;
mod report;
mod server;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use clap::{Parser, Subcommand};

use client::{BATCH, Connection, Script};
use contenders::contenders;
use report::{Measured, Report, Row};
use server::Server;

/// Compares echo servers by WebSocket crates: messages/s, CPU and memory
#[derive(Debug, Parser)]
#[command(name = "compare-crates", subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    args: Args,
}

#[derive(Debug, clap::Args)]
struct Args {
    /// Events as JSON lines; each travels as a relay's EVENT
    #[arg(long, value_name = "FILE", required = true)]
    events: Option<PathBuf>,

    /// Another build of this program, whose contenders take part
    #[arg(long, value_name = "PROGRAM")]
    also: Vec<PathBuf>,

    /// How often every contender is measured
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,

    /// Connections that play at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    connections: u16,

    /// Connections for the memory of one
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(10..=400))]
    memory_connections: u16,

    /// No round begins later
    #[arg(long, default_value_t = 480, value_name = "SECONDS")]
    seconds: u64,

    /// Writes the tables there as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Writes every round there as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves one contender until standard input ends; what `--also` and this program call
    #[command(hide = true)]
    Serve { index: usize },
    /// Lists the contenders of this build as JSON
    #[command(hide = true)]
    Contenders,
}

/// What takes longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> anyhow::Result<()> {
    let Cli { command, args } = Cli::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match command {
        Some(Command::Serve { index }) => runtime.block_on(server::serve(index)),
        Some(Command::Contenders) => {
            println!("{}", serde_json::to_string(&contenders())?);
            Ok(())
        }
        None => runtime.block_on(compare(&args)),
    }
}

async fn compare(args: &Args) -> anyhow::Result<()> {
    let messages = messages(args.events.as_deref().context("--events FILE")?)?;
    let mut servers = Server::all(&args.also)?;
    let scripts = servers.iter().map(|server| Script::new(server.contender.group, &messages));
    let scripts = scripts.collect::<anyhow::Result<Vec<_>>>()?;
    let mut report = Report::new(&messages, args.connections);
    report.rows = servers.iter().map(|server| Row::new(server.contender.clone())).collect();
    let start = Instant::now();
    for round in 0..=args.rounds {
        if start.elapsed().as_secs() >= args.seconds {
            eprintln!("{} s are over: {} rounds of {}", args.seconds, round.saturating_sub(1), args.rounds);
            break;
        }
        eprintln!("{}", if round == 0 { "comparing echoes …".to_owned() } else { format!("round {round}") });
        for (row, (server, script)) in report.rows.iter_mut().zip(servers.iter().zip(&scripts)) {
            // The first round warms up, and compares every echo.
            let played = play(server, script, args.connections, round == 0);
            match tokio::time::timeout(PATIENCE, played).await {
                _ if row.failed.is_some() => {}
                Ok(Ok(measured)) if round > 0 => row.rounds.push(measured),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => row.failed = Some(format!("{error:#}")),
                Err(_) => row.failed = Some(format!("silent for {} s", PATIENCE.as_secs())),
            }
        }
    }
    for (row, (server, script)) in report.rows.iter_mut().zip(servers.iter_mut().zip(&scripts)) {
        if row.failed.is_none() {
            let memory = memory(server, script, args.memory_connections);
            row.memory_bytes_per_connection = Some(tokio::time::timeout(PATIENCE, memory).await??);
        }
    }
    report.end();
    println!("{}", report.markdown());
    if let Some(path) = &args.markdown {
        fs::write(path, report.markdown()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(&report)? + "\n";
        fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Each line as a relay delivers it.
fn messages(path: &Path) -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let messages: Vec<_> = text.lines().map(|event| format!("[\"EVENT\",\"feed\",{event}]")).collect();
    ensure!(
        messages.len() >= 10 * BATCH,
        "{} has {} events; at least {} are needed",
        path.display(),
        messages.len(),
        10 * BATCH
    );
    Ok(messages)
}

/// Plays the script over so many connections at once; the first batch of each is not timed.
async fn play(server: &Server, script: &Script, connections: u16, check: bool) -> anyhow::Result<Measured> {
    let mut open = Vec::new();
    for _ in 0..connections {
        let mut connection = Connection::open(server.address, script, check).await?;
        connection.play(1).await?;
        connection.wire_bytes = 0;
        open.push(connection);
    }
    let (cpu_before_ns, start) = (server.cpu_ns()?, Instant::now());
    futures::future::try_join_all(open.iter_mut().map(|connection| connection.play(usize::MAX))).await?;
    let (elapsed, cpu_after_ns) = (start.elapsed(), server.cpu_ns()?);
    let messages = (script.timed() * open.len()) as f64;
    let wire_bytes: u64 = open.iter().map(|connection| connection.wire_bytes).sum();
    for connection in open {
        connection.close().await?;
    }
    Ok(Measured {
        messages_per_s: messages / elapsed.as_secs_f64(),
        cpu_us_per_message: (cpu_after_ns - cpu_before_ns) as f64 / 1_000.0 / messages,
        wire_bytes_per_message: wire_bytes as f64 / messages,
    })
}

/// What a connection adds to the server's resident memory, idle behind one batch of messages.
async fn memory(server: &Server, script: &Script, connections: u16) -> anyhow::Result<u64> {
    let before = server.resident_bytes()?;
    let mut open = Vec::new();
    for _ in 0..connections {
        let mut connection = Connection::open(server.address, script, false).await?;
        connection.play(1).await?;
        open.push(connection);
    }
    let after = server.resident_bytes()?;
    for connection in open {
        connection.close().await?;
    }
    Ok(after.saturating_sub(before) / u64::from(connections))
}
