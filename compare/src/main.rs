//! `compare`: runs the matrix and renders the report. The same binary is every relay and every
//! swarm it starts.

use std::{env, process::ExitCode};

use client_sim::own_relay::GATEWAY_ROLE;
use compare::{KEEPER_ROLE, cli, keep};
use link::LINK_ROLE;
use rehearsals::instructions::COUNT_ROLE;

fn main() -> ExitCode {
    let role = env::args_os().nth(1);
    match role.as_deref().and_then(|role| role.to_str()) {
        Some("role:relay") => relay_sim::main(env::args_os().skip(2)),
        Some("role:client") => client_sim::main(env::args_os().skip(2)),
        Some(GATEWAY_ROLE) => gateway::main(env::args_os().skip(1)),
        Some(LINK_ROLE) => link::main(env::args_os().skip(2)),
        Some(KEEPER_ROLE) => keep(env::args_os().skip(2)),
        Some(COUNT_ROLE) => rehearsals::instructions::main(env::args_os().skip(2)),
        _ => cli::main(env::args_os()),
    }
}
