//! Flags of runs over several machines.

use std::path::PathBuf;

use agents::{RunId, nats::Server};
use clap::Args;

use crate::plan::Profile;

/// Where coordinator and agents meet.
#[derive(Debug, Clone, Args)]
pub(crate) struct Meeting {
    /// NATS server with JetStream: nats://HOST:PORT, or tls://HOST:PORT
    #[arg(long, value_name = "URL")]
    pub(crate) nats: String,
    /// Name of the run: letters, digits, - and _
    #[arg(long, default_value = "run", value_name = "ID")]
    pub(crate) run: RunId,
    /// File of credentials for the NATS server
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_creds: Option<PathBuf>,
    /// Root certificates (PEM) to trust for tls:// beside the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_ca: Option<PathBuf>,
}

impl Meeting {
    pub(crate) fn server(&self) -> Server {
        Server { url: self.nats.clone(), credentials: self.nats_creds.clone(), ca: self.nats_ca.clone() }
    }
}

/// Flags of `compare run` for blocks that agents play.
#[derive(Debug, Clone, Args)]
pub(crate) struct OverAgents {
    /// Have agents play each block together (docs/scale-out.md), over this NATS server with
    /// JetStream: nats://HOST:PORT, or tls://HOST:PORT
    #[arg(long, value_name = "URL", requires_all = ["agents", "url"], conflicts_with_all = ["relay_pid", "link", "instructions"])]
    pub(crate) nats: Option<String>,
    /// Number of agents; each is a `compare agent`
    #[arg(long, value_name = "N", requires = "nats", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) agents: Option<u16>,
    /// Name of the run: letters, digits, - and _
    #[arg(long, default_value = "run", value_name = "ID")]
    pub(crate) run: RunId,
    /// Keep the agents' own records of every block, of which the result has the sums, in the
    /// result's folder `running`
    #[arg(long, requires = "nats")]
    pub(crate) keep_agent_records: bool,
    /// File of credentials for the NATS server
    #[arg(long, requires = "nats", value_name = "FILE")]
    pub(crate) nats_creds: Option<PathBuf>,
    /// Root certificates (PEM) to trust for tls:// beside the system's
    #[arg(long, requires = "nats", value_name = "FILE")]
    pub(crate) nats_ca: Option<PathBuf>,
    /// Serve what is seen of the run at http://HOST:PORT/metrics while it lasts, for Prometheus;
    /// not with --profile publish
    #[arg(long, requires = "nats", value_name = "HOST:PORT")]
    pub(crate) metrics_listen: Option<String>,
}

impl OverAgents {
    /// The server, if agents are to play.
    pub(crate) fn server(&self) -> Option<Server> {
        let url = self.nats.clone()?;
        Some(Server { url, credentials: self.nats_creds.clone(), ca: self.nats_ca.clone() })
    }

    /// Why metrics are not served.
    pub(crate) fn refusal(&self, profile: Profile) -> Option<&'static str> {
        (self.metrics_listen.is_some() && profile == Profile::Publish).then_some(
            "--metrics-listen has agents count while they measure, and what is published is measured with nothing \
             beside it: leave it out, or take --profile standard",
        )
    }
}

#[derive(Debug, Args)]
pub(crate) struct AgentFlags {
    #[command(flatten)]
    pub(crate) place: Meeting,
    /// This agent's slot, from 0
    #[arg(long)]
    pub(crate) index: u16,
    /// Number of agents of the run
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) of: u16,
    /// Play only against these relays (ws://HOST:PORT or wss://HOST), whatever a run asks for
    #[arg(long, value_name = "WS_URL", required = true, num_args = 1..)]
    pub(crate) allow_target: Vec<String>,
    /// Refuse runs of more events per second over all agents, and runs without --rates
    #[arg(long, value_name = "PER_SECOND")]
    pub(crate) max_rate: Option<u32>,
    /// Events to send: .jsonl, .jsonl.gz, .jsonl.zst or .pb.gz, the same as the run's [default: the
    /// bundled sample, or what the run has instead, fetched into the working folder]
    #[arg(long)]
    pub(crate) corpus: Option<String>,
    /// Root certificates (PEM) to trust for wss:// instead of the platform's
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<String>,
}
