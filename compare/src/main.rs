//! `compare`: runs the matrix and renders the report. The same binary is every relay and every
//! swarm it starts.

use std::{env, process::ExitCode};

use client_sim::instructions::COUNT_ROLE;
use compare::{Known, cli};
use link::LINK_ROLE;

fn main() -> ExitCode {
    let role = env::args_os().nth(1);
    match role.as_deref().and_then(|role| role.to_str()) {
        Some("role:relay") => relay_sim::main(env::args_os().skip(2)),
        Some("role:client") => client_sim::main(env::args_os().skip(2)),
        Some(LINK_ROLE) => link::main(env::args_os().skip(2)),
        Some(COUNT_ROLE) => client_sim::instructions::main(env::args_os().skip(2)),
        _ => {
            let formats = client_sim::known_formats();
            let formats =
                formats.into_iter().map(|name| (name, client_sim::known_implementations(name))).collect();
            let compressions = client_sim::known_compressions();
            let core_formats = client_sim::core_formats();
            cli::main(
                env::args_os(),
                &Known {
                    formats,
                    core_formats,
                    compressions,
                    best_compressions: client_sim::best_known_compressions(),
                    compression_label: client_sim::compression_label,
                    link_label: client_sim::link_label,
                    link_demand: client_sim::link_demand,
                    has_floor: client_sim::has_floor,
                    too_few_bursts: client_sim::too_few_bursts,
                },
            )
        }
    }
}
