#![no_main]
//! See `fuzz_checks::headers`.

#[path = "../../tests/it/fuzz_checks.rs"]
#[allow(dead_code, reason = "each target asks one of the checks")]
mod fuzz_checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzz_checks::headers(bytes));
