//! Signals that end a run, also while it is set up.

use anyhow::Context;
use program::Interrupt;
use tokio::runtime::{self, Runtime};

/// A signal ended the work.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// Takes over the signals that end a run: nothing that blocks heeds them from then on.
///
/// # Errors
/// Names the signal that the system refuses.
pub(crate) fn listen() -> anyhow::Result<Interrupt> {
    let runtime = runtime()?;
    Ok(runtime.block_on(async { Interrupt::listen() })?)
}

/// Does the work on a runtime of its own. What blocks a thread, such as the lookup of a name, is
/// not waited for.
///
/// # Errors
/// As the work.
pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = runtime()?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}

/// Does the work, unless a signal comes.
///
/// # Errors
/// [`Interrupted`], or as the work.
pub(crate) async fn unless_interrupted<T>(
    interrupt: &mut Interrupt,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    tokio::select! {
        biased;
        () = interrupt.wait() => Err(Interrupted.into()),
        done = work => done,
    }
}

fn runtime() -> anyhow::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build().context("cannot make a runtime")
}
