//! How do several machines play one load test together, without a loss that nobody sees?
//!
//! [`coordinate`] opens a [`Run`]: it gives slots to agents, compares clocks, sets one start, and
//! reads every record once. [`attend`] is an agent's part in it. Both talk by requests over NATS
//! (docs/scale-out.md). A [`Player`] plays an agent's share; what it plays, this crate does not know.
//!
//! To tell players something more, add a field to [`Play`] and to its arguments.

mod attend;
mod board;
mod clock;
mod coordinate;
mod events;
mod message;
mod player;
mod policy;
mod server;
mod spec;
mod times;

pub use attend::{Attendance, Left, attend};
pub use board::Overview;
pub use coordinate::{Aborted, Run, coordinate};
pub use events::{CORPUS_FILE_BYTES, fetch_corpus};
pub use message::{Facts, Phase, Said};
pub use player::{Commanded, Ending, Player, Process, now_ns};
pub use policy::Policy;
pub use server::{NatsError, Server};
pub use spec::{Identity, Play, RunId, Spec, file_sha256};
