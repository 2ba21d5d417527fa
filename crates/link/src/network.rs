//! Devices, addresses and routes of the two namespaces, by rtnetlink(7): no program `ip` is needed.

use std::{
    fs::{self, File},
    io::{self, Read, Seek},
    net::{IpAddr, Ipv4Addr},
    os::fd::AsFd,
};

use anyhow::{Context, bail};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
    link::{LinkAttribute, LinkFlags, LinkMessage},
    route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use crate::{
    addresses::{RELAY, USERS},
    host::NotPossible,
    trace::MTU,
};

/// Packets that the kernel keeps until the emulator reads them: of a thousand users, whose initial
/// windows come at once (RFC 6928).
const DEVICE_QUEUE: u32 = 10_000;

/// The loopback device of every namespace.
const LOOPBACK: u32 = 1;

/// The table of the addresses that are local (rtnetlink(7), `RT_TABLE_LOCAL`).
const LOCAL_TABLE: u8 = 255;

/// One namespace: its device, and the kernel's own counts.
pub(crate) struct End {
    device: SyncDevice,
    name: &'static str,
    /// Opened inside of the namespace: they count its devices and its connections from anywhere.
    devices: File,
    protocols: File,
}

/// Counts of the kernel in a namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct KernelCounts {
    /// Packets that the emulator read from the device.
    pub(crate) read: u64,
    /// Packets that the device dropped before the emulator read them.
    pub(crate) dropped: u64,
    /// Packets that the emulator wrote to the device.
    pub(crate) written: u64,
    /// TCP segments that were sent again (RFC 4022, `tcpRetransSegs`).
    pub(crate) retransmitted: u64,
}

impl End {
    /// Equips the namespace of the relay, in which the calling thread is.
    pub(crate) fn of_relay(congestion: &str) -> anyhow::Result<End> {
        let end = End::equip("relay0")?;
        let mut address = AddressMessage::default();
        address.header.family = AddressFamily::Inet;
        address.header.prefix_len = 32;
        address.header.index = LOOPBACK;
        address.attributes.push(AddressAttribute::Local(IpAddr::V4(RELAY)));
        ask(RouteNetlinkMessage::NewAddress(address)).context("cannot give the relay its address")?;
        end.route(USERS, RELAY, congestion)?;
        Ok(end)
    }

    /// Equips the namespace of the users, in which the calling thread is. A connection that binds
    /// no address is of this user.
    pub(crate) fn of_users(congestion: &str, unbound: Ipv4Addr) -> anyhow::Result<End> {
        let end = End::equip("users0")?;
        // Every address of the range is local, so that a client may bind any of them.
        let mut local = route(USERS, LOOPBACK);
        local.header.table = LOCAL_TABLE;
        local.header.kind = RouteType::Local;
        local.header.scope = RouteScope::Host;
        ask(RouteNetlinkMessage::NewRoute(local)).context("cannot make the users' addresses local")?;
        end.route((RELAY, 32), unbound, congestion)?;
        Ok(end)
    }

    fn equip(name: &'static str) -> anyhow::Result<End> {
        // Packets of IPv6 would be counted as foreign; a kernel without it sends none.
        fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").ok();
        fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").ok();
        // Read back by `tcp_settings`, because a container may forbid the writing.
        fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1").ok();
        let device = DeviceBuilder::new()
            .name(name)
            .layer(Layer::L3)
            .mtu(u16::try_from(MTU).context("the MTU of Ethernet fits")?)
            // Set up by netlink, which allows the length of the queue without privileges.
            .enable(false)
            .build_sync()
            .map_err(|error| NotPossible::from_error("a TUN device", &error))?;
        device.set_nonblocking(true).context("cannot read the TUN device without blocking")?;
        set_up(LOOPBACK, None).context("cannot set the loopback device up")?;
        let index = device.if_index().context("the TUN device has no number")?;
        set_up(index, Some(DEVICE_QUEUE)).context("cannot set the TUN device up")?;
        let open = |file: &str| {
            let path = format!("/proc/thread-self/net/{file}");
            File::open(&path).with_context(|| format!("cannot open {path}"))
        };
        Ok(End { device, name, devices: open("dev")?, protocols: open("snmp")? })
    }

    /// Sends packets for these addresses through the device, with this congestion control.
    fn route(&self, to: (Ipv4Addr, u8), from: Ipv4Addr, congestion: &str) -> anyhow::Result<()> {
        let index = self.device.if_index().context("the TUN device has no number")?;
        let mut route = route(to, index);
        route.attributes.push(RouteAttribute::PrefSource(RouteAddress::Inet(from)));
        let metrics = vec![RouteMetric::CcAlgo(congestion.to_owned())];
        route.attributes.push(RouteAttribute::Metrics(metrics));
        ask(RouteNetlinkMessage::NewRoute(route)).with_context(|| {
            format!("cannot route to {}/{} with congestion control {congestion} (tcp_available_congestion_control lists those of this kernel)", to.0, to.1)
        })
    }

    /// Reads the next packet; `None` when there is none.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.device.recv(buffer) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Hands a packet to the kernel.
    pub(crate) fn write(&self, packet: &[u8]) -> io::Result<()> {
        self.device.send(packet).map(drop)
    }

    /// Counts of the kernel since the namespace was equipped.
    pub(crate) fn counts(&mut self) -> anyhow::Result<KernelCounts> {
        let devices = again(&mut self.devices).context("cannot read the counts of a device")?;
        let [read, dropped, written] = device_counts(&devices, self.name)
            .with_context(|| format!("the kernel does not count the packets of {}", self.name))?;
        let protocols = again(&mut self.protocols).context("cannot read the counts of TCP")?;
        let retransmitted =
            retransmitted(&protocols).context("the kernel does not count retransmitted segments")?;
        Ok(KernelCounts { read, dropped, written, retransmitted })
    }
}

impl AsFd for End {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Settings of TCP in the calling thread's namespace that decide times, as the kernel states them (tcp(7)).
pub(crate) fn tcp_settings() -> String {
    let setting = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{name}")).unwrap_or_default();
        format!("{name}={}", text.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    ["no_metrics_save", "slow_start_after_idle", "rmem", "wmem"].map(setting).join(" ")
}

fn route((to, prefix): (Ipv4Addr, u8), device: u32) -> RouteMessage {
    let mut route = RouteMessage::default();
    route.header.address_family = AddressFamily::Inet;
    route.header.destination_prefix_length = prefix;
    route.header.table = netlink_packet_route::route::RouteHeader::RT_TABLE_MAIN;
    route.header.protocol = RouteProtocol::Static;
    route.header.scope = RouteScope::Link;
    route.header.kind = RouteType::Unicast;
    route.attributes.push(RouteAttribute::Destination(RouteAddress::Inet(to)));
    route.attributes.push(RouteAttribute::Oif(device));
    route
}

/// Sets a device up, with a queue of `queue` packets.
fn set_up(device: u32, queue: Option<u32>) -> anyhow::Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = device;
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message.attributes.extend(queue.map(LinkAttribute::TxQueueLen));
    ask(RouteNetlinkMessage::SetLink(message))
}

/// Asks the kernel for a change, and waits until it is made.
fn ask(message: RouteNetlinkMessage) -> anyhow::Result<()> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&bytes, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)?.payload {
        NetlinkPayload::Error(error) if error.code.is_none() => Ok(()),
        NetlinkPayload::Error(error) => Err(error.to_io().into()),
        other => bail!("expected an acknowledgement, the kernel answered {other:?}"),
    }
}

fn again(file: &mut File) -> io::Result<String> {
    file.rewind()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Packets sent through a device, dropped by it, and received from it, of `/proc/net/dev`
/// (proc(5)).
fn device_counts(text: &str, name: &str) -> Option<[u64; 3]> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))?;
    let fields: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    Some([*fields.get(9)?, *fields.get(11)?, *fields.get(1)?])
}

/// The field `RetransSegs` of `/proc/net/snmp`: a line of names and a line of numbers.
fn retransmitted(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let place = lines.next()?.split_whitespace().position(|name| name == "RetransSegs")?;
    lines.next()?.split_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counts_are_read_as_proc_5_says() {
        let text = "Inter-|   Receive                            |  Transmit\n\
             face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo\n\
             lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
             relay0: 100 22 0 1 0 0 0 0 300 44 0 5 0 0 0 0\n";
        assert_eq!(device_counts(text, "relay0"), Some([44, 5, 22]));
        assert_eq!(device_counts(text, "relay"), None);
        assert_eq!(device_counts("relay0: 1 2 3", "relay0"), None);
        let snmp = "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm RetransSegs InErrs\nTcp: 1 17 0\n";
        assert_eq!(retransmitted(snmp), Some(17));
        assert_eq!(retransmitted("Tcp: RtoAlgorithm\nTcp: 1\n"), None);
    }
}
