//! Did the author sign this event? SHA-256 of NIP-01's canonical form, and BIP-340.

#[cfg(feature = "signatures")]
use secp256k1::{SECP256K1, XOnlyPublicKey, schnorr::Signature};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{ByteEvent, Event};
use crate::hex;

/// How much of an event is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum VerifyLevel {
    /// Nothing.
    None,
    /// The id is the hash of the content.
    Id,
    /// The id, and the author's signature of it.
    Full,
}

crate::names! { VerifyLevel, "verification level": None = "none", Id = "id", Full = "full" }

/// Why an event is not what its author signed. The text completes NIP-01's `invalid: …`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The id is not the hash of the canonical form.
    #[error("event id does not match")]
    Id,
    /// The public key is not a point of the curve.
    #[error("pubkey is not a valid key")]
    PublicKey,
    /// The signature does not fit id and key.
    #[error("signature does not verify")]
    Signature,
    /// This build checks no signatures.
    #[cfg(not(feature = "signatures"))]
    #[error("signatures are not checked by this build (feature `signatures`)")]
    NotBuilt,
}

impl Event<'_> {
    /// SHA-256 of `[0,pubkey,created_at,kind,tags,content]` in NIP-01's canonical form; control
    /// characters are written `\u00xx`, as every deployed implementation does.
    pub fn compute_id(&self) -> [u8; 32] {
        canonical_id((&self.pubkey, self.created_at, self.kind), &self.tags, &self.content)
    }

    /// What the id is the hash of, as JSON.
    pub fn canonical(&self) -> Vec<u8> {
        let mut canonical = Vec::new();
        write_canonical(
            &mut canonical,
            (&self.pubkey, self.created_at, self.kind),
            &self.tags,
            &self.content,
        );
        canonical
    }

    /// Checks as much as `level` requires.
    ///
    /// ```
    /// use codecs::{Event, VerifyError, VerifyLevel};
    ///
    /// let (id, pubkey, sig) = ([0; 32], [2; 32], [3; 64]);
    /// let mut event = Event { id, pubkey, created_at: 4, kind: 1, tags: vec![], content: "hi".into(), sig };
    /// assert_eq!(event.verify(VerifyLevel::Id), Err(VerifyError::Id));
    /// event.id = event.compute_id();
    /// assert_eq!(event.verify(VerifyLevel::Id), Ok(()));
    /// assert_eq!(event.verify(VerifyLevel::Full), Err(VerifyError::Signature));
    /// ```
    ///
    /// # Errors
    /// [`VerifyError`] with the first check that fails. Without the feature `signatures`
    /// [`VerifyLevel::Full`] always fails.
    pub fn verify(&self, level: VerifyLevel) -> Result<(), VerifyError> {
        check((&self.id, &self.pubkey, &self.sig), level, || self.compute_id())
    }
}

impl ByteEvent<'_> {
    /// [`Event::compute_id`]: keys become text on their way into the hash alone.
    pub fn compute_id(&self) -> [u8; 32] {
        canonical_id((&self.pubkey, self.created_at, self.kind), &self.tags, &self.content)
    }

    /// [`Event::verify`], with the same outcome for every event.
    ///
    /// # Errors
    /// As [`Event::verify`].
    pub fn verify(&self, level: VerifyLevel) -> Result<(), VerifyError> {
        check((&self.id, &self.pubkey, &self.sig), level, || self.compute_id())
    }
}

/// The hash that is an event's id.
fn canonical_id(author: (&[u8; 32], i64, u16), tags: &impl Serialize, content: &str) -> [u8; 32] {
    let mut hasher = Sha256::new();
    write_canonical(HashWriter(&mut hasher), author, tags, content);
    hasher.finalize().into()
}

/// Writes the canonical form to what takes all. `tags` serialize as lists of text.
fn write_canonical(
    to: impl std::io::Write,
    (pubkey, created_at, kind): (&[u8; 32], i64, u16),
    tags: &impl Serialize,
    content: &str,
) {
    let mut digits = [0; 64];
    let canonical = (0, hex::encode_array(pubkey, &mut digits), created_at, kind, tags, content);
    serde_json::to_writer(to, &canonical)
        .expect("strings and integers always serialize, and hashing cannot fail");
}

/// Checks as much of an id, a public key and a signature as `level` requires.
fn check(
    (id, pubkey, sig): (&[u8; 32], &[u8; 32], &[u8; 64]),
    level: VerifyLevel,
    compute_id: impl FnOnce() -> [u8; 32],
) -> Result<(), VerifyError> {
    if level >= VerifyLevel::Id && compute_id() != *id {
        return Err(VerifyError::Id);
    }
    if level < VerifyLevel::Full {
        return Ok(());
    }
    #[cfg(feature = "signatures")]
    return verify_signature(id, sig, &parse_pubkey(pubkey)?);
    #[cfg(not(feature = "signatures"))]
    {
        let _ = (pubkey, sig);
        Err(VerifyError::NotBuilt)
    }
}

#[cfg(feature = "signatures")]
pub(super) fn parse_pubkey(pubkey: &[u8; 32]) -> Result<XOnlyPublicKey, VerifyError> {
    XOnlyPublicKey::from_byte_array(*pubkey).map_err(|_| VerifyError::PublicKey)
}

#[cfg(feature = "signatures")]
pub(super) fn verify_signature(
    id: &[u8; 32],
    sig: &[u8; 64],
    key: &XOnlyPublicKey,
) -> Result<(), VerifyError> {
    let signature = Signature::from_byte_array(*sig);
    SECP256K1.verify_schnorr(&signature, id, key).map_err(|_| VerifyError::Signature)
}

struct HashWriter<'a>(&'a mut Sha256);

impl std::io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
