//! Checks that the processes of `--relay-pid` are the relay at `--url`. Processes without a socket are
//! refused. Containers, proxies and other users' processes are accepted, and the record states what
//! could not be checked.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
};

use anyhow::Context;
use measure::Processes;
use url::{Host, Url};
use wire::RelayUrl;

use crate::args::Args;

/// The state of a listening socket in `/proc/net/tcp` (tcp_states.h).
const LISTEN: &str = "0A";

/// Facts about the processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Proof {
    /// Why it is not known whether they are the relay; `None` when one of them listens at its
    /// address.
    pub(crate) unproven: Option<String>,
    /// Another process is known to listen at that address.
    pub(crate) is_doubtful: bool,
}

/// Judges the processes of the command line.
///
/// # Errors
/// When a process is none, is no relay, or runs this one.
pub(crate) fn proof(args: &Args) -> anyhow::Result<Proof> {
    let Some(url) = args.url.as_ref().filter(|_| !args.relay_pid.is_empty()) else {
        return Ok(Proof::default());
    };
    let processes = Processes::from_pids(&args.relay_pid).context("--relay-pid")?;
    let url: RelayUrl = url.parse()?;
    let proof = check(&processes, &url.to_string()).map_err(anyhow::Error::msg)?;
    proof.unproven.iter().for_each(|doubt| args.tell(doubt));
    Ok(proof)
}

/// Looks whether one of these processes listens where the relay does.
///
/// # Errors
/// When none of them has a socket: then they are no relay.
pub(crate) fn check(processes: &Processes, relay: &str) -> Result<Proof, String> {
    let pids = processes.pids();
    let opened: Vec<_> = pids.iter().map(|pid| sockets(*pid)).collect();
    let here = addresses_here(relay);
    let at_relay = listeners(&here);
    if opened.iter().flatten().any(|sockets| !sockets.is_disjoint(&at_relay)) {
        return Ok(Proof::default());
    }
    let all = names(&pids);
    let holder = holder(&at_relay);
    if opened.iter().all(|sockets| sockets.as_ref().is_some_and(BTreeSet::is_empty)) {
        let fix = holder.map_or_else(String::new, |pid| format!("; {} listens at {relay}", names(&[pid])));
        return Err(format!("--relay-pid: {all} has no socket, so it is not a relay{fix}"));
    }
    let (unproven, is_doubtful) = match holder {
        Some(pid) => {
            let other = names(&[pid]);
            let why = "if that passes connections on, name both to --relay-pid";
            (format!("{all} does not listen at {relay}, {other} does: {why}"), true)
        }
        None => {
            let why = match () {
                () if here.is_empty() => "is not an address of this machine",
                () if at_relay.is_empty() => "is listened at in no network namespace that is seen from here",
                () => "is listened at by a process whose files may not be read from here",
            };
            (format!("whether {all} is the relay is not known: {relay} {why}"), false)
        }
    };
    Ok(Proof { unproven: Some(unproven), is_doubtful })
}

/// The process of this machine that listens where the relay does, and its name, as far as this
/// system tells.
pub(crate) fn holder_of(relay: &str) -> Option<(u32, String)> {
    let mut url = Url::parse(relay).ok()?;
    match url.host()? {
        // No resolver is waited for.
        Host::Domain("localhost") => url.set_host(Some("127.0.0.1")).ok()?,
        Host::Domain(_) => return None,
        Host::Ipv4(_) | Host::Ipv6(_) => {}
    }
    let pid = holder(&listeners(&addresses_here(url.as_str())))?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some((pid, name.trim_end().to_owned()))
}

/// Processes by id and name.
fn names(pids: &[u32]) -> String {
    const MOST: usize = 4;
    let name = |pid: &u32| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm"));
        comm.map_or_else(|_| pid.to_string(), |comm| format!("{pid} ({})", comm.trim_end()))
    };
    let mut all: Vec<String> = pids.iter().take(MOST).map(name).collect();
    if pids.len() > MOST {
        all.push("…".to_owned());
    }
    format!("process {}", all.join(", "))
}

/// A process of this machine that has one of these sockets.
fn holder(sockets: &BTreeSet<u64>) -> Option<u32> {
    if sockets.is_empty() {
        return None;
    }
    let processes = fs::read_dir("/proc").ok()?;
    let mut pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.find(|pid| self::sockets(*pid).is_some_and(|own| !own.is_disjoint(sockets)))
}

/// The relay's addresses, where they are this machine's.
fn addresses_here(url: &str) -> Vec<SocketAddr> {
    let addresses = Url::parse(url).ok().and_then(|url| url.socket_addrs(|| None).ok());
    // Only an address of this machine can be bound to.
    let is_here = |address: &SocketAddr| UdpSocket::bind((address.ip(), 0)).is_ok();
    addresses.unwrap_or_default().into_iter().filter(is_here).collect()
}

/// The sockets that listen at one of these addresses, in the network namespace of this process.
fn listeners(addresses: &[SocketAddr]) -> BTreeSet<u64> {
    let is_relay = |one: &SocketAddr, listens: &SocketAddr| {
        let (relay, ip) = (one.ip().to_canonical(), listens.ip().to_canonical());
        one.port() == listens.port() && (ip.is_unspecified() || ip == relay)
    };
    let mut sockets = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let table = fs::read_to_string(format!("/proc/self/net/{table}")).unwrap_or_default();
        let listening = table.lines().filter_map(listening);
        let found = listening.filter(|(at, _)| addresses.iter().any(|one| is_relay(one, at)));
        sockets.extend(found.map(|(_, inode)| inode));
    }
    sockets
}

/// Address and inode of a listening socket, from a line of `/proc/net/tcp` or `tcp6` (proc_pid_net(5)).
fn listening(line: &str) -> Option<(SocketAddr, u64)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (ip, port) = fields.get(1)?.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            Ipv6Addr::from(<[u8; 16]>::try_from(words.as_flattened()).ok()?).into()
        }
        _ => return None,
    };
    let at = SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?);
    Some((at, fields.get(9)?.parse().ok()?)).filter(|_| fields[3] == LISTEN)
}

/// The sockets of a process, by inode; `None` where they are hidden, as those of other users are.
fn sockets(pid: u32) -> Option<BTreeSet<u64>> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let inode = |file: fs::DirEntry| {
        let file = fs::read_link(file.path()).ok()?;
        file.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    Some(files.filter_map(inode).collect())
}

#[cfg(test)]
mod tests {
    use std::{
        net::TcpListener,
        process::{Child, Command, Stdio},
    };

    use super::*;

    #[test]
    fn lines_of_tables_are_read_as_the_kernel_writes_them() {
        let line = "   0: 0100007F:1E61 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 20417 1";
        let ipv6 = "   1: 00000000000000000000000001000000:1E61 0:0 0A 0:0 00:0 0 0 0 20418";
        if cfg!(target_endian = "little") {
            assert_eq!(listening(line), Some(("127.0.0.1:7777".parse().unwrap(), 20_417)));
            assert_eq!(listening(ipv6), Some(("[::1]:7777".parse().unwrap(), 20_418)));
        }
        for other in [
            &line.replace(" 0A ", " 01 "),
            "",
            "  sl  local_address rem_address   st",
            "0: 0100007F 0:0 0A",
            "0: é00007F:1E61 0:0 0A",
        ] {
            assert_eq!(listening(other), None, "{other}");
        }
    }

    struct Ends(Child);

    impl Drop for Ends {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    impl Ends {
        fn processes(&self) -> Processes {
            Processes::from_pids(&[self.0.id()]).unwrap()
        }
    }

    /// A process with this socket as its standard input.
    fn with_socket(socket: impl Into<std::os::fd::OwnedFd>) -> Ends {
        let mut sleep = Command::new("sleep");
        Ends(sleep.arg("600").stdin(Stdio::from(socket.into())).stdout(Stdio::null()).spawn().unwrap())
    }

    #[test]
    fn a_process_that_listens_at_the_relays_address_is_the_relay() {
        for listen in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(listen) else { continue };
            let port = listener.local_addr().unwrap().port();
            let relay = with_socket(listener);
            let host = if listen.starts_with("[::1") { "[::1]" } else { "localhost" };
            let found = check(&relay.processes(), &format!("ws://{host}:{port}"));
            assert_eq!(found, Ok(Proof::default()), "{listen}");
        }
    }
}
