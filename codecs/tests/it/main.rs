//! Tests of every codec, from outside.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure should end the test")]

mod allocations;
mod batches;
mod binary_messages;
mod canonical;
mod capacity;
#[path = "../../fuzz/checks.rs"]
mod checks;
mod common;
mod dependencies;
mod errors;
mod fuzz_seeds;
mod golden;
mod interop_vectors;
mod keeps_bytes;
mod keys;
mod limits;
mod malformed;
mod memory;
mod messages;
mod notepack_text;
mod nson;
mod properties;
