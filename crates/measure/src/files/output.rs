//! Files that a program writes when it ends, tried before it begins.

use std::{
    collections::BTreeSet,
    fs::{self, File, Metadata, OpenOptions, Permissions},
    io::{self, ErrorKind, Seek, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    },
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
};
use tempfile::{NamedTempFile, PersistError};

/// Bytes that a folder on a full disk does not take.
const TRIAL_BYTES: [u8; 4096] = [0; 4096];

/// The most links behind each other, as in Linux (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Why nothing could be written to a path, with the way out.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written: {why}", .path.display())]
pub struct Unwritable {
    path: PathBuf,
    why: String,
}

/// Tries whether a file could be written. Leaves one that is there as it is, and none where none
/// was.
///
/// # Errors
/// [`Unwritable`].
pub fn try_file(path: &Path) -> Result<(), Unwritable> {
    let unwritable = |why: String| Unwritable { path: path.to_owned(), why };
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() || bytes.ends_with(b"/") {
        return Err(unwritable("a file needs a name; give it one".to_owned()));
    }
    let target = behind_links(path);
    let in_folder = try_in(folder_of(&target));
    match fs::metadata(&target) {
        Ok(found) if found.is_dir() => Err(unwritable("it is a folder; name a file in it".to_owned())),
        // At the other end of a pipe or a terminal somebody would notice.
        Ok(found) if !found.is_file() => Ok(()),
        Ok(_) => match (OpenOptions::new().write(true).open(&target), in_folder) {
            (Err(error), _) => Err(unwritable(said(&error))),
            (Ok(_), Err(full)) if is_full(&full) => Err(unwritable(no_place(&target, &full))),
            (Ok(_), _) => Ok(()),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {
            in_folder.map_err(|error| unwritable(no_place(&target, &error)))
        }
        Err(error) => Err(unwritable(match error.kind() {
            ErrorKind::NotADirectory => no_place(&target, &error),
            _ => said(&error),
        })),
    }
}

/// Tries whether a folder could be made, or written into where it is there. Leaves nothing behind.
///
/// # Errors
/// [`Unwritable`].
pub fn try_folder(path: &Path) -> Result<(), Unwritable> {
    let is_there = |folder: &&Path| !folder.as_os_str().is_empty() && folder.exists();
    let folder = path.ancestors().find(is_there).unwrap_or(Path::new("."));
    let why = |error: io::Error| no_place(&folder.join("a file"), &error);
    try_in(folder).map_err(|error| Unwritable { path: path.to_owned(), why: why(error) })
}

/// Writes a file that is whole and on the disk, or stays as it was; only what cannot be replaced,
/// such as a device or a file with several names, is written in place.
///
/// # Errors
/// When it cannot be written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = WholeFile::replacing(path)?;
    file.write_all(bytes)?;
    file.finish()
}

/// Parts of files that are being written, to be removed where the program ends in between.
static PARTS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn parts() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    PARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the parts of all files that are being written, before the program ends at once.
pub fn remove_parts() {
    for part in &*parts() {
        // What is gone already, or cannot be removed, is left.
        let _ = fs::remove_file(part);
    }
}

/// A file under construction, as a part beside its place: it is there once it is finished and
/// whole. A part that is not finished is removed.
#[derive(Debug)]
pub struct WholeFile {
    target: PathBuf,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// Whether it may replace a file.
    Beside(NamedTempFile, bool),
    /// A file that cannot be replaced, or that grows.
    There(File),
}

impl WholeFile {
    /// Begins a file that replaces what is there, with its mode, owner and links.
    ///
    /// # Errors
    /// When nothing could be written there.
    pub fn replacing(path: &Path) -> io::Result<WholeFile> {
        let target = behind_links(path);
        let there = fs::metadata(&target).ok();
        let in_place = there.as_ref().is_some_and(|found| !found.is_file() || found.nlink() > 1);
        if !in_place {
            match beside(&target, there.as_ref()) {
                // A file may be open to writing where its folder is not.
                Err(error) if there.is_some() && is_of_the_folder(&error) => {}
                Err(error) => return Err(error),
                Ok(part) => return Ok(WholeFile { target, place: Place::Beside(part, true) }),
            }
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let is_pipe = there.is_some_and(|found| found.file_type().is_fifo());
        if is_pipe {
            // An open that waits for a reader would wait for ever, and heed no signal.
            options.custom_flags(OFlag::O_NONBLOCK.bits());
        }
        let file = options.open(&target).map_err(|error| match error.raw_os_error() {
            Some(code) if is_pipe && code == Errno::ENXIO as i32 => {
                io::Error::new(error.kind(), "nobody reads this pipe; start its reader first, or name a file")
            }
            _ => error,
        })?;
        if is_pipe {
            fcntl(&file, FcntlArg::F_SETFL(OFlag::empty()))?;
        }
        Ok(WholeFile { target, place: Place::There(file) })
    }

    /// Begins a file that replaces none, not even one that comes meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`], or when nothing could be written there.
    pub fn new(path: &Path) -> io::Result<WholeFile> {
        if path.symlink_metadata().is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        Ok(WholeFile { target: path.to_owned(), place: Place::Beside(beside(path, None)?, false) })
    }

    /// Appends to a file, or creates it.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn growing(path: &Path) -> io::Result<WholeFile> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(WholeFile { target: path.to_owned(), place: Place::There(file) })
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// When it is not whole on the disk, or there is a file that it must not replace.
    pub fn finish(self) -> io::Result<()> {
        let (part, replaces) = match self.place {
            Place::There(file) => return if file.metadata()?.is_file() { file.sync_all() } else { Ok(()) },
            Place::Beside(part, replaces) => (part, replaces),
        };
        part.as_file().sync_all()?;
        parts().remove(part.path());
        let target = self.target;
        let named = if replaces { part.persist(&target) } else { part.persist_noclobber(&target) };
        match named {
            // It may be a mount by itself.
            Err(PersistError { error, mut file })
                if replaces && target.exists() && is_of_the_folder(&error) =>
            {
                file.rewind()?;
                let mut there = OpenOptions::new().write(true).truncate(true).open(&target)?;
                io::copy(&mut file, &mut there)?;
                return there.sync_all();
            }
            Err(unnamed) => return Err(unnamed.error),
            Ok(_) => {}
        }
        // The file is there; not every system syncs a folder.
        let _ = File::open(folder_of(&target)).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.place {
            Place::Beside(part, _) => part.as_file_mut().write(bytes),
            Place::There(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A new file beside this one, as readable as that.
fn beside(target: &Path, there: Option<&Metadata>) -> io::Result<NamedTempFile> {
    if there.is_some() {
        // A file that must not be written must not be replaced.
        OpenOptions::new().write(true).open(target)?;
    }
    let readable = Permissions::from_mode(0o666); // less the umask
    let name = format!(".{}.part-", target.file_name().unwrap_or_default().display());
    let part = tempfile::Builder::new().prefix(&name).permissions(readable).tempfile_in(folder_of(target))?;
    parts().insert(part.path().to_owned());
    if let Some(there) = there {
        let made = part.as_file().metadata()?;
        if (made.uid(), made.gid()) != (there.uid(), there.gid()) {
            fchown(part.as_file(), Some(there.uid()), Some(there.gid()))?;
        }
        part.as_file().set_permissions(there.permissions())?;
    }
    Ok(part)
}

/// Where a file is written by this name: links are followed, also one that leads to none yet.
fn behind_links(path: &Path) -> PathBuf {
    let mut target = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(next) = fs::read_link(&target) else { break };
        target = folder_of(&target).join(next);
    }
    target
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn try_in(folder: &Path) -> io::Result<()> {
    tempfile::tempfile_in(folder)?.write_all(&TRIAL_BYTES)
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

fn is_of_the_folder(error: &io::Error) -> bool {
    use ErrorKind::{CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem | ResourceBusy | CrossesDevices)
}

/// Why there is no place for a file in its folder.
fn no_place(file: &Path, error: &io::Error) -> String {
    let folder = folder_of(file).display();
    match error.kind() {
        _ if file.is_relative() && std::env::current_dir().is_err() => {
            "the working folder was deleted; change to another one (cd)".to_owned()
        }
        ErrorKind::NotFound if folder_of(file).is_dir() => {
            format!("{folder} takes no new files; name another place")
        }
        ErrorKind::NotFound => {
            format!("there is no folder {folder}; make it (mkdir -p), or name another place")
        }
        ErrorKind::NotADirectory => format!("{folder} is not a folder; name another place"),
        _ if is_full(error) => format!("the disk of {folder} is full; make room, or name another place"),
        _ => format!("{} in {folder}; name another place, or allow it", error.kind()),
    }
}

fn said(error: &io::Error) -> String {
    format!("{}; name another file, or allow it", error.kind())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// As `/proc` answers root.
    #[test]
    fn a_folder_that_takes_no_files_is_not_called_missing() {
        let (folder, error) = (tempfile::tempdir().unwrap(), io::Error::from(ErrorKind::NotFound));
        let why = |file: &str| no_place(&folder.path().join(file), &error);
        assert!(why("a").contains("takes no new files"), "{}", why("a"));
        assert!(why("missing/a").contains("there is no folder"), "{}", why("missing/a"));
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_an_error_and_a_reader_gets_everything() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let said = write_whole(&pipe, b"x").unwrap_err().to_string();
        assert!(said.contains("nobody reads this pipe"), "{said}");
        let (bytes, from) = (vec![b'x'; 1 << 20], pipe.clone());
        let reader = std::thread::spawn(move || fs::read(from));
        // The reader's open takes a moment.
        while write_whole(&pipe, &bytes).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(reader.join().unwrap().unwrap(), bytes);
    }

    #[test]
    fn what_could_be_written_is_tried_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (new, old) = (folder.path().join("new"), folder.path().join("old"));
        let (dangling, deep) = (folder.path().join("dangling"), folder.path().join("a/b/c"));
        fs::write(&old, "kept").unwrap();
        symlink("behind", &dangling).unwrap();
        for file in [&new, &old, &dangling, Path::new("/dev/null")] {
            try_file(file).unwrap();
        }
        try_folder(&deep).unwrap();
        try_folder(Path::new("results of no run")).unwrap();
        assert_eq!(names(folder.path()), ["dangling", "old"]);
        assert_eq!(fs::read_to_string(&old).unwrap(), "kept");
    }

    #[test]
    fn a_file_is_replaced_with_its_mode_and_behind_its_links() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        let (twin, dangling) = (folder.path().join("twin"), folder.path().join("dangling"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink("file", &link).unwrap();
        symlink("made", &dangling).unwrap();
        write_whole(&link, b"new").unwrap();
        assert_eq!(
            (fs::read_to_string(&file).unwrap().as_str(), fs::read_link(&link).is_ok()),
            ("new", true)
        );
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
        fs::hard_link(&file, &twin).unwrap();
        write_whole(&file, b"both").unwrap();
        assert_eq!(fs::read_to_string(&twin).unwrap(), "both");
        write_whole(&dangling, b"made").unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("made")).unwrap(), "made");
        write_whole(Path::new("/dev/null"), b"nothing").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(write_whole(folder.path(), b"a folder").is_err());
        assert_eq!(names(folder.path()), ["dangling", "file", "link", "made", "twin"], "no part is left");
    }
}
