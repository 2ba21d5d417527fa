//! The protocol's nouns.

mod event;
mod filter;
mod message;
mod verify;
mod view;

pub use event::{Event, KindClass, Tag};
pub use filter::{Filter, Limits, TagFilter};
pub use message::{ClientMessage, EoseHints, RelayMessage};
pub use verify::{VerifyError, VerifyLevel};
pub(crate) use view::TagLayout;
pub use view::{EventHead, EventView, FlatEvent, TagView, TextView};
