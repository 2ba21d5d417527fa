//! The signals that end a program in order, alike in all programs.

use std::{fs, io, thread};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

/// Ctrl-C, SIGTERM, and SIGHUP unless the program was started with it ignored (`nohup`).
#[derive(Debug)]
pub struct Interrupt {
    interrupted: Signal,
    terminated: Signal,
    hung_up: Option<Signal>,
    came: bool,
}

impl Interrupt {
    /// Takes over these signals. Needs a runtime around it.
    ///
    /// # Errors
    /// Names the signal that the system refuses.
    pub fn listen() -> io::Result<Interrupt> {
        // Asked before the signal is taken over.
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangup_ends = !ignores_hangup(&status);
        Ok(Interrupt {
            interrupted: taken(SignalKind::interrupt(), "Ctrl-C")?,
            terminated: taken(SignalKind::terminate(), "SIGTERM")?,
            hung_up: hangup_ends.then(|| taken(SignalKind::hangup(), "SIGHUP")).transpose()?,
            came: false,
        })
    }

    /// Leaves SIGHUP without effect, for the child of a program that alone decides when it ends on
    /// that.
    #[must_use]
    pub fn but_hangup(self) -> Interrupt {
        Interrupt { hung_up: None, ..self }
    }

    /// Completes with the first of them, those since [`Interrupt::listen`] included, and from then
    /// on at once. On any runtime; cancel-safe.
    pub async fn wait(&mut self) {
        if !self.came {
            tokio::select! {
                _ = self.interrupted.recv() => {}
                _ = self.terminated.recv() => {}
                Some(_) = async { self.hung_up.as_mut()?.recv().await } => {}
            }
            self.came = true;
        }
    }
}

/// Completes with the first of these signals. The child of another program has `hears`, which gets the
/// lines of its standard input: it also ends with that input, and not on SIGHUP. Needs a runtime
/// around it.
///
/// # Errors
/// As [`Interrupt::listen`].
pub fn stopped(hears: Option<impl FnMut(&str) + Send + 'static>) -> io::Result<impl Future<Output = ()>> {
    let interrupt = Interrupt::listen()?;
    let mut interrupt = if hears.is_some() { interrupt.but_hangup() } else { interrupt };
    let (sender, input_ended) = oneshot::channel();
    if let Some(mut hears) = hears {
        // A thread of its own: tokio's stdin would keep the runtime from ending until input comes.
        thread::spawn(move || {
            io::stdin().lines().map_while(Result::ok).for_each(|line| hears(&line));
            let _ = sender.send(()); // fails when the program stops already
        });
    }
    Ok(async move {
        tokio::select! {
            () = interrupt.wait() => {}
            Ok(()) = input_ended => {}
        }
    })
}

/// Takes over Ctrl-C and SIGHUP without effect: both reach a child of the program that alone
/// decides when it ends, too. Needs a runtime around it.
///
/// # Errors
/// Names the signal that the system refuses.
pub fn leave_terminal_to_parent() -> io::Result<()> {
    taken(SignalKind::interrupt(), "Ctrl-C").map(drop)?;
    taken(SignalKind::hangup(), "SIGHUP").map(drop)
}

/// Makes a write beyond the file size limit (`ulimit -f`) fail like a write to a full disk. By
/// default SIGXFSZ ends the program without a message.
pub(crate) fn outlive_size_limit() {
    if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() {
        let _within = runtime.enter();
        // tokio keeps its handler for the life of the process.
        let _ = taken(SignalKind::from_raw(nix::sys::signal::Signal::SIGXFSZ as i32), "SIGXFSZ");
    }
}

fn taken(kind: SignalKind, name: &str) -> io::Result<Signal> {
    signal(kind).map_err(|error| io::Error::new(error.kind(), format!("cannot listen for {name}: {error}")))
}

/// `SigIgn` is a mask of signals in hexadecimal digits; SIGHUP is the lowest bit.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hangup_that_nohup_ignores_is_known_from_the_mask_of_signals() {
        assert!(ignores_hangup("SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n"));
        for other in ["SigIgn:\t0000000000001000\n", "SigBlk:\t0000000000000001\n", "SigIgn:\tx\n", ""] {
            assert!(!ignores_hangup(other), "{other:?}");
        }
    }
}
