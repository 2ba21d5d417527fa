//! Sets of small numbers as bits.

/// A set of places in a list, such as the publications of a plan.
#[derive(Debug, Default, Clone)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// Makes an empty set whose members are below `len`.
    pub fn of_len(len: usize) -> Self {
        Bits(vec![0; len.div_ceil(64)])
    }

    /// Adds a member; false when the set had it.
    pub fn insert(&mut self, member: usize) -> bool {
        let (word, bit) = (member / 64, 1 << (member % 64));
        let fresh = self.0[word] & bit == 0;
        self.0[word] |= bit;
        fresh
    }

    /// Removes a member; false when the set did not have it, or when it is out of range.
    pub fn remove(&mut self, member: usize) -> bool {
        let bit = 1 << (member % 64);
        let Some(word) = self.0.get_mut(member / 64).filter(|word| **word & bit != 0) else { return false };
        *word &= !bit;
        true
    }

    /// Whether `member` is in the set.
    pub fn contains(&self, member: usize) -> bool {
        self.0[member / 64] & (1 << (member % 64)) != 0
    }

    /// The members, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(n, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(n * 64 + bit)
            })
        })
    }

    /// The number of members.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
}

impl FromIterator<bool> for Bits {
    fn from_iter<I: IntoIterator<Item = bool>>(members: I) -> Self {
        let mut bits = Bits::default();
        for (n, member) in members.into_iter().enumerate() {
            if n % 64 == 0 {
                bits.0.push(0);
            }
            if member {
                bits.insert(n);
            }
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_into_it() {
        let mut bits = Bits::of_len(130);
        for member in [0, 63, 64, 129] {
            assert!(bits.insert(member) && !bits.insert(member));
        }
        assert_eq!(bits.iter().collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert_eq!(bits.count(), 4);
        let same: Bits = (0..130).map(|n| [0, 63, 64, 129].contains(&n)).collect();
        assert_eq!(same.iter().collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert!(!same.contains(1) && same.contains(129));
        assert!(bits.remove(63) && !bits.remove(63) && !bits.remove(1_000));
        assert_eq!(bits.iter().collect::<Vec<_>>(), [0, 64, 129]);
    }
}
