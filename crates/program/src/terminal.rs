//! Requests to a terminal.

use std::{env, io::IsTerminal};

/// Whether a line may be rewritten: on a terminal that can (`TERM` is set and not `dumb`).
pub fn rewrites_lines(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && env::var_os("TERM").is_some_and(|terminal| terminal != "dumb")
}
