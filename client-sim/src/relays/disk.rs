//! What a relay's folder takes up on its disk.

use std::{
    collections::HashSet,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Files that are looked at; a folder with more has no known size.
const MOST_FILES: usize = 1 << 20;

/// Unit of `st_blocks` (stat(3type)), in bytes.
const BLOCK: u64 = 512;

/// Bytes of the blocks of all files in a folder, as du(1) counts them, without the folders: a sparse
/// file takes up what was written, one with several names counts once, no link is followed. `None`
/// where a part of it cannot be read.
pub(crate) fn stored_bytes(folder: &Path) -> Option<u64> {
    let (mut open, mut seen, mut bytes): (Vec<PathBuf>, _, u64) =
        (vec![folder.to_owned()], HashSet::new(), 0);
    let mut files = 0;
    folder.is_dir().then_some(())?;
    while let Some(folder) = open.pop() {
        for entry in there(fs::read_dir(&folder))?.into_iter().flatten() {
            let path = entry.ok()?.path();
            let Some(entry) = there(fs::symlink_metadata(&path))? else { continue };
            files += 1;
            if files > MOST_FILES {
                return None;
            }
            if entry.is_dir() {
                open.push(path);
            } else if entry.nlink() < 2 || seen.insert((entry.dev(), entry.ino())) {
                bytes = bytes.saturating_add(entry.blocks().saturating_mul(BLOCK));
            }
        }
    }
    Some(bytes)
}

/// What is there; a relay may remove a file meanwhile. `None` where it cannot be read.
fn there<T>(found: io::Result<T>) -> Option<Option<T>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(None),
        found => found.ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_count_once_by_what_they_take_up_and_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        assert_eq!(stored_bytes(folder.path()), Some(0));
        fs::create_dir(path("db")).unwrap();
        fs::write(path("db/data"), vec![1; 100_000]).unwrap();
        fs::hard_link(path("db/data"), path("db/backup")).unwrap();
        symlink("/usr", path("outside")).unwrap();
        symlink(folder.path(), path("db/around")).unwrap();
        fs::File::create(path("sparse")).unwrap().set_len(1 << 40).unwrap();
        let bytes = stored_bytes(folder.path()).unwrap();
        assert!((100_000..300_000).contains(&bytes), "{bytes}");
        for none in ["db/data", "missing"] {
            assert_eq!(stored_bytes(&path(none)), None, "{none} is no folder");
        }
    }
}
