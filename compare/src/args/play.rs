//! Flags that several commands have.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use program::Unechoed;
use wire::{Header, RelayUrl};

use crate::{
    cli::{Folder, refused},
    matrix::{Matrix, Values},
    relays,
    usage::{SKIP_INVALID, read_corpus, refuse},
};
use report::result::{Config, RelayCommand};

/// The events that a command sends.
#[derive(Debug, Args)]
pub(crate) struct EventFlags {
    /// Events to send [default: the bundled sample]
    ///
    /// Formats: .jsonl, .jsonl.gz, .jsonl.zst or .pb.gz.
    #[arg(long, help_heading = "Load", value_name = "FILE")]
    pub(crate) corpus: Option<String>,
    /// Leave out what in --corpus is no valid event, and count it
    ///
    /// Each event is then verified. For agents `corpus convert --skip-invalid` makes a file that
    /// all can read.
    #[arg(long, help_heading = "Load", requires = "corpus", hide_short_help = true)]
    pub(crate) skip_invalid: bool,
}

/// Flags of commands whose clients play blocks against a relay.
#[derive(Debug, Args)]
pub(crate) struct PlayFlags {
    #[command(flatten)]
    pub(crate) events: EventFlags,
    /// Decides the order of what is played and everything random in the load
    ///
    /// Every cell of a round has the same load, with --url each block has its own [default: 1, with
    /// --url one drawn at random].
    #[arg(long, help_heading = "Load", hide_short_help = true)]
    seed: Option<u64>,
    /// Arguments for every client, after --
    #[arg(last = true, help_heading = "Load", hide_short_help = true)]
    pub(crate) client_args: Vec<String>,
    /// A relay (ws:// or wss://) instead of fresh ones of our own
    ///
    /// Formats then default to json and compressions of a run to none,deflate. Published events stay
    /// in the relay, so choose scenarios that do not request events of earlier runs, and a relay
    /// whose store may be deleted.
    #[arg(long, help_heading = "Relay", value_parser = Unechoed::<RelayUrl>::NEW)]
    pub(crate) url: Option<RelayUrl>,
    /// Root certificates (PEM) to trust for wss:// instead of the platform's
    #[arg(long, help_heading = "Relay", requires = "url", value_name = "FILE", hide_short_help = true)]
    pub(crate) ca: Option<String>,
    /// A header field of every request to the relay at --url, as a proxy may want it
    ///
    /// May be repeated. Results have its name alone.
    #[arg(
        long, help_heading = "Relay", requires = "url", value_name = "NAME=VALUE",
        value_parser = Unechoed::<Header>::NEW, hide_short_help = true
    )]
    pub(crate) header: Vec<Header>,
    /// Process ids of the relay at --url, for its CPU time
    ///
    /// Of a relay on this machine, separated by commas. The time of all that they start is in it.
    #[arg(
        long,
        help_heading = "Relay",
        requires = "url",
        value_name = "PIDS",
        value_delimiter = ',',
        hide_short_help = true
    )]
    relay_pid: Vec<u32>,
    /// A relay that is started for each block; several are compared
    ///
    /// As in --relay 'old=./relay-old --listen {address}' --relay 'new=./relay-new {port}'. All are
    /// compared with the first; in a search each has a capacity of its own. {address} is 127.0.0.1
    /// with a free port, {port} the port alone, {dir} an empty folder, in which it runs. No shell
    /// reads the command. Without a command, relay-sim is the relay of this project, and floor a
    /// relay that does no Nostr work. Formats then default to json, compressions to none.
    #[arg(
        long, help_heading = "Relay", value_name = "NAME=COMMAND", value_parser = relays::read,
        conflicts_with = "url"
    )]
    pub(crate) relay: Vec<RelayCommand>,
    /// Where the result folder is made
    #[arg(long, help_heading = "Output", default_value = "results", value_name = "FOLDER")]
    pub(crate) out: PathBuf,
}

impl PlayFlags {
    /// Whether relays are others', whose settings are unknown.
    pub(crate) fn has_relays_of_others(&self) -> bool {
        self.url.is_some() || !self.relay.is_empty()
    }

    /// The matrix with the values of flags, for these relays.
    pub(crate) fn matrix<const LOADS: bool>(
        &self,
        standing: Matrix,
        values: &Values<LOADS>,
    ) -> Result<Matrix> {
        let matrix = values.over(standing);
        let matrix = if self.has_relays_of_others() { matrix.of_anothers_relay(values)? } else { matrix };
        Ok(if self.relay.is_empty() { matrix } else { matrix.with_relays(&self.relay) })
    }

    /// What these flags decide of a configuration.
    pub(crate) fn config(&self) -> Config {
        let ca = self.ca.iter().flat_map(|file| ["--ca".to_owned(), file.clone()]);
        let pids = self.relay_pid.iter().flat_map(|pid| ["--relay-pid".to_owned(), pid.to_string()]);
        let skip = self.events.skip_invalid.then(|| SKIP_INVALID.to_owned());
        let client_args = ca.chain(pids).chain(skip).chain(self.client_args.iter().cloned());
        // A relay that stays has the events of earlier runs, and drops what it has.
        let drawn = || if self.url.is_some() { rand::random::<u32>().into() } else { 1 };
        Config {
            seed: self.seed.unwrap_or_else(drawn),
            corpus: self.events.corpus.clone(),
            url: self.url.clone(),
            relays: self.relay.clone(),
            headers: self.header.clone(),
            client_args: client_args.collect(),
            ..Config::default()
        }
    }

    /// Refuses what `command` cannot play, or has no place for.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn check(&self, command: &str) -> Result<()> {
        refuse(refused(command, &self.client_args))?;
        refuse(relays::refusal(&self.relay))?;
        let EventFlags { corpus, skip_invalid } = &self.events;
        corpus.as_deref().map(|file| read_corpus(file, *skip_invalid)).transpose()?;
        Folder::try_out(&self.out)
    }
}
