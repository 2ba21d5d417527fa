//! Messages between the emulator's process and the program that started it, a line of JSON each.

use std::net::Ipv4Addr;

use measure::Latency;
use serde::{Deserialize, Serialize};

use crate::emulator::WayCounts;

/// The first argument that makes a program an emulator.
pub const LINK_ROLE: &str = "role:link";

/// TCP's congestion control on links that request none: CUBIC (RFC 9438), as Linux names it
/// (tcp(7)).
pub const DEFAULT_CONGESTION: &str = "cubic";

/// Settings of TCP in both namespaces, as the kernel states them (tcp(7)).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpSettings {
    /// Congestion control of every connection.
    pub congestion: String,
    /// Whether a connection begins without an earlier one's metrics: `1`.
    pub no_metrics_save: String,
    /// Whether a connection that was idle begins anew with its window.
    pub slow_start_after_idle: String,
    /// Least, first and largest receive buffer in bytes.
    pub rmem: String,
    /// Least, first and largest send buffer in bytes.
    pub wmem: String,
}

/// The emulator's second argument.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The links, each as a text that makes it.
    pub(crate) links: Vec<String>,
    /// The seed of loss and jitter.
    pub(crate) seed: u64,
    /// The congestion control of every connection.
    pub(crate) congestion: String,
    /// The user whose connections bind no address.
    pub(crate) unbound: Ipv4Addr,
}

/// The emulator's message when both namespaces are ready.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) pid: u32,
    pub(crate) tcp: TcpSettings,
}

/// The emulator's report since the order to begin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// From relay to users.
    pub down: WayCounts,
    /// From users to relay.
    pub up: WayCounts,
    /// Each link apart, in the given order; empty if there is one.
    pub parts: Vec<Part>,
    /// How much later than due packets left, late reading included, estimated from late looks.
    pub lateness: Latency,
    /// How long packets waited before the link began to carry them, from relay to users.
    pub queued_down: Latency,
    /// How long packets waited before the link began to carry them, from users to relay.
    pub queued_up: Latency,
    /// Packets that the kernel dropped before the emulator read them.
    pub device_dropped: u64,
    /// Packets that the kernel did not take back.
    pub refused: u64,
    /// Packets that are not of a user's connection.
    pub foreign: u64,
    /// TCP segments that the relay sent again.
    pub retransmitted_down: u64,
    /// TCP segments that users sent again.
    pub retransmitted_up: u64,
    /// CPU time of the emulator.
    pub cpu_ns: u64,
    /// Time that the emulator was runnable without running, if the kernel keeps `schedstat`.
    pub wait_ns: Option<u64>,
    /// Why the counts of kernel and emulator disagree, from the start of the process on.
    pub unbalanced: Option<String>,
}

/// The report on one of several links.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// From relay to its users.
    pub down: WayCounts,
    /// From its users to the relay.
    pub up: WayCounts,
    /// How long packets waited before the link began to carry them, from relay to users.
    pub queued_down: Latency,
    /// How long packets waited before the link began to carry them, from users to relay.
    pub queued_up: Latency,
}
