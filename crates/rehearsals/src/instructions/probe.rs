//! The functions by which a counter of instructions tells who worked, and in which section.
//!
//! They are found by name (`compare/src/count/callgrind.rs`), so each is a function of its
//! own in every build: never inlined, no tail call, and no two of equal code.

use std::{
    hint::black_box,
    io::{Write, stdout},
};

use measure::Environment;
use serde::Serialize;
use serde_json::json;

/// Does the relay's work.
#[inline(never)]
pub(super) fn relay_side(work: &mut dyn FnMut()) {
    work();
    black_box("relay");
}

/// Does the clients' work.
#[inline(never)]
pub(super) fn client_side(work: &mut dyn FnMut()) {
    work();
    black_box("clients");
}

/// Ends a section: the counter takes down what it has, and begins anew.
#[inline(never)]
fn section_ends(section: &Section<'_>) {
    black_box(section);
}

/// Counts since the section before.
#[derive(Debug, Serialize)]
struct Section<'a> {
    /// Its name; none for work that is no part of a result.
    section: Option<&'a str>,
    /// The divisor of its instructions.
    units: u64,
}

/// States what built this program: the first line of its output. Reads nothing whose length may
/// change, such as a load average: that would move what is allocated later.
pub(super) fn state_build() -> anyhow::Result<()> {
    print(&json!({ "rustc": Environment::rustc(), "optimised": Environment::is_optimised() }))
}

/// Ends a section of so many deliveries, events or messages.
pub(super) fn end_section(name: &str, units: u64) -> anyhow::Result<()> {
    end(&Section { section: Some(name), units })
}

/// Ends work that is no part of a result.
pub(super) fn end_preparation() -> anyhow::Result<()> {
    end(&Section { section: None, units: 0 })
}

fn end(section: &Section<'_>) -> anyhow::Result<()> {
    section_ends(section);
    print(section)
}

fn print(line: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_string(line)?;
    line.push('\n');
    stdout().write_all(line.as_bytes())?;
    Ok(())
}
