//! Tests of `compare` from outside: reports of results made by hand, and runs with a client of a
//! few lines.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod action;
mod agents;
mod browser;
mod common;
mod diff;
mod gate;
mod help;
mod html;
mod loads;
mod report;
mod rounds;
mod run;
mod schema;
mod search;
mod terminal;
mod this_machine;
mod throughput;
mod verdicts;
