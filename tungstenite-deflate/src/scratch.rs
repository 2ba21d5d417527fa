//! One output buffer a thread: flate2 writes into initialised slices, and the result is copied out
//! at its true size. A connection keeps no buffer of its own, and a length in a frame reserves
//! nothing.

use std::cell::RefCell;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` with the thread's buffer, at least `bytes` long. The buffer is zeroed only where it
/// grows.
pub(crate) fn with<R>(bytes: usize, work: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    SCRATCH.with_borrow_mut(|buffer| {
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        work(buffer)
    })
}
