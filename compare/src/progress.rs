//! What a waiting person sees on stderr: one line that is kept up to date on a terminal, plain lines elsewhere.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

/// Progress over a known number of blocks.
#[derive(Debug)]
pub struct Progress {
    blocks: usize,
    finished: usize,
    started: Instant,
    first_guess: Duration,
    terminal: bool,
    quiet: bool,
}

impl Progress {
    /// `block_guess` is the expected time of a block until one was measured.
    pub fn new(blocks: usize, block_guess: Duration, quiet: bool) -> Progress {
        let terminal = io::stderr().is_terminal();
        Progress { blocks, finished: 0, started: Instant::now(), first_guess: block_guess, terminal, quiet }
    }

    /// Says what runs now.
    pub fn block(&mut self, round: usize, rounds: usize, cell: &str) {
        let left = time_left(self.blocks, self.finished, self.started.elapsed(), self.first_guess);
        let number = self.finished + 1;
        self.show(&format!(
            "block {number}/{}, round {}/{rounds}: {cell}, {} left",
            self.blocks,
            round + 1,
            minutes(left)
        ));
    }

    /// Counts a block.
    pub fn finish_block(&mut self) {
        self.finished += 1;
    }

    /// Says something that stays, whatever the progress line does.
    pub fn note(&self, text: &str) {
        // Nobody is hurt when stderr is closed; the result file has it too.
        let clear = if self.terminal && !self.quiet { "\r\x1b[2K" } else { "" };
        let _ = writeln!(io::stderr(), "{clear}{text}");
    }

    /// Leaves the terminal on a fresh line.
    pub fn end(&self) {
        if self.terminal && !self.quiet {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }

    fn show(&self, line: &str) {
        if self.quiet {
            return;
        }
        let mut stderr = io::stderr();
        let _ = if self.terminal { write!(stderr, "\r\x1b[2K{line}") } else { writeln!(stderr, "{line}") };
        let _ = stderr.flush();
    }
}

fn time_left(blocks: usize, finished: usize, elapsed: Duration, guess: Duration) -> Duration {
    let left = u32::try_from(blocks - finished).unwrap_or(u32::MAX);
    match u32::try_from(finished) {
        Ok(finished @ 1..) => elapsed / finished * left,
        _ => guess * left,
    }
}

fn minutes(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 { format!("{seconds} s") } else { format!("{} min {:02} s", seconds / 60, seconds % 60) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_the_blocks_that_were_measured() {
        let guess = Duration::from_secs(4);
        assert_eq!(minutes(time_left(36, 0, Duration::ZERO, guess)), "2 min 24 s");
        assert_eq!(minutes(time_left(36, 6, Duration::from_secs(60), guess)), "5 min 00 s");
        assert_eq!(minutes(time_left(36, 35, Duration::from_secs(350), guess)), "10 s");
    }
}
