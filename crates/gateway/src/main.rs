//! The gateway; see [`gateway::main`].

use std::process::ExitCode;

fn main() -> ExitCode {
    gateway::main(std::env::args_os())
}
