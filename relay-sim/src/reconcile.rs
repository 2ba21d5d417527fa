//! NIP-77: which of the events that match a filter does a client lack, and which does the relay?
//!
//! Both sides compare fingerprints of ranges of ids until the difference is left (the negentropy
//! protocol, through the `negentropy` crate). A reconciliation is about the events of the instant
//! at which it was opened: what is published meanwhile belongs to the next one. It holds 40 bytes
//! an event, so that events and reconciliations are bounded.

use std::collections::HashMap;

use negentropy::{Id, Negentropy, NegentropyStorageVector};

use crate::config::{MIN_FRAME_BYTES, ReconcileLimits};

/// The reconciliations of one connection.
#[derive(Debug)]
pub(crate) struct Reconciliations {
    limits: ReconcileLimits,
    open: HashMap<String, Negentropy<'static, NegentropyStorageVector>>,
}

impl Reconciliations {
    pub(crate) fn new(limits: ReconcileLimits) -> Self {
        Reconciliations { limits, open: HashMap::new() }
    }

    /// How many matching events are worth looking for: one more than may be.
    pub(crate) fn enough_events(&self) -> usize {
        self.limits.max_events.saturating_add(1)
    }

    /// Opens a reconciliation over these events, in place of an earlier one of that name, and
    /// answers the client's first message.
    ///
    /// # Errors
    /// The text of NEG-ERR.
    pub(crate) fn open(
        &mut self,
        name: &str,
        events: &[(i64, [u8; 32])],
        message: &[u8],
    ) -> Result<Vec<u8>, String> {
        self.open.remove(name);
        let ReconcileLimits { max_open, max_events, frame_bytes } = self.limits;
        if self.open.len() >= max_open {
            return Err(format!(
                "blocked: a connection has at most {max_open} reconciliations; NEG-CLOSE one first"
            ));
        }
        if events.len() > max_events {
            return Err(format!("blocked: more than {max_events} events match; narrow the filter"));
        }
        let reconciliation = begin(events, frame_bytes).map_err(|error| format!("error: {error}"))?;
        self.open.insert(name.to_owned(), reconciliation);
        self.answer(name, message)
    }

    /// Answers a message of an open reconciliation. One that cannot be understood ends it.
    ///
    /// # Errors
    /// The text of NEG-ERR.
    pub(crate) fn answer(&mut self, name: &str, message: &[u8]) -> Result<Vec<u8>, String> {
        let Some(reconciliation) = self.open.get_mut(name) else {
            return Err("closed: no reconciliation of this name is open; begin with NEG-OPEN".to_owned());
        };
        reconciliation.reconcile(message).map_err(|error| {
            self.open.remove(name);
            format!("invalid: not a message of the negentropy protocol: {error}")
        })
    }

    pub(crate) fn close(&mut self, name: &str) {
        self.open.remove(name);
    }
}

fn begin(
    events: &[(i64, [u8; 32])],
    frame_bytes: usize,
) -> Result<Negentropy<'static, NegentropyStorageVector>, negentropy::Error> {
    let mut storage = NegentropyStorageVector::with_capacity(events.len());
    for (created_at, id) in events {
        // The protocol has no time before 1970; both sides put such events at its start.
        storage.insert(u64::try_from(*created_at).unwrap_or(0), Id::from_byte_array(*id))?;
    }
    storage.seal()?;
    Negentropy::owned(storage, frame_bytes.max(MIN_FRAME_BYTES) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn ids(range: std::ops::Range<u32>) -> Vec<(i64, [u8; 32])> {
        let id = |n: u32| {
            std::array::from_fn(|i| {
                (n.wrapping_mul(0x9e37_79b9) >> (i % 25)).to_le_bytes()[0] ^ n.to_le_bytes()[i % 4]
            })
        };
        range.map(|n| (i64::from(n / 3), id(n))).collect()
    }

    #[test]
    fn no_message_is_longer_than_the_frame() {
        let limits = ReconcileLimits { frame_bytes: MIN_FRAME_BYTES, ..Config::default().reconcile };
        let mut relay = Reconciliations::new(limits);
        let mut client = begin(&ids(4_000..5_000), 0).unwrap();
        let (mut have, mut need, mut frames) = (Vec::new(), Vec::new(), Vec::new());
        let mut answer = relay.open("n", &ids(0..5_000), &client.initiate().unwrap()).unwrap();
        loop {
            frames.push(answer.len());
            match client.reconcile_with_ids(&answer, &mut have, &mut need).unwrap() {
                Some(message) => answer = relay.answer("n", &message).unwrap(),
                None => break,
            }
        }
        assert_eq!(have.len(), 0);
        assert_eq!(need.len(), 4_000);
        assert!(frames.len() > 20, "{frames:?}");
        assert!(frames.iter().all(|bytes| *bytes <= MIN_FRAME_BYTES), "{frames:?}");
    }

    #[test]
    fn what_is_not_negentropy_ends_the_reconciliation() {
        let mut relay = Reconciliations::new(Config::default().reconcile);
        let first = begin(&[], 0).unwrap().initiate().unwrap();
        for bad in [
            &b""[..],
            b"\x00",
            b"\x61\x00\x00\x07",
            b"\x61\x00\x21\x00",
            b"\x61\x00\x00\x02\xff\xff\xff\xff\x7f",
        ] {
            relay.open("n", &ids(0..100), &first).unwrap();
            let text = relay.answer("n", bad).unwrap_err();
            assert!(text.starts_with("invalid: "), "{bad:02x?}: {text}");
            let text = relay.answer("n", &first).unwrap_err();
            assert!(text.starts_with("closed: "), "{text}");
        }
        // A later version of the protocol is answered with the version that is spoken here.
        assert_eq!(relay.open("n", &ids(0..100), b"\x62\x01\x02"), Ok(vec![0x61]));
    }

    /// Every message, cut or with a byte changed, is answered within the frame or refused.
    #[test]
    fn no_bytes_make_it_panic() {
        let limits = ReconcileLimits { frame_bytes: MIN_FRAME_BYTES, ..Config::default().reconcile };
        let mut relay = Reconciliations::new(limits);
        let first = begin(&ids(50..400), 0).unwrap().initiate().unwrap();
        for at in 0..first.len() {
            for changed in [None, Some(0), Some(0x7f), Some(0xff)] {
                let mut message = first[..at].to_vec();
                if let Some(byte) = changed {
                    message.push(byte);
                    message.extend_from_slice(&first[at + 1..]);
                }
                if let Ok(answer) = relay.open("n", &ids(0..300), &message) {
                    assert!(answer.len() <= MIN_FRAME_BYTES);
                }
            }
        }
    }
}
