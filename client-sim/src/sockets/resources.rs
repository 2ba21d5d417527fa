//! Descriptors and local ports of this machine. A plan that needs more is refused before it begins.

use std::{fs, io};

use anyhow::{Context, ensure};
use nix::errno::Errno;

/// Descriptors beyond the connections: of the runtime, timers, standard streams, the record, the
/// relay's pipes.
const OTHER_DESCRIPTORS: u64 = 64;

/// Raises the limit of open descriptors to its maximum.
///
/// # Errors
/// When the maximum is below what `connections` need; the text says what helps.
pub(crate) fn raise_descriptor_limit(connections: usize) -> anyhow::Result<()> {
    let most = program::raise_descriptor_limit().context("cannot raise the limit of descriptors")?;
    let needed = connections as u64 + OTHER_DESCRIPTORS;
    ensure!(
        needed <= most,
        "{connections} connections need {needed} descriptors, and a process may open {most} here: raise that with \
         ulimit -Hn as root, or connect fewer with --set"
    );
    Ok(())
}

/// The local ports of connections from one address to one other (ip(7), `ip_local_port_range` and
/// `ip_local_reserved_ports`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalPorts {
    first: u16,
    last: u16,
    /// Ports that are not reserved.
    free: usize,
}

impl LocalPorts {
    /// Reads the range of this network namespace; `None` where the system does not tell.
    pub(crate) fn read() -> Option<LocalPorts> {
        let read = |name| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}"));
        let reserved = read("ip_local_reserved_ports").unwrap_or_default();
        LocalPorts::parse(&read("ip_local_port_range").ok()?, &reserved)
    }

    fn parse(range: &str, reserved: &str) -> Option<LocalPorts> {
        let mut ends = range.split_whitespace().map(str::parse);
        let (first, last): (u16, u16) = (ends.next()?.ok()?, ends.next()?.ok()?);
        let is_reserved = |port: u16| {
            reserved.trim().split(',').any(|span| {
                let (from, to) = span.split_once('-').unwrap_or((span, span));
                matches!((from.parse(), to.parse()), (Ok(from), Ok(to)) if (from..=to).contains(&port))
            })
        };
        let free = (first..=last).filter(|port| !is_reserved(*port)).count();
        Some(LocalPorts { first, last, free })
    }

    /// How many connections to make from one of several addresses. Others use ports, too, and after
    /// a connection its port may stay in TIME-WAIT for a minute (RFC 9293 §3.6).
    pub(crate) fn per_source(self) -> usize {
        const ENOUGH: usize = 10_000;
        (self.free / 2).clamp(1, ENOUGH)
    }

    /// Refuses more connections to one relay than there are ports.
    ///
    /// # Errors
    /// When there are fewer; the text says what helps.
    pub(crate) fn suffice_for(self, connections: usize) -> anyhow::Result<()> {
        let LocalPorts { first, last, free } = self;
        ensure!(
            connections <= free,
            "{connections} connections to one relay need as many local ports, and this machine has {free} for them \
             ({first} to {last}): widen net.ipv4.ip_local_port_range with sysctl -w as root, connect fewer with \
             --set, or name a relay on this machine by number (ws://127.0.0.1:PORT)"
        );
        Ok(())
    }
}

/// Whether a connection could not be made because this machine had nothing left for it: no port, no
/// descriptor, no memory. That says nothing about the relay.
pub(crate) fn ran_out(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(
        errno,
        // A port: of connect(2), and of bind(2) to one of several addresses.
        Some(Errno::EADDRNOTAVAIL | Errno::EADDRINUSE | Errno::EAGAIN)
            | Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_ports_are_not_for_connections() {
        let of = |range, reserved| LocalPorts::parse(range, reserved).map(|ports| ports.free);
        assert_eq!(of("32768\t60999\n", "\n"), Some(28_232));
        assert_eq!(of("100 109", "50,100-103,105,109-120\n"), Some(4));
        assert_eq!(of("65535 65535", ""), Some(1));
        for nonsense in ["", "1", "x y", "1 65536"] {
            assert_eq!(of(nonsense, ""), None, "{nonsense}");
        }
    }

    #[test]
    fn more_connections_than_ports_are_refused_with_both_numbers() {
        let ports = LocalPorts::parse("40000 40099", "40000-40009").unwrap();
        ports.suffice_for(90).unwrap();
        let error = ports.suffice_for(91).unwrap_err().to_string();
        assert!(
            error.contains("91 connections") && error.contains("has 90 for them (40000 to 40099)"),
            "{error}"
        );
        assert_eq!(ports.per_source(), 45);
        assert_eq!(LocalPorts::parse("32768 60999", "").unwrap().per_source(), 10_000);
        assert_eq!(LocalPorts::parse("5 5", "5").unwrap().per_source(), 1);
    }

    #[test]
    fn what_this_machine_lacks_is_told_from_what_the_relay_refuses() {
        let ran_out = |errno: Errno| super::ran_out(&io::Error::from(errno));
        for ours in [Errno::EADDRNOTAVAIL, Errno::EADDRINUSE, Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS] {
            assert!(ran_out(ours), "{ours}");
        }
        for theirs in [Errno::ECONNREFUSED, Errno::ECONNRESET, Errno::ETIMEDOUT, Errno::EHOSTUNREACH] {
            assert!(!ran_out(theirs), "{theirs}");
        }
    }
}
