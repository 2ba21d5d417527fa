//! How the programs end, as the shell sees it.

use std::process::ExitCode;

/// The exit codes of client-sim and compare. Each code means the same in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::TryFrom)]
#[try_from(repr)]
#[repr(u8)]
pub enum Exit {
    /// Everything ran, and every demand was met.
    Success = 0,
    /// Something failed that no other code names.
    Error = 1,
    /// The command line, or a file that it names, is wrong.
    Usage = 2,
    /// The measurement ran and cannot be believed.
    Invalid = 3,
    /// The ledger does not balance: something was lost, doubled, altered, misrouted or invented.
    Unbalanced = 4,
    /// The run ended early: a connection or the relay was lost, or a coordinator stopped it.
    Incomplete = 5,
    /// The floor relay cannot play this plan.
    NotPossible = 6,
    /// A bound of the scenario or of `--slo` was missed.
    BoundMissed = 99,
    /// `compare diff` found a metric that became worse, or `compare instructions --check` a path.
    Regression = 100,
    /// `compare diff --strict` or `compare instructions --check` could not tell.
    Inconclusive = 101,
    /// Ctrl-C: what was measured until then is kept.
    Interrupted = 130,
}

impl Exit {
    /// The meaning of an exit code, if it is one of these.
    pub fn from_code(code: i32) -> Option<Exit> {
        u8::try_from(code).ok()?.try_into().ok()
    }

    /// The number that the shell sees.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Whether a process ended with this code.
    pub fn is(self, code: Option<i32>) -> bool {
        code == Some(i32::from(self.code()))
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_stands_for_one_way_to_end() {
        let known: Vec<u8> =
            (0..=u8::MAX).filter(|code| Exit::from_code(i32::from(*code)).is_some()).collect();
        assert_eq!(known, [0, 1, 2, 3, 4, 5, 6, 99, 100, 101, 130], "the codes that README and --help name");
        assert_eq!((Exit::from_code(-1), Exit::from_code(256)), (None, None));
        assert!(Exit::Unbalanced.is(Some(4)) && !Exit::Unbalanced.is(None));
    }
}
