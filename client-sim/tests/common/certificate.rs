//! Certificates that nobody else trusts.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A certificate for localhost and its key, in files.
pub(crate) fn certificate(folder: &Path, name: &str) -> [PathBuf; 2] {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files = ["crt", "key"].map(|extension| folder.join(name).with_extension(extension));
    fs::write(&files[0], made.cert.pem()).unwrap();
    fs::write(&files[1], made.signing_key.serialize_pem()).unwrap();
    files
}
