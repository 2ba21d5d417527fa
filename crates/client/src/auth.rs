//! The answer to a relay's challenge (NIP-42).

use codecs::Event;
use workload::CLIENT_AUTH;

/// The answer to a challenge of the relay at this URL, without author and signature.
pub fn proof(url: &str, challenge: &str, created_at: i64) -> Event<'static> {
    let tag = |name: &'static str, value: &str| vec![name.into(), value.to_owned().into()];
    Event {
        id: [0; 32],
        pubkey: [0; 32],
        created_at,
        kind: CLIENT_AUTH,
        tags: vec![tag("relay", url), tag("challenge", challenge)],
        content: "".into(),
        sig: [0; 64],
    }
}
