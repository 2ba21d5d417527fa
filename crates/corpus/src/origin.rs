//! Real or generated?

use std::{collections::HashSet, sync::LazyLock};

use codecs::Event;

use crate::{
    keys::{self, World},
    sampler::Reservoir,
};

/// Signers looked at: misses a tenth of foreign events once in 10^11 files (0.9^256).
const SIGNERS_CHECKED: usize = 256;

/// Origin of a corpus. Results state it, because generated and real events compress differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// All signed by the generator's published keys.
    Generated,
    /// None signed by them.
    Real,
    /// Some signed by them.
    Mixed,
}

codecs::names! { Origin, "origin": Generated = "generated", Real = "real", Mixed = "mixed" }

/// A uniform sample of the signers of up to 256 events of a stream.
#[derive(Debug)]
pub(crate) struct SignerSample(Reservoir<Signer>);

#[derive(Debug, Clone, Copy)]
struct Signer {
    pubkey: [u8; 32],
    /// The secret key of its author, had the generator made the event as its author's only one.
    once_secret: [u8; 32],
}

impl Default for SignerSample {
    fn default() -> SignerSample {
        SignerSample(Reservoir::new(SIGNERS_CHECKED, 0))
    }
}

impl SignerSample {
    pub(crate) fn add(&mut self, event: &Event<'_>) {
        self.0.add_with(|| Signer { pubkey: event.pubkey, once_secret: keys::once_secret(event) });
    }

    pub(crate) fn origin(&self) -> Origin {
        static AUTHORS: LazyLock<HashSet<[u8; 32]>> =
            LazyLock::new(|| World::ALL.iter().flat_map(|world| world.authors()).map(keys::public).collect());
        let is_generated = |signer: &&Signer| {
            AUTHORS.contains(&signer.pubkey)
                || keys::public(&keys::keypair(signer.once_secret)) == signer.pubkey
        };
        let (generated, others): (Vec<&Signer>, Vec<&Signer>) = self.0.drawn().partition(is_generated);
        match (generated.is_empty(), others.is_empty()) {
            (true, _) => Origin::Real,
            (false, true) => Origin::Generated,
            (false, false) => Origin::Mixed,
        }
    }
}
