//! Whom a run plays against, and what both speak: a relay-sim that listens at the default address,
//! and the terms that the command line leaves to the handshake.

use std::{
    fmt::Write,
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::Context;
use cell::Cell;
use codecs::Format;
use wire::{Agreement, CloseCode, Compression, Connection, Offer, Token, WireError, WireLimits};

use crate::{
    args::{Args, stated::Stated},
    commands::doctor::{answers::Info, handshakes},
    dial::endpoint,
    interruption::{self, unless_interrupted},
    relays::relay_pids,
};
use program::{Interrupt, UsageError};

/// The software of relay-sim in its NIP-11 document.
pub(crate) const RELAY_SIM: &str = "relay-sim";

/// Time for a connection over loopback.
const NEARBY: Duration = Duration::from_secs(1);

/// What is known of the relay before the plan is made.
#[derive(Debug, Default)]
pub(crate) struct Met {
    /// Why a relay of our own is started although something listens at the default address.
    left_alone: Option<String>,
    /// The terms that were agreed on, and why.
    terms: Option<(Agreement, &'static str)>,
    /// Keeps other client-sims from the relay: each would count the other's events as invented.
    _claim: Option<Claim>,
}

/// Turns to a relay-sim that listens at the default address, unless the run needs a relay of its
/// own or another client-sim plays there.
pub(crate) fn find(args: &mut Args) -> anyhow::Result<Met> {
    let Some(address) = args.local_relay.0.filter(|_| may_share_a_relay(args)) else {
        return Ok(Met::default());
    };
    if TcpStream::connect_timeout(&address, NEARBY).is_err() {
        return Ok(Met::default());
    }
    let url = format!("ws://{address}");
    let left_alone = |why: String| Met { left_alone: Some(why), ..Met::default() };
    let info = match Info::fetch(&endpoint(&url, None, &[])?) {
        Ok(info) if info.software.as_deref() == Some(RELAY_SIM) => info,
        other => {
            let holder = relay_pids::holder_of(&url).map(|(_, name)| format!("{name}, "));
            let who = match &other {
                Ok(info) => software(info),
                Err(_) => "no relay by NIP-11".to_owned(),
            };
            let why = format!("{}{who} at {url} is left alone", holder.unwrap_or_default());
            return Ok(left_alone(why));
        }
    };
    let Some(claim) = Claim::on(address) else {
        return Ok(left_alone(format!("{} at {url} is in use by another client-sim", software(&info))));
    };
    args.url = Some(url);
    // As with --url: its settings are not known.
    args.cell.relay = None;
    Ok(Met { _claim: Some(claim), ..Met::default() })
}

/// Whether a run could use any relay-sim: it asks for nothing that only a relay of its own has.
fn may_share_a_relay(args: &Args) -> bool {
    let own = args.stated.cell || args.stated.relay || args.no_pin || args.floor || args.at_rest.is_some();
    let part = args.share.is_some() || args.serve.is_some() || args.relay_at.is_some();
    let is_near = args.cell.link.is_none() && !args.cell.via_gateway;
    args.url.is_none() && !own && !part && args.relay_fault.is_empty() && is_near
}

/// Agrees with the relay at `--url` on everything that the command line leaves open, and finds the
/// process of a relay-sim on this host. From then on the run insists on what was agreed.
///
/// # Errors
/// When the relay cannot be reached, or speaks nothing that was offered, or a signal comes.
pub(crate) fn agree(args: &mut Args, met: &mut Met, interrupt: Option<&mut Interrupt>) -> anyhow::Result<()> {
    let (Some(url), Some(interrupt)) = (args.url.clone(), interrupt) else { return Ok(()) };
    if args.relay_pid.is_empty() && args.share.is_none() {
        let here = relay_pids::holder_of(&url).filter(|(_, name)| name == RELAY_SIM);
        args.relay_pid.extend(here.map(|(pid, _)| pid));
    }
    let Stated { cell, format, compression, .. } = args.stated;
    // A gateway has what is asked for.
    if cell || args.cell.via_gateway || args.share.is_some() || args.doctor.is_some() {
        return Ok(());
    }
    let insists = [format, compression || args.dictionary.is_some()];
    let offers = offers(args, insists);
    let relay = endpoint(&url, args.ca.as_deref(), &args.header).map_err(UsageError)?;
    let limits = WireLimits::default();
    let agreeing = async {
        let error = match relay.connect_by_any(&offers, &limits).await {
            Ok(connection) => {
                let agreement = connection.agreement().clone();
                let plain = agreement.token.as_deref().is_none_or(|token| token == Token::JSON.to_string());
                if plain {
                    leave(connection).await;
                    return Ok(agreement);
                }
                match handshakes::speaks(&relay, connection).await {
                    Ok(()) => return Ok(agreement),
                    Err(error) => error,
                }
            }
            Err(error @ WireError::Handshake { .. }) => error.into(),
            Err(error) => return Err(error).with_context(|| format!("cannot connect to {url}")),
        };
        // A server may echo any token, or fail at a long list of them.
        let json = Offer { formats: vec![Format::JSON], ..offers.last().cloned().context("an offer")? };
        let connection = relay.connect(&json, &limits).await;
        let connection = connection.map_err(|_| error).with_context(|| format!("cannot connect to {url}"))?;
        let agreement = connection.agreement().clone();
        leave(connection).await;
        Ok(agreement)
    };
    let agreement = interruption::block_on(unless_interrupted(interrupt, agreeing))?;
    if !format {
        args.cell.format = agreement.format;
    }
    if !insists[1] {
        // The dictionary of zstd-dict is that of each format.
        let same = |offer: &&Offer| offer.compression.name() == agreement.compression.name();
        args.cell.compression = match agreement.compression {
            deflate @ Compression::Deflate(_) => deflate,
            _ => offers.iter().find(same).map_or(Compression::None, |offer| offer.compression),
        };
    }
    let why = why(insists, &offers, &agreement);
    met.terms = Some((agreement, why));
    Ok(())
}

/// The offers of a client that insists on format and compression or leaves them to the relay, in
/// its order of preference: compressions by zstd before deflate, formats as `client-sim formats`
/// lists them, JSON last.
fn offers(args: &Args, [format, compression]: [bool; 2]) -> Vec<Offer> {
    const BEST_FIRST: [&str; 5] = ["zstd-dict", "zstd-shared", "zstd-stream", "zstd", "deflate"];
    let Cell { implementation, batching, .. } = args.cell;
    let written = |format: &Format| format.codec(implementation).is_ok();
    let any = || Format::all().filter(|format| *format != Format::JSON).chain([Format::JSON]);
    let formats: Vec<_> = if format { vec![args.cell.format] } else { any().filter(written).collect() };
    let compressions = match compression {
        true => vec![args.cell.compression],
        false => BEST_FIRST.iter().filter_map(|name| Compression::named(name).ok()).collect(),
    };
    let offer = |compression| Offer { formats: formats.clone(), batched: batching.is_some(), compression };
    compressions.into_iter().map(offer).collect()
}

fn why(insists: [bool; 2], offers: &[Offer], agreement: &Agreement) -> &'static str {
    let first = offers.first().and_then(|offer| offer.tokens().first().copied());
    match &agreement.token {
        _ if insists == [true, true] => "as asked",
        None => "the relay names no format",
        Some(token) if Some(token) == first.map(|first| first.to_string()).as_ref() => {
            "the client's first offer"
        }
        Some(_) => "the relay insists",
    }
}

async fn leave(mut relay: Connection) {
    relay.close(CloseCode::Normal, "").await;
}

/// The first line of a run: with whom, and what both speak.
pub(crate) fn line(args: &Args, met: &Met, info: Option<&Info>) -> String {
    let mut line = match (&args.url, info) {
        (None, _) if args.floor => format!("own relay-sim {} --floor", env!("CARGO_PKG_VERSION")),
        (None, _) => format!("own relay-sim {}", env!("CARGO_PKG_VERSION")),
        (Some(url), info) => {
            let url = wire::without_password(url);
            info.map_or_else(|| url.clone(), |info| format!("{} at {url}", software(info)))
        }
    };
    if args.cell.via_gateway {
        line.push_str(" behind the gateway");
    }
    let compression = match args.cell.compression {
        Compression::None => "no compression".to_owned(),
        compression => compression.label(),
    };
    write!(line, " · {}, {compression}", args.cell.format).expect("writing into a String cannot fail");
    let why = met.terms.as_ref().map(|(_, why)| *why).or(met.left_alone.as_deref());
    match why {
        Some(why) => format!("{line} ({why})"),
        None => line,
    }
}

fn software(info: &Info) -> String {
    let known = [&info.software, &info.name].into_iter().flatten().find(|text| !text.is_empty());
    let name = known.map_or("a relay", String::as_str);
    info.version.as_ref().map_or_else(|| name.to_owned(), |version| format!("{name} {version}"))
}

/// The only client-sim that plays against a relay at this address. Held by the process, so that it
/// ends with it.
#[derive(Debug)]
struct Claim {
    #[cfg(target_os = "linux")]
    _socket: std::os::unix::net::UnixListener,
}

impl Claim {
    /// `None` where another process has it.
    #[cfg(target_os = "linux")]
    fn on(relay: SocketAddr) -> Option<Claim> {
        use std::os::{linux::net::SocketAddrExt, unix::net};

        // An abstract name (unix(7)) belongs to the network namespace, as the relay's address does.
        let name = net::SocketAddr::from_abstract_name(format!("client-sim plays at {relay}")).ok()?;
        net::UnixListener::bind_addr(&name).ok().map(|_socket| Claim { _socket })
    }

    #[cfg(not(target_os = "linux"))]
    fn on(_relay: SocketAddr) -> Option<Claim> {
        Some(Claim {})
    }
}

#[cfg(test)]
mod tests {
    use crate::args::stated::local_relay;

    #[test]
    fn only_a_loopback_address_is_looked_at() {
        for text in ["127.0.0.1:7777", "[::1]:7777", "127.1.2.3:1"] {
            assert_eq!(local_relay(text).unwrap().0, Some(text.parse().unwrap()));
        }
        assert_eq!(local_relay("none").unwrap().0, None);
        for text in ["10.0.0.1:7777", "localhost:7777", "127.0.0.1", "ws://127.0.0.1:7777", ""] {
            assert!(local_relay(text).unwrap_err().contains("--url"), "{text}");
        }
    }
}
