//! Tells the crate which compiler builds it: a result names its compiler, because codegen is part
//! of what is measured.

use std::{env, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().ok().filter(|output| output.status.success());
    if let Some(text) = version.and_then(|output| String::from_utf8(output.stdout).ok()) {
        println!("cargo::rustc-env=MEASURE_RUSTC={}", text.trim());
    }
}
