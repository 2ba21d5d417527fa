//! A gateway between clients and relays of this process, over 127.0.0.1.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod common;
mod ends;
mod endurance;
mod formats;
mod http;
mod passes;
mod program;
mod record;
mod shared;
mod unchanged;
