//! How does an event reach the connections that asked for it?

mod batches;
mod outbox;

pub use batches::BatchLimits;
pub(crate) use batches::{Batch, Batches, Held};
pub(crate) use outbox::{Delivery, Dropped, Outbox, Stop};
