//! The `client-sim` program. With `role:relay` as its first argument it is `relay-sim`, so that a
//! run can start a relay process from the same file; with `role:gateway` it is the gateway before a
//! relay, with `role:link` it emulates access links, and with `role:count` it plays for a counter of
//! instructions.

use std::process::ExitCode;

use client_sim::own_relay::{GATEWAY_ROLE, RELAY_ROLE};
use link::LINK_ROLE;
use rehearsals::instructions::COUNT_ROLE;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    if args.next_if(|role| role == RELAY_ROLE).is_some() {
        return relay_sim::main(args);
    }
    if args.peek().is_some_and(|role| role == GATEWAY_ROLE) {
        return gateway::main(args);
    }
    if args.next_if(|role| role == LINK_ROLE).is_some() {
        return link::main(args);
    }
    if args.next_if(|role| role == COUNT_ROLE).is_some() {
        return rehearsals::instructions::main(args);
    }
    client_sim::main(args)
}
