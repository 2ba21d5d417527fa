//! The terms that a command line states, and the address of a relay-sim to look for.

use std::net::SocketAddr;

use clap::{ArgMatches, Command, FromArgMatches};

/// The word for no address, where `--local-relay` takes one.
const NO_RELAY: &str = "none";

/// The address at which a run looks for a relay-sim.
///
/// # Errors
/// When it is no loopback address.
pub(crate) fn local_relay(text: &str) -> Result<LocalRelay, String> {
    if text == NO_RELAY {
        return Ok(LocalRelay(None));
    }
    let address = text.parse().ok().filter(|address: &SocketAddr| address.ip().is_loopback());
    address.map(|address| LocalRelay(Some(address))).ok_or_else(|| {
        format!(
            "expected a loopback address with a port, as in 127.0.0.1:7777, or {NO_RELAY}; --url takes others"
        )
    })
}

/// The value of `--local-relay`.
#[derive(Debug, Clone, Copy)]
pub struct LocalRelay(pub(crate) Option<SocketAddr>);

/// Which factors the command line states.
#[derive(Debug, Clone, Copy)]
pub struct Stated {
    /// Whether it states all, by `--cell`.
    pub(crate) cell: bool,
    /// Whether clients insist on a format.
    pub(crate) format: bool,
    /// Whether clients insist on a compression.
    pub(crate) compression: bool,
    /// Whether it sets what only a relay of our own takes.
    pub(crate) relay: bool,
}

impl clap::Args for Stated {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for Stated {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Stated, clap::Error> {
        let has = |id: &str| matches.try_contains_id(id).unwrap_or(false);
        let relay = cell::Factor::on_side(cell::Side::Relay).any(|factor| has(factor.row().name));
        Ok(Stated { cell: has("cell"), format: has("format"), compression: has("compression"), relay })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Stated::from_arg_matches(matches)?;
        Ok(())
    }
}
