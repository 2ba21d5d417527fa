//! The seam between a plan and what plays its blocks: the clients of this machine, agents on
//! several, or the numbers of a test.

use std::{future::Future, path::Path, pin::Pin};

use anyhow::Result;
use futures::future::LocalBoxFuture;
use measure::Exit;

use crate::{matrix::CellSpec, progress::Progress};

/// A block to play.
#[derive(Debug, Clone, Copy)]
pub struct Task<'a> {
    /// Which round of the plan it belongs to, from 0 on.
    pub round: u32,
    /// Its place in the round, from 0 on.
    pub position: u32,
    /// The cell that is measured.
    pub cell: &'a CellSpec,
    /// The formats of the plan: events that one of them cannot hold are set aside for all.
    pub comparable_with: &'a [String],
    /// The seed of its events.
    pub seed: u64,
    /// Seconds in which clients publish.
    pub seconds: u32,
    /// Where its record goes.
    pub record: &'a Path,
}

/// How a block ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Played {
    /// The exit code of the client, or the gravest one of several; `None` when there is none.
    pub exit_code: Option<i32>,
    /// Why it failed.
    pub failure: Option<String>,
    /// Whether it was ended because `interrupt` completed.
    pub interrupted: bool,
    /// Whether no further block can be played.
    pub is_over: bool,
}

impl Played {
    /// With the words for how it ended, where no failure says more.
    pub fn with_words(self) -> Played {
        let failure = self.failure.or_else(|| failure(self.exit_code, self.interrupted));
        Played { failure, ..self }
    }
}

/// The failure that an exit code reports; `None` when it reports none, and when the user ended the
/// run.
pub(crate) fn failure(exit_code: Option<i32>, interrupted: bool) -> Option<String> {
    match exit_code.and_then(Exit::from_code) {
        Some(Exit::Success | Exit::Invalid | Exit::BoundMissed | Exit::Interrupted) => None,
        _ if interrupted => None,
        Some(Exit::Unbalanced) => Some("events were lost or altered".to_owned()),
        Some(Exit::Incomplete) => Some("the relay was lost".to_owned()),
        Some(Exit::NotPossible) => Some("not possible for this scenario".to_owned()),
        _ => Some(match exit_code {
            Some(code) => format!("the client ended with exit code {code}"),
            None => "a signal ended the client".to_owned(),
        }),
    }
}

/// Completes when the user has had enough.
pub type Interrupt<'a> = Pin<&'a mut (dyn Future<Output = ()> + 'a)>;

/// Generates the load of a block against a relay.
pub trait Generator {
    /// Plays a block and writes its record. Once `interrupt` completes it ends early, with the
    /// record of what was measured.
    ///
    /// # Errors
    /// When nothing can be played at all.
    fn play<'a>(
        &'a self,
        task: Task<'a>,
        progress: &'a mut Progress,
        interrupt: Interrupt<'a>,
    ) -> LocalBoxFuture<'a, Result<Played>>;
}
