//! Random numbers that are the same on every machine and with every library version.
//!
//! Only the ChaCha stream comes from a crate; drawing from ranges is done here, because libraries improve theirs
//! from version to version. Only additions, multiplications, divisions and square roots touch floating point,
//! which IEEE 754 fixes to the bit; `powf` and `ln` differ between systems.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};
use sha2::{Digest, Sha256};

/// A seeded stream of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(ChaCha8Rng);

impl Random {
    /// The stream for `purpose`; different purposes are independent under the same seed.
    pub(crate) fn new(purpose: &str, seed: u64) -> Random {
        let key = Sha256::new().chain_update(purpose).chain_update(seed.to_be_bytes()).finalize();
        Random(ChaCha8Rng::from_seed(key.into()))
    }

    /// Uniform in `0..bound`, by rejection of the incomplete last stripe.
    ///
    /// # Panics
    /// When `bound` is 0: there is nothing to draw.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
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

    /// Fills `bytes`.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}
