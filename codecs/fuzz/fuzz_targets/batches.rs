#![no_main]
//! See `checks::batches`. The format is that of FORMAT, JSON without it.

#[path = "../checks.rs"]
#[allow(dead_code, reason = "each target asks one of the checks")]
mod checks;
#[path = "../format.rs"]
mod format;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| checks::batches(*format::FORMAT, bytes));
