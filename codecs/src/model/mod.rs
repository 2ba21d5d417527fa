//! The protocol's nouns.

mod event;
mod filter;
mod message;
mod verify;

pub use event::{Event, KindClass, Tag};
pub use filter::{Filter, Limits, TagFilter};
pub use message::{ClientMessage, EoseHints, RelayMessage};
pub use verify::{VerifyError, VerifyLevel};
