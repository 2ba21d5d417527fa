//! Questions about links. A process of its own answers them, because it moves to other namespaces.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::Context;
use serde::de::DeserializeOwned;

use crate::{
    capacity::Carries,
    check::{Checked, Order},
    protocol::LINK_ROLE,
};

/// Tries in a process of its own whether this host can emulate links, and returns the settings of TCP
/// there. `program` is a program that calls [`crate::main`] in the role of an emulator.
///
/// # Errors
/// The inner error is the reason with its remedy. The outer error: no process could be started.
pub fn probe(program: &Path) -> anyhow::Result<Result<String, String>> {
    ask(program, &["probe"])
}

/// Times transfers over a link, in a process of its own.
///
/// # Errors
/// As [`probe`].
pub fn check(program: &Path, order: &Order) -> anyhow::Result<Result<Checked, String>> {
    ask(program, &["check", &serde_json::to_string(order)?])
}

/// Measures for some seconds, in a process of its own, how many packets per second this host emulates.
///
/// # Errors
/// As [`probe`].
pub fn capacity(program: &Path) -> anyhow::Result<Result<Carries, String>> {
    ask(program, &["capacity"])
}

/// Starts `program` in the role of an emulator and reads its answer.
fn ask<T: DeserializeOwned>(program: &Path, task: &[&str]) -> anyhow::Result<Result<T, String>> {
    let output = Command::new(program)
        .arg(LINK_ROLE)
        .args(task)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start a process for the {} of links", task[0]))?;
    if !output.status.success() {
        return Ok(Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(Ok(serde_json::from_str(&text).with_context(|| format!("not an answer: {text}"))?))
}
