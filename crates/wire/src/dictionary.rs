//! Dictionaries for zstd: the common parts of a format's messages, so that a small message
//! compresses, too.
//!
//! Both ends need the same bytes, so tokens and results name a dictionary by its hash. `corpus
//! train-dictionary` makes dictionaries; one for each format is bundled (`data/dictionaries`).

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    str::FromStr,
    sync::{LazyLock, Mutex, PoisonError},
};

use codecs::Format;
use include_dir::{Dir, include_dir};
use sha2::{Digest, Sha256};
use zstd::zstd_safe::DDict;

/// Nine times the default of zstd's trainer (`zstd --maxdict`, 110 KiB).
const MAX_BYTES: usize = 1 << 20;

/// First bytes of a trained dictionary (RFC 8878 §5). zstd accepts other bytes as a dictionary
/// without entropy tables.
const MAGIC: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];

static BUNDLED: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../data/dictionaries");

/// A trained zstd dictionary, as a reference to bytes that are never freed. Equal bytes are one
/// dictionary.
///
/// ```
/// use wire::{Dictionary, DictionaryId};
///
/// let dictionary = Dictionary::bundled("json".parse().unwrap()).unwrap();
/// assert_eq!(Dictionary::new(dictionary.bytes().to_vec()).unwrap(), dictionary);
/// assert_eq!(dictionary.id().to_string().parse::<DictionaryId>(), Ok(dictionary.id()));
/// assert!(Dictionary::new(b"no dictionary".to_vec()).is_err());
/// ```
#[derive(Clone, Copy)]
pub struct Dictionary(&'static Held);

struct Held {
    bytes: Vec<u8>,
    sha256: [u8; 32],
}

/// The first four bytes of a dictionary's SHA-256, which name it in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DictionaryId([u8; 4]);

/// Why a dictionary cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DictionaryError {
    /// The file cannot be read.
    #[error("cannot read the dictionary {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Other first bytes.
    #[error(
        "not a trained zstd dictionary, which begins with 37 a4 30 ec; corpus train-dictionary makes one"
    )]
    Magic,
    /// Over 1 MiB.
    #[error("a dictionary of {bytes} bytes; at most {MAX_BYTES} are allowed")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// Bytes that zstd refuses.
    #[error("a damaged dictionary: zstd cannot read its tables")]
    Damaged,
}

impl Dictionary {
    /// A dictionary of these bytes.
    ///
    /// # Errors
    /// [`DictionaryError`] for bytes that zstd's trainer did not write, or more than 1 MiB.
    pub fn new(bytes: Vec<u8>) -> Result<Dictionary, DictionaryError> {
        if bytes.len() > MAX_BYTES {
            return Err(DictionaryError::TooLarge { bytes: bytes.len() as u64 });
        }
        if !bytes.starts_with(&MAGIC) {
            return Err(DictionaryError::Magic);
        }
        DDict::try_create(&bytes).ok_or(DictionaryError::Damaged)?;
        Ok(Dictionary::hold(bytes))
    }

    /// A dictionary from its file.
    ///
    /// # Errors
    /// [`DictionaryError`]; a file over 1 MiB is not read.
    pub fn read(path: &Path) -> Result<Dictionary, DictionaryError> {
        let failed = |source| DictionaryError::Read { path: path.to_owned(), source };
        let bytes = fs::metadata(path).map_err(failed)?.len();
        if bytes > MAX_BYTES as u64 {
            return Err(DictionaryError::TooLarge { bytes });
        }
        Dictionary::new(fs::read(path).map_err(failed)?)
    }

    /// The bundled dictionary for messages of the format; `data/README.md` has the command that
    /// made it.
    pub fn bundled(format: Format) -> Option<Dictionary> {
        static ALL: LazyLock<Vec<(Format, Dictionary)>> = LazyLock::new(|| {
            let file = |format: Format| BUNDLED.get_file(format!("{}.zdict", format.name()));
            let held = |format| Some((format, Dictionary::hold(file(format)?.contents().to_vec())));
            Format::all().filter_map(held).collect()
        });
        ALL.iter().find(|(of, _)| *of == format).map(|(_, dictionary)| *dictionary)
    }

    /// Holds equal bytes once.
    fn hold(bytes: Vec<u8>) -> Dictionary {
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

    /// The id, for tokens.
    pub fn id(self) -> DictionaryId {
        let [a, b, c, d, ..] = self.0.sha256;
        DictionaryId([a, b, c, d])
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

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Dictionary({}, {} bytes)", self.id(), self.bytes().len())
    }
}

/// Eight lower-case hex digits.
impl fmt::Display for DictionaryId {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&codecs::hex::encode(&self.0))
    }
}

/// Text that is not eight lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a dictionary is named by eight lower-case hex digits")]
pub struct NotADictionaryId;

impl FromStr for DictionaryId {
    type Err = NotADictionaryId;

    fn from_str(text: &str) -> Result<Self, NotADictionaryId> {
        codecs::hex::decode_array(text.as_bytes()).map(DictionaryId).ok_or(NotADictionaryId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_a_bundled_dictionary_of_its_own() {
        let all: Vec<_> = Format::all()
            .map(|format| Dictionary::bundled(format).unwrap_or_else(|| panic!("{format} has none")))
            .collect();
        for (n, dictionary) in all.iter().enumerate() {
            assert!(!all[..n].contains(dictionary), "{dictionary:?} twice");
            assert_eq!(Dictionary::new(dictionary.bytes().to_vec()).unwrap(), *dictionary);
        }
    }

    #[test]
    fn a_name_is_eight_digits_and_nothing_else() {
        let id = Dictionary::bundled(Format::JSON).unwrap().id();
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "1234567", "123456789", "1234567G", "1234567F"] {
            assert_eq!(text.parse::<DictionaryId>(), Err(NotADictionaryId), "{text}");
        }
    }

    #[test]
    fn what_is_no_dictionary_is_refused_with_what_would_be() {
        let bundled = Dictionary::bundled(Format::JSON).unwrap().bytes();
        assert!(matches!(Dictionary::new(b"{}".to_vec()), Err(DictionaryError::Magic)));
        assert!(matches!(Dictionary::new(bundled[..60].to_vec()), Err(DictionaryError::Damaged)));
        assert!(matches!(
            Dictionary::new(vec![0; MAX_BYTES + 1]),
            Err(DictionaryError::TooLarge { bytes: 1_048_577 })
        ));
        let error = Dictionary::read(Path::new("no/such/file")).unwrap_err().to_string();
        assert_eq!(error, "cannot read the dictionary no/such/file");
    }
}
