//! Both ends against each other and against scripted peers, over streams in memory.

#![expect(clippy::unwrap_used, reason = "clippy recognises test functions, not their helpers")]

mod fuzz_checks;
mod fuzz_seeds;
mod negotiation;
mod parts;
mod websocket;
