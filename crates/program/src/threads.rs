//! Threads that the system gives this process: a runtime panics about one that it does not get.

use std::{
    io,
    sync::{Mutex, PoisonError},
    thread,
};

use anyhow::Context;

/// Starts so many threads at once, and ends them.
///
/// # Errors
/// When the system gives fewer; the text says what helps.
pub fn try_threads(count: usize) -> anyhow::Result<()> {
    let gate = Mutex::new(());
    let started: io::Result<()> = thread::scope(|scope| {
        let _closed = gate.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = || drop(gate.lock());
        (0..count).try_for_each(|_| thread::Builder::new().spawn_scoped(scope, wait).map(drop))
    });
    started.with_context(|| {
        format!(
            "this process needs {count} more threads: raise the limit of processes (pids.max of its control group, \
             TasksMax, ulimit -u)"
        )
    })
}
