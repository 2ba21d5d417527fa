//! Which source tree a result belongs to.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The source tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Git {
    /// The commit in full.
    pub commit: String,
    /// True when tracked files differed from it.
    pub dirty: bool,
}

impl Git {
    /// Reads a program's build: the commit, followed by `-dirty` if files differed.
    pub fn described(text: &str) -> Git {
        let commit = text.strip_suffix("-dirty").unwrap_or(text);
        Git { commit: commit.to_owned(), dirty: commit != text }
    }
}

/// `{:.8}` shortens the commit.
impl fmt::Display for Git {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commit = f.precision().and_then(|most| self.commit.get(..most)).unwrap_or(&self.commit);
        write!(f, "commit {commit}{}", if self.dirty { " with local changes" } else { "" })
    }
}
