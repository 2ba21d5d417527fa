//! How does an event reach the connections that asked for it?

mod batches;
mod outbox;
mod subscriptions;

pub(crate) use batches::{Batch, Batches};
pub(crate) use outbox::{Dropped, Stop};
pub(crate) use subscriptions::{Delivery, Outbox, Queued, Subscription, Subscriptions};
