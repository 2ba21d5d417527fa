//! The protocol's nouns.

mod event;
mod filter;
mod flat;
mod limits;
mod message;
mod verify;

pub use event::{Event, EventHead, KindClass, Tag};
pub(crate) use filter::MAX_FILTERS;
pub use filter::{Filter, TagFilter};
pub use flat::FlatEvent;
pub(crate) use limits::Bounds;
pub use limits::{Limit, Limits, OverLimit, Request};
pub use message::{ClientMessage, EoseHints, RelayMessage};
pub use verify::{VerifyError, VerifyLevel};
