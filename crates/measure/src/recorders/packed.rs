//! The samples of a histogram in a few bytes.

use hdrhistogram::Histogram;

use crate::whole;

/// Each value that was recorded, in ascending order, with its count: as the difference to the value
/// before and the count, both in LEB128. A histogram of a block takes a few KB so.
#[derive(Clone)]
pub(super) struct Packed {
    samples: u64,
    bytes: Box<[u8]>,
}

impl From<&Histogram<u64>> for Packed {
    fn from(histogram: &Histogram<u64>) -> Packed {
        let (mut bytes, mut before) = (Vec::new(), 0);
        for step in histogram.iter_recorded() {
            let value = step.value_iterated_to();
            put(&mut bytes, value - before);
            put(&mut bytes, step.count_at_value());
            before = value;
        }
        Packed { samples: histogram.len(), bytes: bytes.into() }
    }
}

impl Packed {
    pub(super) fn len(&self) -> u64 {
        self.samples
    }

    /// Each value with its count.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let (mut rest, mut value) = (&*self.bytes, 0);
        std::iter::from_fn(move || {
            value += take(&mut rest)?;
            Some((value, take(&mut rest)?))
        })
    }

    /// Adds every sample to a histogram with the same bounds.
    pub(super) fn add_to(&self, histogram: &mut Histogram<u64>) {
        self.iter().for_each(|(value, count)| histogram.saturating_record_n(value, count));
    }

    /// As [`Histogram::value_at_quantile`], of shares above 0.
    pub(super) fn value_at_quantile(&self, q: f64) -> u64 {
        let wanted = whole::<u64>((q.min(1.0) * self.samples as f64).ceil()).max(1);
        let mut seen = 0_u64;
        let reaches = |(_, count): &(u64, u64)| {
            seen = seen.saturating_add(*count);
            seen >= wanted
        };
        self.iter().find(reaches).map_or(0, |(value, _)| value)
    }
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return bytes.push(low);
        }
        bytes.push(low | 0x80);
    }
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(number);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_histogram_has_every_value_and_quantile() {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).unwrap();
        let packed = Packed::from(&histogram);
        assert_eq!((packed.len(), packed.iter().next(), packed.value_at_quantile(0.5)), (0, None, 0));
        for (value, count) in [(0, 3), (1, 1), (2_047, 200), (1 << 33, 5), (60_000_000_000, u64::MAX >> 8)] {
            histogram.record_n(value, count).unwrap();
            let packed = Packed::from(&histogram);
            let all = histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()));
            assert!(packed.iter().eq(all), "{value}");
            for q in [0.001, 0.5, 0.99, 1.0, 2.0] {
                assert_eq!(packed.value_at_quantile(q), histogram.value_at_quantile(q), "{value} {q}");
            }
        }
    }
}
