//! Ground that all programs share: their arguments and command line, their version, manual pages
//! and completions, the signals that end them, their descriptors, log, output and terminal.

mod arguments;
mod command_line;
mod descriptors;
mod exposition;
mod interrupt;
mod listen;
mod log;
mod output;
mod pages;
mod terminal;
mod threads;
mod unechoed;
pub mod units;
mod version;

pub use arguments::{NotParsed, parse};
pub use command_line::command_line;
pub use descriptors::raise_descriptor_limit;
pub use exposition::Exposition;
pub use interrupt::{Interrupt, leave_terminal_to_parent, stopped};
pub use listen::{accept, listen};
pub use log::log;
pub use output::{UsageError, print, report, tell};
pub use terminal::rewrites_lines;
pub use threads::try_threads;
pub use unechoed::Unechoed;
pub use version::built_from;
