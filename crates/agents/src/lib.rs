//! How do several machines play one load test together, without a loss that nobody sees?
//!
//! A [`Coordinator`] and an [`Agent`] are state machines without socket and clock: claims, a
//! barrier, clocks compared, one start, a heartbeat, records counted once. A [`Player`] plays an
//! agent's share; what it plays, this crate does not know. `nats` carries the messages by NATS
//! (docs/scale-out.md).
//!
//! To tell players something more, add a field to [`Play`] and its check.

mod agent;
mod clock;
mod coordinator;
mod message;
#[cfg(feature = "nats")]
pub mod nats;
mod overview;
mod player;
#[cfg(test)]
mod simulation;
mod spec;
mod target;
#[cfg(test)]
mod testing;
mod times;

pub use agent::{Agent, Ending, Left, Output, Policy};
pub use clock::{Offset, ROUND_TRIPS};
pub use coordinator::{Coordinator, Order};
pub use message::{
    Abort, Claim, Command, Facts, MESSAGE_BYTES, MessageError, Phase, Ping, Pong, RECORD_BYTES, Reply,
    RunState, decode, encode,
};
pub use overview::{AgentState, Overview};
pub use player::{Commanded, Player, Process, now_ns};
pub use spec::{
    Block, BlockKey, CORPUS_FILE_BYTES, CorpusFile, Identity, Play, RunId, Spec, SpecError, file_sha256,
};
pub use target::{Target, TargetError};
