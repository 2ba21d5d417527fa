//! Tests of `client-sim` as a program: what it plays, refuses, counts and writes.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod addresses;
mod agent;
mod between;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/events.rs"]
mod events;
mod faults;
#[path = "../common/few.rs"]
mod few;
mod foreign;
#[path = "../common/guard.rs"]
mod guard;
mod light;
mod links;
mod meet;
mod outputs;
mod picky;
#[path = "../common/python.rs"]
mod python;
#[path = "../common/ran.rs"]
mod ran;
mod relay_pids;
mod replay;
mod scenarios;
mod serve;
mod set_up;
#[path = "../common/setup.rs"]
mod setup;
mod shares;
mod talkative;
