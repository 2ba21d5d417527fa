//! Tells the crate which compiler builds it, and of a static program the target and the allocator:
//! a result names them, because they are part of what is measured.

use std::{env, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().ok().filter(|output| output.status.success());
    if let Some(text) = version.and_then(|output| String::from_utf8(output.stdout).ok()) {
        println!("cargo::rustc-env=MEASURE_RUSTC={}{}", text.trim(), of_a_static_program());
    }
}

/// The target and the allocator where the C library is musl, else nothing.
fn of_a_static_program() -> String {
    if env::var("CARGO_CFG_TARGET_ENV").as_deref() != Ok("musl") {
        return String::new();
    }
    let allocator =
        if env::var_os("CARGO_FEATURE_COUNT_ALLOCATIONS").is_some() { "musl" } else { "mimalloc" };
    format!(", {}, allocator {allocator}", env::var("TARGET").unwrap_or_default())
}
