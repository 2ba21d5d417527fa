//! Flags of runs over several machines.

use std::{net::SocketAddr, path::PathBuf};

use agents::{RunId, Server};
use anyhow::{Context, Result, ensure};
use clap::Args;
use program::Unechoed;
use wire::{Header, RelayUrl};

use crate::{
    matrix::CellSpec,
    relay_agent::{RelayPlace, untold},
};
use report::result::Role;

/// One slot is the relay's.
const MOST_AGENTS: i64 = u16::MAX as i64 - 1;

/// Where the relay listens when all machines are one: relay-sim's own address.
const RELAY: &str = "127.0.0.1:7777";

/// An address whose port is the same for each block, as --allow-target of agents must name it.
fn fixed(text: &str) -> std::result::Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| format!("expected IP:PORT, as in {RELAY}"))?;
    match address.port() {
        0 => Err("port 0 is another one for each block, which no --allow-target can name".to_owned()),
        _ => Ok(address),
    }
}

/// Where coordinator and agents meet, besides the URL of the server.
#[derive(Debug, Clone, Args)]
pub(crate) struct Meeting {
    /// Name of the run: letters, digits, - and _
    #[arg(long, default_value = "run", value_name = "ID", hide_short_help = true)]
    pub(crate) run: RunId,
    /// File of credentials for the NATS server
    #[arg(long, requires = "nats", value_name = "FILE", hide_short_help = true)]
    nats_creds: Option<PathBuf>,
    /// Root certificates (PEM) to trust for tls:// instead of the platform's
    #[arg(long, requires = "nats", value_name = "FILE", hide_short_help = true)]
    nats_ca: Option<PathBuf>,
}

impl Meeting {
    fn server(&self, url: &str) -> Server {
        Server { url: url.to_owned(), credentials: self.nats_creds.clone(), ca: self.nats_ca.clone() }
    }
}

/// Flags of `compare run` for blocks that agents play.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Agents")]
pub(crate) struct OverAgents {
    /// NATS server over which agents play each block together (docs/scale-out.md)
    ///
    /// nats://HOST:PORT, or tls://HOST:PORT. With JetStream, the events of --corpus reach the agents.
    #[arg(long, value_name = "URL", requires = "agents", conflicts_with_all = ["relay_pid", "link", "relay"])]
    pub(crate) nats: Option<String>,
    /// Number of agents that play; each is a `compare agent`
    #[arg(long, value_name = "N", requires = "nats", value_parser = clap::value_parser!(u16).range(1..=MOST_AGENTS))]
    pub(crate) agents: Option<u16>,
    /// Address of this machine at which the relay of each block listens for agents
    ///
    /// [default: 127.0.0.1:7777, with a NATS server on loopback]
    #[arg(
        long, value_name = "ADDRESS:PORT", value_parser = fixed, requires = "nats",
        conflicts_with_all = ["url", "relay_agents"], hide_short_help = true
    )]
    pub(crate) relay_listen: Option<SocketAddr>,
    /// URL at which agents reach that relay, as in --allow-target of each
    ///
    /// [default: ws://ADDRESS:PORT]
    #[arg(long, value_name = "WS_URL", requires = "relay_listen", value_parser = Unechoed::<RelayUrl>::NEW, hide_short_help = true)]
    pub(crate) relay_url: Option<RelayUrl>,
    /// Number of agents beside those that play: 1 starts the relays on a machine of its own
    ///
    /// That is a `compare agent --relay-listen` [default: 0, the relay is started here].
    #[arg(
        long, value_name = "M", requires = "nats", conflicts_with = "url",
        value_parser = clap::value_parser!(u16).range(0..=1), hide_short_help = true
    )]
    pub(crate) relay_agents: Option<u16>,
    #[command(flatten)]
    pub(crate) meeting: Meeting,
    /// Keep the agents' own records of every block, of which the result has the sums
    ///
    /// In the result's folder `running`, those of a pilot in `running/pilot`.
    #[arg(long, requires = "nats", hide_short_help = true)]
    pub(crate) keep_agent_records: bool,
}

impl OverAgents {
    /// The server, if agents are to play.
    pub(crate) fn server(&self) -> Option<Server> {
        Some(self.meeting.server(self.nats.as_deref()?))
    }

    /// Where this machine starts the relay of each block; `None` where an agent does.
    ///
    /// # Errors
    /// When agents could not reach it.
    pub(crate) fn relay_place(&self, server: &Server) -> Result<Option<RelayPlace>> {
        if self.relay_agents == Some(1) {
            return Ok(None);
        }
        let default = || server.is_loopback().then(|| RELAY.parse().expect("an address"));
        let listen = self.relay_listen.or_else(default).context(
            "agents on other machines need a relay that they reach: --relay-listen ADDRESS:PORT, --relay-agents 1 or \
             --url WS_URL",
        )?;
        let place = RelayPlace { listen, url: self.relay_url.clone() };
        place.check()?;
        Ok(Some(place))
    }

    /// Why agents could not reach the relay that this machine would start or the one behind `url`,
    /// or could not read the events.
    pub(crate) fn refusal(&self, url: Option<&RelayUrl>, skip_invalid: bool) -> Option<String> {
        let server = self.server()?;
        if skip_invalid {
            let why = "agents read the events themselves, and only a file of valid ones: leave out --skip-invalid, and \
                       give --corpus what `corpus convert --skip-invalid` makes of the file";
            return Some(why.to_owned());
        }
        match url {
            Some(url) => untold("--url", url),
            None => self.relay_place(&server).err().map(|error| error.to_string()),
        }
    }

    /// Whether agents can play a cell: not every scenario has a floor, and a relay that cannot play
    /// it would end their run.
    pub(crate) fn can_play(&self, cell: &CellSpec) -> bool {
        self.nats.is_none() || cell.role != Role::Floor || workload::has_floor(&cell.cell.scenario)
    }
}

/// One for each group of flags.
const EXAMPLES: &str = "\
Examples:
  Meeting  compare agent --nats nats://127.0.0.1:4222 --of 4 --index 0
  Player   compare agent --nats tls://nats.example --of 4 --index 0 --allow-target ws://relay:7777
  Relay    compare agent --nats tls://nats.example --of 4 --relay-listen 192.168.1.7:7777";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AgentFlags {
    /// NATS server: nats://HOST:PORT, or tls://HOST:PORT
    #[arg(long, help_heading = "Meeting", value_name = "URL")]
    nats: String,
    #[command(flatten, next_help_heading = "Meeting")]
    pub(crate) meeting: Meeting,
    /// This agent's slot, from 0
    #[arg(long, help_heading = "Player", required_unless_present = "relay_listen")]
    pub(crate) index: Option<u16>,
    /// Number of agents of the run that play
    #[arg(long, help_heading = "Player", value_parser = clap::value_parser!(u16).range(1..=MOST_AGENTS))]
    pub(crate) of: u16,
    /// Relays that a run may play against (ws://HOST:PORT or wss://HOST), whatever it asks for
    ///
    /// [default: ws://127.0.0.1:7777, with a NATS server on loopback]
    #[arg(long, help_heading = "Player", value_name = "WS_URL", num_args = 1.., value_parser = Unechoed::<RelayUrl>::NEW)]
    pub(crate) allow_target: Vec<RelayUrl>,
    /// Refuse blocks that would publish more events in any second, or in a closed loop
    ///
    /// Of all agents together. Bounds what is due by plan, not what agent 0 stores before the
    /// start.
    #[arg(long, help_heading = "Player", value_name = "PER_SECOND")]
    pub(crate) max_rate: Option<u32>,
    /// Refuse blocks in which this agent would make more connections
    ///
    /// Bounds those of the plan, not the few with which a player prepares.
    #[arg(long, help_heading = "Player", value_name = "NUMBER")]
    pub(crate) max_connections: Option<u32>,
    /// Do not play: start the relay of each block at this address of this machine
    ///
    /// For a `compare run --relay-agents 1`.
    #[arg(
        long, help_heading = "Relay", value_name = "ADDRESS:PORT", value_parser = fixed,
        conflicts_with_all = ["index", "allow_target", "max_rate", "max_connections", "ca", "header"]
    )]
    pub(crate) relay_listen: Option<SocketAddr>,
    /// URL at which the other agents reach that relay [default: ws://ADDRESS:PORT]
    #[arg(long, help_heading = "Relay", value_name = "WS_URL", requires = "relay_listen", value_parser = Unechoed::<RelayUrl>::NEW)]
    pub(crate) relay_url: Option<RelayUrl>,
    /// Events to send, the same as the run's
    ///
    /// Formats: .jsonl, .jsonl.gz, .jsonl.zst or .pb.gz [default: the bundled sample, or what the
    /// run has instead, fetched into the working folder].
    #[arg(long, help_heading = "Player", value_name = "FILE")]
    pub(crate) corpus: Option<String>,
    /// Root certificates (PEM) to trust for wss:// instead of the platform's
    #[arg(long, help_heading = "Player", value_name = "FILE")]
    pub(crate) ca: Option<String>,
    /// A header field of every request to the relays of --allow-target, as a proxy may want it
    ///
    /// May be repeated. Each agent has its own: none travels over NATS.
    #[arg(long, help_heading = "Player", value_name = "NAME=VALUE", value_parser = Unechoed::<Header>::NEW)]
    pub(crate) header: Vec<Header>,
}

impl AgentFlags {
    pub(crate) fn server(&self) -> Server {
        self.meeting.server(&self.nats)
    }

    /// Where this agent starts relays; `None` for one that plays.
    ///
    /// # Errors
    /// When others could not reach them.
    pub(crate) fn relay_place(&self) -> Result<Option<RelayPlace>> {
        let Some(listen) = self.relay_listen else { return Ok(None) };
        let place = RelayPlace { listen, url: self.relay_url.clone() };
        place.check()?;
        Ok(Some(place))
    }

    /// The relays that this agent plays against; none for one that starts them.
    ///
    /// # Errors
    /// When nothing says which.
    pub(crate) fn targets(&self) -> Result<Vec<RelayUrl>> {
        if self.relay_listen.is_some() || !self.allow_target.is_empty() {
            return Ok(self.allow_target.clone());
        }
        ensure!(
            self.server().is_loopback(),
            "an agent plays only against relays that its own command line names: add --allow-target ws://HOST:PORT, \
             the relay of the run"
        );
        Ok(vec![format!("ws://{RELAY}").parse()?])
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Agent {
        #[command(flatten)]
        flags: AgentFlags,
    }

    fn targets(nats: &str, flags: &[&str]) -> Result<Vec<String>> {
        let words = ["agent", "--of", "4", "--nats", nats];
        let targets = Agent::try_parse_from(words.iter().chain(flags))?.flags.targets()?;
        Ok(targets.iter().map(RelayUrl::to_string).collect())
    }

    #[test]
    fn an_agent_plays_against_the_relay_of_its_own_machine_unless_it_is_told_another() {
        let index = ["--index", "0"];
        for own in ["nats://127.0.0.1:4222", "nats://localhost:4222", "tls://[::1]:4222"] {
            assert_eq!(targets(own, &index).unwrap(), ["ws://127.0.0.1:7777"], "{own}");
        }
        let other = "nats://192.0.2.1:4222";
        let error = targets(other, &index).unwrap_err().to_string();
        assert!(error.contains("--allow-target ws://HOST:PORT"), "{error}");
        let named = ["--index", "0", "--allow-target", "wss://relay.example"];
        for nats in ["nats://127.0.0.1:4222", other] {
            assert_eq!(targets(nats, &named).unwrap(), ["wss://relay.example"]);
            assert_eq!(targets(nats, &["--relay-listen", "127.0.0.1:1"]).unwrap(), [""; 0], "it plays not");
        }
    }
}
