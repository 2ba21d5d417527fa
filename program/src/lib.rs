//! What all programs have in common with the system around them: the signals that end them, and
//! their terminal.

mod interrupt;
mod output;
mod terminal;

pub use interrupt::{Interrupt, leave_terminal_to_parent};
pub use output::{UsageError, print, report};
pub use terminal::rewrites_lines;
