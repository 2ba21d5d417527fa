//! The protocol's nouns.

mod event;
mod filter;
mod limits;
mod message;
mod verify;
mod view;

pub use event::{Event, KindClass, Tag};
pub use filter::{Filter, TagFilter};
pub(crate) use limits::Bounds;
pub use limits::{Limit, Limits, OverLimit, Request};
pub use message::{ClientMessage, EoseHints, RelayMessage};
pub use verify::{VerifyError, VerifyLevel};
pub(crate) use view::TagLayout;
pub use view::{EventHead, EventView, FlatEvent, TagView, TextView};
