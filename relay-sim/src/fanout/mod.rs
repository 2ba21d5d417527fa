//! How does an event reach the connections that asked for it?

mod outbox;

pub(crate) use outbox::{Delivery, Dropped, Outbox, Stop};
