//! Both ends over real sockets: against each other, against scripted peers, against other
//! implementations.

#![expect(clippy::unwrap_used, reason = "clippy recognises test functions, not their helpers")]

mod combinations;
mod common;
mod connection;
mod dictionary;
mod draft;
mod frames;
mod handshake;
mod headers;
mod hostile;
mod negotiation;
mod scripted;
mod tls;
mod traffic;
