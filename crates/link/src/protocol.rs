//! Messages between the emulator's process and the program that started it, a line of JSON each. The
//! answer to `report` is a [`LinkRecord`](measure::LinkRecord).

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// The first argument that makes a program an emulator.
pub const LINK_ROLE: &str = "role:link";

/// TCP's congestion control on links that request none: CUBIC (RFC 9438), as Linux names it
/// (tcp(7)).
pub const DEFAULT_CONGESTION: &str = "cubic";

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
