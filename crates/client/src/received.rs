//! Events as a client receives them: with text, or with ids and keys in tags as bytes.

use codecs::{ByteEvent, Event, VerifyError, VerifyLevel};

use crate::shared::Shared;

/// The fields of a received event that a client reads.
pub(crate) trait Received {
    fn id(&self) -> &[u8; 32];

    fn kind(&self) -> u16;

    fn verify(&self, level: VerifyLevel) -> Result<(), VerifyError>;

    /// Whether it is event `n` of the plan, unaltered.
    fn is_planned(&self, shared: &Shared, n: u32) -> bool;
}

impl Received for Event<'_> {
    fn id(&self) -> &[u8; 32] {
        &self.id
    }

    fn kind(&self) -> u16 {
        self.kind
    }

    fn verify(&self, level: VerifyLevel) -> Result<(), VerifyError> {
        Event::verify(self, level)
    }

    fn is_planned(&self, shared: &Shared, n: u32) -> bool {
        shared.workload.events[n as usize] == *self
    }
}

impl Received for ByteEvent<'_> {
    fn id(&self) -> &[u8; 32] {
        &self.id
    }

    fn kind(&self) -> u16 {
        self.kind
    }

    fn verify(&self, level: VerifyLevel) -> Result<(), VerifyError> {
        ByteEvent::verify(self, level)
    }

    fn is_planned(&self, shared: &Shared, n: u32) -> bool {
        shared.kept().is_some_and(|kept| kept[n as usize] == *self)
    }
}
