//! Files that may be compressed: a published result is some megabytes of JSON, a third of that with
//! gzip.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use flate2::bufread::MultiGzDecoder;

/// Both first bytes of a gzip member (RFC 1952, 2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Upper bound on bytes, of which a few packed ones can claim any number; results are far smaller.
const MAX_UNPACKED_BYTES: u64 = 1 << 30;

/// Reads a file, unpacked if it is compressed with gzip.
///
/// # Errors
/// When it cannot be read, is damaged, or holds more than a gibibyte, packed or not.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    unpacked(BufReader::new(File::open(path)?), MAX_UNPACKED_BYTES)
}

fn unpacked(mut file: impl BufRead, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    if file.fill_buf()?.starts_with(&GZIP_MAGIC) {
        MultiGzDecoder::new(file).take(max_bytes + 1).read_to_end(&mut content)?
    } else {
        file.take(max_bytes + 1).read_to_end(&mut content)?
    };
    if content.len() as u64 > max_bytes {
        return Err(io::Error::other(format!("it holds more than {max_bytes} bytes")));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, read::GzEncoder};

    use super::*;

    fn packed(content: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        GzEncoder::new(content, Compression::default()).read_to_end(&mut packed).unwrap();
        packed
    }

    #[test]
    fn a_bomb_is_refused_and_damage_is_an_error() {
        let million = packed(&vec![b' '; 1_000_000]);
        assert!(million.len() < 2_000);
        assert_eq!(unpacked(&million[..], 1_000_000).unwrap().len(), 1_000_000);
        let error = unpacked(&million[..], 999_999).unwrap_err();
        assert_eq!(error.to_string(), "it holds more than 999999 bytes");
        for end in 2..million.len() {
            assert!(unpacked(&million[..end], 1_000_000).is_err(), "{end} of {} bytes", million.len());
        }
    }
}
