//! Emulated access links: how long a user would wait over a real one.
//!
//! A [`Link`] has rates, a round trip, a queue, loss and jitter; [`PROFILES`] are links with a
//! name. [`Emulator`] carries the packets of all users as a state machine without device and clock.
//! [`enter`] and [`Emulation`] put the kernel's own TCP at both ends: relay and users each have a
//! network namespace, and the emulator, a process of its own, carries every packet between them
//! (docs/links.md). [`between`] runs programs of others at both ends.
//!
//! To add a profile, add an entry to [`PROFILES`], with its source.

#[cfg(not(target_os = "linux"))]
compile_error!("links need network namespaces: Linux");

mod addresses;
mod apart;
mod between;
mod capacity;
mod check;
mod demand;
mod emulation;
mod emulator;
mod host;
mod network;
mod process;
mod profile;
mod protocol;
mod trace;

pub use addresses::{MOST_LINKS, MOST_USERS, RELAY, UNSHAPED, user_address};
pub use apart::{between, capacity, check, probe};
pub use between::{Heard, Programs};
pub use capacity::Carries;
pub use check::{Checked, Finding, Model, Order as CheckOrder};
pub use demand::Demand;
pub use emulation::Emulation;
pub use emulator::{Due, Emulator, Way, WayCounts};
pub use host::{NotPossible, enter};
pub use network::{DEFAULT_CONGESTION, TcpSettings};
pub use process::main;
pub use profile::{Capacity, Direction, Link, LinkError, PROFILES, Profile};
pub use protocol::{LINK_ROLE, Part, Report};
pub use trace::{MTU, Trace, TraceError};
