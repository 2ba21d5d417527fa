//! What adds up: over the agents of a block, and over the blocks of a cell. Each type names, next to
//! its fields, those that do.

use std::collections::BTreeMap;

/// A measurement of which those of several records make one.
pub trait AddUp {
    /// Adds the same of another record.
    fn add_up(&mut self, other: &Self);
}

/// The fields of a type that add up, and those of which the largest counts. The others stay those of
/// the first record.
#[macro_export]
macro_rules! sums {
    ($($type:ty { $($sum:ident),* $(; most $($most:ident),*)? })*) => {
        $(impl $crate::AddUp for $type {
            fn add_up(&mut self, other: &Self) {
                $($crate::AddUp::add_up(&mut self.$sum, &other.$sum);)*
                $($(self.$most = self.$most.max(other.$most);)*)?
            }
        })*
    };
}

// What agents say may be anything.
impl AddUp for u64 {
    fn add_up(&mut self, other: &Self) {
        *self = self.saturating_add(*other);
    }
}

/// The sum of what both know.
impl<T: AddUp> AddUp for Option<T> {
    fn add_up(&mut self, other: &Self) {
        match (self.as_mut(), other) {
            (Some(sum), Some(other)) => sum.add_up(other),
            _ => *self = None,
        }
    }
}

impl<T: AddUp, const N: usize> AddUp for [T; N] {
    fn add_up(&mut self, other: &Self) {
        self.iter_mut().zip(other).for_each(|(sum, other)| sum.add_up(other));
    }
}

impl<T: AddUp> AddUp for Vec<T> {
    fn add_up(&mut self, other: &Self) {
        self.iter_mut().zip(other).for_each(|(sum, other)| sum.add_up(other));
    }
}

impl<T: AddUp + Default> AddUp for BTreeMap<String, T> {
    fn add_up(&mut self, other: &Self) {
        other.iter().for_each(|(name, other)| self.entry(name.clone()).or_default().add_up(other));
    }
}
