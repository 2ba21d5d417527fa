//! Random numbers that are the same on every machine and with every library version.
//!
//! Only the ChaCha stream comes from a crate; drawing from ranges is done here, because libraries
//! improve theirs from version to version. Only additions, multiplications, divisions and square
//! roots touch floating point, which IEEE 754 fixes to the bit; `powf` and `ln` differ between
//! systems.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};
use sha2::{Digest, Sha256};

/// A seeded stream of random numbers, the same on every machine and with every library version.
#[derive(Debug, Clone)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// The stream for `purpose`; different purposes are independent under the same seed.
    pub fn new(purpose: &str, seed: u64) -> Random {
        let key = Sha256::new().chain_update(purpose).chain_update(seed.to_be_bytes()).finalize();
        Random(ChaCha8Rng::from_seed(key.into()))
    }

    /// The stream seeded by a hash.
    pub(crate) fn from_seed(seed: [u8; 32]) -> Random {
        Random(ChaCha8Rng::from_seed(seed))
    }

    /// Uniform in `0..bound`, by rejection of the incomplete last stripe.
    ///
    /// # Panics
    /// When `bound` is 0: there is nothing to draw.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "nothing to draw from");
        let bound = bound as u64;
        let last = u64::MAX - u64::MAX % bound;
        loop {
            let drawn = self.0.next_u64();
            if drawn < last {
                return usize::try_from(drawn % bound).expect("below a bound that was a usize");
            }
        }
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in 0..1, in steps of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True in this share of calls.
    pub(crate) fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    /// One of several, each as likely.
    pub(crate) fn pick<'t>(&mut self, items: &'t [impl AsRef<str>]) -> &'t str {
        items[self.below(items.len())].as_ref()
    }

    /// Uniform in `first..=last`.
    pub(crate) fn between(&mut self, first: usize, last: usize) -> usize {
        first + self.below(last - first + 1)
    }

    /// Random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// Draws `count` of the items without replacement, or all if there are fewer, and moves them to
    /// the front in drawn order. A longer draw begins with the shorter one.
    pub fn draw<'t, T>(&mut self, items: &'t mut [T], count: usize) -> &'t mut [T] {
        let count = count.min(items.len());
        for i in 0..count {
            let other = i + self.below(items.len() - i);
            items.swap(i, other);
        }
        &mut items[..count]
    }

    /// 32 bytes that look like an id or a key.
    pub fn bytes32(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        self.0.fill_bytes(&mut bytes);
        bytes
    }

    /// So many digits of base64.
    pub(crate) fn base64(&mut self, length: usize) -> String {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut bytes = vec![0; length];
        self.0.fill_bytes(&mut bytes);
        bytes.into_iter().map(|byte| char::from(DIGITS[usize::from(byte & 63)])).collect()
    }
}

/// Draws positions by weight.
#[derive(Debug, Clone, Default)]
pub struct Weighted(Vec<f64>);

impl Weighted {
    /// Position `i` is drawn in proportion to the `i`th weight.
    pub fn new(weights: impl IntoIterator<Item = f64>) -> Weighted {
        let sums = weights.into_iter().scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Weighted(sums.collect())
    }

    /// A position.
    ///
    /// # Panics
    /// Without any weight: there is nothing to draw.
    pub fn draw(&self, random: &mut Random) -> usize {
        let total = self.0.last().expect("something to draw from");
        let drawn = random.unit() * total;
        self.0.partition_point(|&sum| sum <= drawn).min(self.0.len() - 1)
    }
}

/// `base` to a power in 0..1, from square roots alone, so that every machine gets the same bits.
pub(crate) fn power(base: f64, exponent: f64) -> f64 {
    let (mut result, mut root, mut rest) = (1.0, base, exponent);
    for _ in 0..32 {
        root = root.sqrt();
        rest *= 2.0;
        if rest >= 1.0 {
            rest -= 1.0;
            result *= root;
        }
    }
    result
}
