//! Buffers of a thread, so that a connection keeps none of its own. flate2 writes into initialised
//! slices, and the result is copied out at its true size. So a length in a frame reserves nothing.

use std::cell::{Cell, RefCell};

/// Memory that grew beyond this, for one large message, is given back.
pub(crate) const MAX_SPARE_BYTES: usize = 128 << 10;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static JOINED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Runs `work` with the thread's buffer, at least `bytes` long. Only growth zeroes the buffer.
pub(crate) fn with<R>(bytes: usize, work: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    SCRATCH.with_borrow_mut(|buffer| {
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        work(buffer)
    })
}

/// Runs `work` with the parts as one slice, in memory of the thread. One part alone is not copied.
pub(crate) fn joined<'p, R>(
    parts: impl Iterator<Item = &'p [u8]> + Clone,
    work: impl FnOnce(&[u8]) -> R,
) -> R {
    let mut ahead = parts.clone();
    if let (Some(alone), None) = (ahead.next(), ahead.next()) {
        return work(alone);
    }
    let mut whole = JOINED.take();
    whole.clear();
    parts.for_each(|part| whole.extend_from_slice(part));
    let result = work(&whole);
    if whole.capacity() <= MAX_SPARE_BYTES {
        JOINED.set(whole);
    }
    result
}
