//! `corpus`: makes, checks and converts files of Nostr events.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(std::env::args_os())
}
