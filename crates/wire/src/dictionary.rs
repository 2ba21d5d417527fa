//! Dictionaries of users, checked.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use terms::Dictionary;
use zstd::zstd_safe::DDict;

/// Nine times the default of zstd's trainer (`zstd --maxdict`, 110 KiB).
const MAX_BYTES: usize = 1 << 20;

/// First bytes of a trained dictionary (RFC 8878 §5). zstd accepts other bytes as a dictionary
/// without entropy tables.
const MAGIC: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];

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
    #[error("a dictionary of more than {MAX_BYTES} bytes")]
    TooLarge,
    /// Bytes that zstd refuses.
    #[error("a damaged dictionary: zstd cannot read its tables")]
    Damaged,
}

/// A dictionary of these bytes.
///
/// # Errors
/// [`DictionaryError`] for bytes that zstd's trainer did not write, or more than 1 MiB.
pub fn of(bytes: Vec<u8>) -> Result<Dictionary, DictionaryError> {
    if bytes.len() > MAX_BYTES {
        return Err(DictionaryError::TooLarge);
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
/// [`DictionaryError`]; no more than 1 MiB is read.
pub fn read(path: &Path) -> Result<Dictionary, DictionaryError> {
    let failed = |source| DictionaryError::Read { path: path.to_owned(), source };
    let (file, mut bytes) = (File::open(path).map_err(failed)?, Vec::new());
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    of(bytes)
}

#[cfg(test)]
mod tests {
    use codecs::Format;

    use super::*;

    #[test]
    fn every_format_has_a_bundled_dictionary_of_its_own() {
        let all: Vec<_> = Format::all()
            .map(|format| Dictionary::bundled(format.name()).unwrap_or_else(|| panic!("{format} has none")))
            .collect();
        for (n, dictionary) in all.iter().enumerate() {
            assert!(!all[..n].contains(dictionary), "{dictionary:?} twice");
            assert_eq!(of(dictionary.bytes().to_vec()).unwrap(), *dictionary);
        }
    }

    #[test]
    fn what_is_no_dictionary_is_refused_with_what_would_be() {
        let bundled = Dictionary::bundled("json").unwrap().bytes();
        assert!(matches!(of(b"{}".to_vec()), Err(DictionaryError::Magic)));
        assert!(matches!(of(bundled[..60].to_vec()), Err(DictionaryError::Damaged)));
        assert!(matches!(of(vec![0; MAX_BYTES + 1]), Err(DictionaryError::TooLarge)));
        let error = read(Path::new("no/such/file")).unwrap_err().to_string();
        assert_eq!(error, "cannot read the dictionary no/such/file");
    }
}
