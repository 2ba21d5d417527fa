//! Real or generated?

use std::{collections::HashSet, fmt, sync::LazyLock};

use codecs::Event;

use crate::keys;

/// Enough that a tenth of foreign events is missed once in 10^11 files.
const SIGNERS_CHECKED: usize = 256;

/// NIP-59.
const GIFT_WRAP: u16 = 1059;

/// Who made the events of a corpus. Results state it, because generated events compress otherwise than real ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// All signed by the generator's published keys.
    Generated,
    /// None signed by them.
    Real,
    /// Some signed by them.
    Mixed,
}

impl Origin {
    /// Looks at the signers of up to 256 events spread evenly over the list. Costs some 40 ms once per process.
    pub fn of(events: &[Event<'_>]) -> Origin {
        static AUTHORS: LazyLock<HashSet<[u8; 32]>> = LazyLock::new(|| {
            keys::in_parallel(keys::AUTHOR_KEYS, |index| keys::public(&keys::author(index)))
                .into_iter()
                .collect()
        });
        let checked = events.len().min(SIGNERS_CHECKED);
        let generated = (0..checked)
            .map(|i| &events[i * events.len() / checked])
            .filter(|event| match event.kind {
                GIFT_WRAP => keys::public(&keys::gift_wrap(&event.content)) == event.pubkey,
                _ => AUTHORS.contains(&event.pubkey),
            })
            .count();
        match generated {
            0 => Origin::Real,
            n if n == checked => Origin::Generated,
            _ => Origin::Mixed,
        }
    }

    /// The word in results.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Generated => "generated",
            Origin::Real => "real",
            Origin::Mixed => "mixed",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
