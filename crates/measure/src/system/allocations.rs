//! Allocations of a process, in builds that count them.
//!
//! Counting makes every allocation slower, so it is a feature of the build. Every record of such a build
//! states it, because its latencies and CPU times are no evidence.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Allocations of a process or of a span of its life. Growing an allocation counts as one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Allocations {
    /// Number of allocations.
    pub count: u64,
    /// Bytes requested.
    pub bytes: u64,
}

crate::sums! { Allocations { count, bytes } }

impl Allocations {
    /// Allocations of this process since it started; `None` unless it was built with the feature
    /// `count-allocations`.
    pub fn so_far() -> Option<Allocations> {
        counter::so_far()
    }

    /// Allocations since an earlier reading of the same process.
    #[must_use]
    pub fn since(self, earlier: Allocations) -> Allocations {
        Allocations {
            count: self.count.saturating_sub(earlier.count),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }
}

#[cfg(feature = "count-allocations")]
mod counter {
    use std::alloc::System;

    use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

    use super::Allocations;

    #[global_allocator]
    static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

    #[expect(clippy::unnecessary_wraps, reason = "other builds have nothing to say")]
    pub(super) fn so_far() -> Option<Allocations> {
        let stats = ALLOCATOR.stats();
        Some(Allocations {
            count: (stats.allocations + stats.reallocations) as u64,
            bytes: stats.bytes_allocated as u64,
        })
    }
}

#[cfg(not(feature = "count-allocations"))]
mod counter {
    // musl's allocator has one lock, which would be measured as CPU time of the format.
    #[cfg(target_env = "musl")]
    #[global_allocator]
    static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

    pub(super) fn so_far() -> Option<super::Allocations> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_that_counts_sees_what_is_allocated_and_another_says_nothing() {
        let before = Allocations::so_far();
        let buffer = std::hint::black_box(Vec::<u8>::with_capacity(1_000_000));
        let spent = before.zip(Allocations::so_far()).map(|(before, after)| after.since(before));
        drop(buffer);
        assert_eq!(spent.is_some(), cfg!(feature = "count-allocations"));
        if let Some(spent) = spent {
            assert!(spent.count >= 1 && spent.bytes >= 1_000_000, "{spent:?}");
        }
    }
}
