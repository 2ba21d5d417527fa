//! `corpus`: makes, checks, converts and describes files of Nostr events.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(std::env::args_os())
}
