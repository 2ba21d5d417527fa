//! Collects the messages of one flush, one behind the other in one buffer.
//!
//! A buffer for each message would cost an allocation each. The sessions of a thread use one buffer
//! in turn: memory that is freed and allocated again has to be cleared by the kernel each time.

use std::{cell::Cell, ops::Range, sync::Arc};

use codecs::{Codec, Format};

use crate::store::{Encoded, StoredEvent};

/// Written bytes that are flushed before more are added. A little less than the connection's write
/// buffer, which also holds frame headers. So all messages fit, and only the last one may find it full.
const FLUSH_BYTES: usize = 32 << 10;

/// A buffer that grew beyond this, for one large message, is not kept.
const MAX_SPARE_BYTES: usize = 4 * FLUSH_BYTES;

/// The longest header of a frame without a mask (RFC 6455 §5.2), as counted towards
/// [`FLUSH_BYTES`].
const HEADER_BYTES: usize = 10;

/// The messages of one flush.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    messages: Vec<Message>,
    /// Bytes of messages that are not among `bytes`.
    elsewhere_bytes: usize,
}

thread_local! {
    /// The buffer of the last flush, whose messages are in a connection's write buffer.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

#[derive(Debug)]
struct Message {
    end: usize,
    shared: Option<Shared>,
}

/// The part of a message that other subscriptions share, which stands behind the message's own.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) event: Arc<StoredEvent>,
    /// What stands behind the event.
    pub(crate) end: &'static [u8],
}

impl Shared {
    /// The event in the format of the message.
    pub(crate) fn encoded(&self, format: Format, codec: &dyn Codec) -> &Encoded {
        self.event.encoded(format, codec).expect("it was encoded when the message was begun")
    }
}

impl Outgoing {
    /// Adds the message that `write` appends. When it fails, nothing is added.
    ///
    /// # Errors
    /// The errors of `write`.
    pub(crate) fn add<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        if self.bytes.capacity() == 0 {
            self.bytes = SPARE.take();
        }
        let start = self.bytes.len();
        write(&mut self.bytes).inspect_err(|_| self.bytes.truncate(start))?;
        self.messages.push(Message { end: self.bytes.len(), shared: None });
        Ok(())
    }

    /// Lets the message that was added last go on with a part of so many bytes that it shares.
    pub(crate) fn share(&mut self, shared: Shared, bytes: usize) {
        if let Some(message) = self.messages.last_mut() {
            message.shared = Some(shared);
            self.elsewhere_bytes += bytes;
        }
    }

    /// Whether it is time to flush.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() + self.elsewhere_bytes + HEADER_BYTES * self.messages.len() >= FLUSH_BYTES
    }

    /// Whether there is nothing to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Takes the messages as they stand, and in their order where each is and what it shares. The
    /// buffer is for [`give_back`].
    pub(crate) fn take(&mut self) -> (Vec<u8>, impl Iterator<Item = (Range<usize>, Option<Shared>)>) {
        let bytes = std::mem::take(&mut self.bytes);
        self.elsewhere_bytes = 0;
        let mut start = 0;
        let messages = self.messages.drain(..);
        (
            bytes,
            messages.map(move |Message { end, shared }| (std::mem::replace(&mut start, end)..end, shared)),
        )
    }
}

/// Keeps the buffer of a flush, whose messages were handed over, for the next.
pub(crate) fn give_back(mut bytes: Vec<u8>) {
    if (1..=MAX_SPARE_BYTES).contains(&bytes.capacity()) {
        bytes.clear();
        SPARE.set(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_full_before_the_write_buffer_is() {
        let mut outgoing = Outgoing::default();
        let mut on_the_wire = 0;
        while !outgoing.is_full() {
            assert!(on_the_wire < wire::WireLimits::default().write_buffer_bytes);
            let added = outgoing.add(|out| {
                out.extend([0; 100]);
                Ok::<_, std::convert::Infallible>(())
            });
            assert_eq!(added, Ok(()));
            on_the_wire += 100 + HEADER_BYTES;
        }
        assert!(!outgoing.is_empty());
    }
}
