//! Tests of `compare` from outside: reports of results made by hand, runs with a client of a few
//! lines, and the real program.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod action;
mod agents;
mod browser;
#[path = "../../../client-sim/tests/common/certificate.rs"]
mod certificate;
mod common;
mod contribute;
mod diff;
mod disk;
#[path = "../../../client-sim/tests/common/few.rs"]
mod few;
mod foreign;
mod gate;
#[path = "../../../client-sim/tests/common/guard.rs"]
mod guard;
mod help;
mod loads;
mod over_nats;
mod plan;
mod program;
#[path = "../../../client-sim/tests/common/python.rs"]
mod python;
#[path = "../../../client-sim/tests/common/ran.rs"]
mod ran;
mod relays;
mod report;
mod rounds;
mod run;
mod schema;
#[path = "../../../client-sim/tests/common/scrape.rs"]
mod scrape;
mod search;
mod site;
mod terminal;
mod this_machine;
mod throughput;
mod tree;
mod verdicts;
