//! Who measured a result, and who paid for it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Characters of a name that are shown.
const MOST_SHOWN: usize = 100;

/// Who measured a result, as they say themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Provenance {
    /// Their part.
    pub by: MeasuredBy,
    /// Who paid for machines or work; absent where nobody did.
    pub paid_by: Option<String>,
}

/// The part of who measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MeasuredBy {
    /// Maintainers of this repository.
    Maintainer,
    /// Somebody else, on a machine of theirs.
    Contributed,
    /// Who sells or maintains something that was measured.
    Vendor,
}

impl MeasuredBy {
    /// The names in files and on command lines.
    pub const ALL: [(&str, MeasuredBy); 3] = [
        ("maintainer", MeasuredBy::Maintainer),
        ("contributed", MeasuredBy::Contributed),
        ("vendor", MeasuredBy::Vendor),
    ];
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.by {
            MeasuredBy::Maintainer => "maintainers of this repository",
            MeasuredBy::Contributed => "a contributor",
            MeasuredBy::Vendor => "a vendor of what was measured",
        })?;
        match &self.paid_by {
            // A name of a file may be anything.
            Some(who) => {
                let who: String = who.chars().filter(|c| !c.is_control()).take(MOST_SHOWN).collect();
                write!(f, ", paid by {who}")
            }
            None => f.write_str(", paid by nobody"),
        }
    }
}
