//! Signals that end a run, also while it is set up.

use std::{process, thread};

use anyhow::Context;
use measure::Exit;
use program::{Interrupt, report};
use tokio::{
    runtime::{self, Runtime},
    sync::oneshot,
};

/// A signal ended the work before the load of a run.
#[derive(Debug, thiserror::Error)]
#[error("interrupted: nothing was measured")]
pub(crate) struct Interrupted;

/// Takes over the signals that end a run. From then on they no longer end work that blocks.
///
/// # Errors
/// Names the signal that the system refuses.
pub(crate) fn listen() -> anyhow::Result<Interrupt> {
    let runtime = runtime()?;
    Ok(runtime.block_on(async { Interrupt::listen() })?)
}

/// Does the work on a runtime of its own. Returns without waiting for blocked threads, such as the lookup
/// of a name.
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

/// Does work that blocks, before a run has anything to clean up: a signal during it ends the program at
/// once.
///
/// # Errors
/// When the system gives no runtime.
pub(crate) fn or_exit<T>(interrupt: Option<&mut Interrupt>, work: impl FnOnce() -> T) -> anyhow::Result<T> {
    let Some(interrupt) = interrupt else { return Ok(work()) };
    let runtime = runtime()?;
    let (done, mut worked) = oneshot::channel::<()>();
    let watch = || {
        runtime.block_on(async {
            tokio::select! {
                () = interrupt.wait() => {}
                _ = &mut worked => return,
            }
            report(&format!("client-sim: {Interrupted}"));
            process::exit(Exit::Interrupted.code().into())
        });
    };
    thread::scope(|scope| {
        let _watches = thread::Builder::new().spawn_scoped(scope, watch).context("cannot start a thread")?;
        let result = work();
        drop(done);
        Ok(result)
    })
}

fn runtime() -> anyhow::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build().context("cannot make a runtime")
}
