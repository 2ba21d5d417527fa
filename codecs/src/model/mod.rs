//! The protocol's nouns.

mod bytes;
mod event;
mod filter;
mod flat;
#[cfg(feature = "signatures")]
mod keys;
mod limits;
mod message;
mod verify;

pub use bytes::{ByteEvent, ByteMessage, TagValue};
pub use event::{Event, EventHead, KindClass, Tag};
pub(crate) use filter::MAX_FILTERS;
pub use filter::{Filter, TagFilter};
pub use flat::FlatEvent;
#[cfg(feature = "signatures")]
pub use keys::PublicKeys;
pub(crate) use limits::Bounds;
pub use limits::{Limit, Limits, OverLimit, Request};
pub use message::{ClientMessage, EoseHints, RelayMessage};
pub use verify::{VerifyError, VerifyLevel};
