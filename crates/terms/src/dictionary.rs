//! Dictionaries for zstd: the common parts of a format's messages, so that a small message
//! compresses, too.
//!
//! Both ends need the same bytes, so tokens and results name a dictionary by its hash. `corpus
//! train-dictionary` makes dictionaries; one for each format is bundled (`data/dictionaries`).

use std::sync::{LazyLock, Mutex, PoisonError};

use codecs::hex;
use include_dir::{Dir, include_dir};
use sha2::{Digest, Sha256};

static BUNDLED: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../data/dictionaries");

/// A trained zstd dictionary, as a reference to bytes that are never freed. Equal bytes are one
/// dictionary.
///
/// ```
/// use terms::Dictionary;
///
/// let dictionary = Dictionary::bundled("json").unwrap();
/// assert_eq!(Dictionary::hold(dictionary.bytes().to_vec()), dictionary);
/// assert_eq!(dictionary.id().len(), 8);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Dictionary(&'static Held);

#[derive(derive_more::Debug)]
struct Held {
    #[debug("{} bytes", bytes.len())]
    bytes: Vec<u8>,
    sha256: [u8; 32],
}

impl Dictionary {
    /// The bundled dictionary for messages of the format; `data/README.md` has the command that
    /// made it.
    pub fn bundled(format: &str) -> Option<Dictionary> {
        static ALL: LazyLock<Vec<(&str, Dictionary)>> = LazyLock::new(|| {
            let named = BUNDLED.files().filter_map(|file| Some((file.path().file_stem()?.to_str()?, file)));
            named.map(|(name, file)| (name, Dictionary::hold(file.contents().to_vec()))).collect()
        });
        ALL.iter().find(|(of, _)| *of == format).map(|(_, dictionary)| *dictionary)
    }

    /// A dictionary that zstd can read; equal bytes are held once. `wire::dictionary` checks bytes
    /// of users.
    pub fn hold(bytes: Vec<u8>) -> Dictionary {
        static ALL: Mutex<Vec<&'static Held>> = Mutex::new(Vec::new());
        let sha256 = Sha256::digest(&bytes).into();
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = all.iter().find(|held| held.sha256 == sha256) {
            return Dictionary(held);
        }
        let held: &'static Held = Box::leak(Box::new(Held { bytes, sha256 }));
        all.push(held);
        Dictionary(held)
    }

    /// The first four bytes of the SHA-256, which name it in tokens: eight lower-case hex digits.
    pub fn id(self) -> String {
        hex::encode(&self.0.sha256[..4])
    }

    /// SHA-256 of the bytes.
    pub fn sha256(self) -> [u8; 32] {
        self.0.sha256
    }

    /// The bytes, as zstd reads them.
    pub fn bytes(self) -> &'static [u8] {
        &self.0.bytes
    }
}

impl PartialEq for Dictionary {
    fn eq(&self, other: &Dictionary) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Dictionary {}
