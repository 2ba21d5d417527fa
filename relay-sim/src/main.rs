//! The relay; see [`relay_sim::main`].

use std::process::ExitCode;

fn main() -> ExitCode {
    relay_sim::main(std::env::args_os().skip(1))
}
