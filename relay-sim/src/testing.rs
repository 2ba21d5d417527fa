//! Events for the tests of this crate.

use codecs::Event;

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
pub(crate) fn signed(mut event: Event<'static>) -> Event<'static> {
    corpus::sign_as(&mut event, "a test");
    event
}
