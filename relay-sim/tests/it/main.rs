//! The relay over real sockets: `serve` on a free port, with our own clients, scripted peers and real programs.

mod common;
mod hostile;
mod processes;
mod real_clients;
mod sessions;
