//! Events for the tests of this crate.

use codecs::Event;
use secp256k1::{Keypair, SECP256K1, SecretKey};

/// A note; its id is no hash, but starts with `n`.
pub(crate) fn event(n: u8) -> Event<'static> {
    let mut id = [0; 32];
    id[0] = n;
    Event {
        id,
        pubkey: [7; 32],
        created_at: 1_000,
        kind: 1,
        tags: vec![],
        content: format!("note {n}").into(),
        sig: [0; 64],
    }
}

/// The event with a valid key, id and signature.
pub(crate) fn signed(event: Event<'static>) -> Event<'static> {
    let pair = Keypair::from_secret_key(SECP256K1, &SecretKey::from_byte_array([1; 32]).unwrap());
    let mut event = Event { pubkey: pair.x_only_public_key().0.serialize(), ..event };
    event.id = event.compute_id();
    event.sig = SECP256K1.sign_schnorr_no_aux_rand(&event.id, &pair).to_byte_array();
    event
}
