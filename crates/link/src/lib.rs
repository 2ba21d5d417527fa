//! Emulated access links: how long a user would wait over a real one.
//!
//! A [`Link`] has rates, a round trip, a queue, loss and jitter; [`PROFILES`] are links with a
//! name. [`Emulator`] carries the packets of all users as a state machine without device and clock.
//! [`enter`] and [`Emulation`] put the kernel's own TCP at both ends: relay and users each have a
//! network namespace, and the emulator, a process of its own, carries every packet between them
//! (docs/links.md).
//!
//! To add a profile, add an entry to [`PROFILES`], with its source.

#![cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "nothing reaches the emulator where there are no network namespaces")
)]

mod addresses;
mod apart;
mod capacity;
mod check;
mod demand;
mod emulation;
mod emulator;
#[cfg_attr(not(target_os = "linux"), path = "elsewhere.rs")]
mod host;
#[cfg(target_os = "linux")]
mod network;
#[cfg(target_os = "linux")]
mod process;
mod profile;
mod protocol;
mod trace;

pub use addresses::{MOST_LINKS, MOST_USERS, RELAY, UNSHAPED, user_address};
pub use apart::{capacity, check, probe};
pub use capacity::Carries;
pub use check::{Checked, Finding, Model, Order as CheckOrder};
pub use demand::Demand;
pub use emulation::Emulation;
pub use emulator::{Due, Emulator, Way};
#[cfg(not(target_os = "linux"))]
pub use host::main;
pub use host::{NotPossible, enter};
#[cfg(target_os = "linux")]
pub use process::main;
pub use profile::{Capacity, Direction, Link, LinkError, PROFILES, Profile};
pub use protocol::{DEFAULT_CONGESTION, LINK_ROLE};
pub use trace::{MTU, Trace, TraceError};
