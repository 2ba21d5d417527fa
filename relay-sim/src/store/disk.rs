//! Which events outlive the relay? Those in the directory of `--store`.
//!
//! One redb file holds a row for each event, in the order in which the relay accepted them, as the
//! format at rest writes it: a connection that speaks that format is sent the row as it is. Rows
//! are all that is kept. At the start they are offered to [`super::Store`] again, one by one, so
//! that the rules of NIP-01, 09 and 40 stand in one place (docs/decisions/store.md).

use std::{
    ffi::OsStr,
    fmt, fs, io,
    io::Read,
    path::{Path, PathBuf},
    sync::{PoisonError, RwLock},
};

use codecs::{Codec, Event, Format, Implementation};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

const FILE: &str = "events.redb";
/// A file of this name has no events yet: a store appears under its own name when it is whole.
const NEW_FILE: &str = "events.redb.new";
/// The first bytes of every redb file.
const MAGIC: &[u8] = b"redb";

const ABOUT: TableDefinition<'_, &str, &str> = TableDefinition::new("about");
const EVENTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("events");

/// The meaning of the tables. Any change raises it.
const LAYOUT: &str = "1";

/// Pages that redb keeps besides the kernel's, in bytes: enough for the inner nodes of the trees.
const CACHE_BYTES: usize = 16 << 20;

/// Where a relay keeps its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// A directory that holds a store or nothing. It is made where it does not exist.
    pub directory: PathBuf,
    /// The format of the rows; `None` for what the directory holds, and JSON in a new one.
    pub at_rest: Option<Format>,
}

/// Why a store cannot be used. Each names the file and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The directory cannot be made or read.
    #[error("cannot use {} as --store: {why}; name another directory", directory.display())]
    Directory { directory: PathBuf, why: String },
    /// The directory holds something else.
    #[error("{} is no store of relay-sim; name an empty directory with --store", path.display())]
    Foreign { path: PathBuf },
    /// The file is damaged.
    #[error("{} is torn ({why}); put a copy in its place, or name an empty directory with --store", file.display())]
    Torn { file: PathBuf, why: String },
    /// Another version wrote the file.
    #[error("{} has layout {found}, and this version reads {LAYOUT}; use the version that wrote it, or name an empty \
             directory with --store", file.display())]
    Layout { file: PathBuf, found: String },
    /// The directory holds another format than was asked for.
    #[error("{} holds events as {held}, not as {asked}; leave --at-rest out, or name another directory with --store",
            file.display())]
    AtRest { file: PathBuf, held: String, asked: Format },
    /// Another relay has the file open.
    #[error("{} is in use; stop the other relay, or name another directory with --store", file.display())]
    InUse { file: PathBuf },
    /// The events do not fit into memory.
    #[error("the index of {} does not fit into --store-bytes; raise it", file.display())]
    TooLarge { file: PathBuf },
    /// The system refused an operation: the disk is full, writing is not permitted, or worse.
    #[error("cannot read or write {}: {why}; check free space and permissions", file.display())]
    Failed { file: PathBuf, why: String },
}

/// The open file of a store.
pub(crate) struct Disk {
    file: PathBuf,
    format: Format,
    codec: &'static dyn Codec,
    /// `None` if reopening failed. After a failed write redb refuses everything, reads included, until it
    /// is reopened.
    database: RwLock<Option<Database>>,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("file", &self.file).field("format", &self.format).finish_non_exhaustive()
    }
}

impl Disk {
    /// Opens the store of a directory, or makes one. Every page is checked against its checksum.
    pub(crate) fn open(config: &StoreConfig, implementation: Implementation) -> Result<Disk, StoreError> {
        let directory = &config.directory;
        let file = directory.join(FILE);
        let unusable = |error: io::Error| cannot_use(directory, &error);
        fs::create_dir_all(directory).map_err(unusable)?;
        if !file.exists() {
            make(directory, config.at_rest.unwrap_or(Format::JSON))?;
        }
        let mut magic = Vec::new();
        fs::File::open(&file).and_then(|f| f.take(4).read_to_end(&mut magic)).map_err(unusable)?;
        if magic.is_empty() {
            return Err(StoreError::Torn { file, why: "it is empty".to_owned() });
        } else if magic != MAGIC {
            return Err(StoreError::Foreign { path: file });
        }
        let database = open(&file, true)?;
        let held = check(&file, &database, config.at_rest)?;
        let codec = held.codec(implementation).unwrap_or(held.spec().library);
        Ok(Disk { file, format: held, codec, database: RwLock::new(Some(database)) })
    }

    /// The format of the rows.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// The codec of the rows.
    pub(crate) fn codec(&self) -> &'static dyn Codec {
        self.codec
    }

    /// The event of a row.
    pub(crate) fn decode<'b>(&self, number: u64, bytes: &'b [u8]) -> Result<Event<'b>, StoreError> {
        let torn = |error| self.torn(format!("row {number} is no {} event: {error}", self.format));
        self.codec.decode_event(bytes).map_err(torn)
    }

    fn torn(&self, why: String) -> StoreError {
        StoreError::Torn { file: self.file.clone(), why }
    }

    /// The error where the events do not fit into memory.
    pub(crate) fn too_large(&self) -> StoreError {
        StoreError::TooLarge { file: self.file.clone() }
    }

    /// Reads all rows in their order.
    pub(crate) fn rows(
        &self,
        mut visit: impl FnMut(u64, &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.with(|database| {
            let table = database.begin_read()?.open_table(EVENTS)?;
            for row in table.iter()? {
                let (number, bytes) = row?;
                if let Err(stop) = visit(number.value(), bytes.value()) {
                    return Ok(Err(stop));
                }
            }
            Ok(Ok(()))
        })?
    }

    /// Reads one row.
    pub(crate) fn read<R>(&self, number: u64, take: impl FnOnce(&[u8]) -> R) -> Result<R, StoreError> {
        let taken = self.with(|database| {
            let table = database.begin_read()?.open_table(EVENTS)?;
            Ok(table.get(number)?.map(|bytes| take(bytes.value())))
        })?;
        taken.ok_or_else(|| self.torn(format!("row {number} is missing")))
    }

    /// Removes rows and adds others, all or none. When this returns, they have reached the disk.
    pub(crate) fn commit(&self, removed: &[u64], added: &[(u64, &[u8])]) -> Result<(), StoreError> {
        if removed.is_empty() && added.is_empty() {
            return Ok(());
        }
        let done = self.with(|database| {
            let transaction = database.begin_write()?;
            {
                let mut table = transaction.open_table(EVENTS)?;
                for number in removed {
                    table.remove(number)?;
                }
                for (number, bytes) in added {
                    table.insert(number, bytes)?;
                }
            }
            Ok(transaction.commit()?)
        });
        if done.is_err() {
            self.reopen();
        }
        done
    }

    /// Opens the file again as the last commit left it.
    fn reopen(&self) {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        drop(database.take());
        match open(&self.file, false) {
            Ok(again) => *database = Some(again),
            Err(error) => tracing::error!(%error, "the store is lost until the relay starts anew"),
        }
    }

    fn with<R>(&self, work: impl FnOnce(&Database) -> Result<R, redb::Error>) -> Result<R, StoreError> {
        let failed = |why| StoreError::Failed { file: self.file.clone(), why };
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let database = database.as_ref().ok_or_else(|| failed("it could not be opened again".to_owned()))?;
        work(database).map_err(|error| failed(error.to_string()))
    }
}

fn open(file: &Path, check: bool) -> Result<Database, StoreError> {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(check);
    builder.open(file).map_err(|error| unreadable(file, error))
}

/// The error about a file that was not read yet.
fn unreadable(file: &Path, error: impl Into<redb::Error>) -> StoreError {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    use redb::Error;
    let file = file.to_owned();
    match error.into() {
        Error::DatabaseAlreadyOpen | Error::LockProtocolMismatch => StoreError::InUse { file },
        Error::UpgradeRequired(version) => {
            StoreError::Layout { file, found: format!("redb file format {version}") }
        }
        // Another program's redb file has no such table.
        Error::TableDoesNotExist(_)
        | Error::TableTypeMismatch { .. }
        | Error::TableIsMultimap(_)
        | Error::TypeDefinitionChanged { .. } => StoreError::Foreign { path: file },
        Error::Io(why)
            if matches!(why.kind(), PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull) =>
        {
            StoreError::Failed { file, why: why.to_string() }
        }
        other => StoreError::Torn { file, why: other.to_string() },
    }
}

/// Why nothing can be kept in a directory.
fn cannot_use(directory: &Path, error: &io::Error) -> StoreError {
    let why = match error.kind() {
        io::ErrorKind::AlreadyExists => "it is a file".to_owned(),
        io::ErrorKind::NotADirectory => "what it stands in is no directory".to_owned(),
        _ => error.to_string(),
    };
    StoreError::Directory { directory: directory.to_owned(), why }
}

/// Makes an empty store in an empty directory.
fn make(directory: &Path, at_rest: Format) -> Result<(), StoreError> {
    let unusable = |error: io::Error| cannot_use(directory, &error);
    for entry in fs::read_dir(directory).map_err(unusable)? {
        let entry = entry.map_err(unusable)?;
        if entry.file_name() != OsStr::new(NEW_FILE) {
            return Err(StoreError::Foreign { path: entry.path() });
        }
        fs::remove_file(entry.path()).map_err(unusable)?;
    }
    let file = directory.join(NEW_FILE);
    let write = || -> Result<(), redb::Error> {
        let database = Database::create(&file)?;
        let transaction = database.begin_write()?;
        {
            let mut about = transaction.open_table(ABOUT)?;
            about.insert("layout", LAYOUT)?;
            about.insert("at_rest", at_rest.name())?;
            transaction.open_table(EVENTS)?;
        }
        transaction.commit()?;
        Ok(database.close()?)
    };
    write().map_err(|why| StoreError::Failed { file: file.clone(), why: why.to_string() })?;
    fs::rename(&file, directory.join(FILE)).map_err(unusable)?;
    // The new name is durable with its directory.
    fs::File::open(directory).and_then(|directory| directory.sync_all()).map_err(unusable)
}

/// The format that a store holds, once its layout is known and the format is the one asked for.
fn check(file: &Path, database: &Database, asked: Option<Format>) -> Result<Format, StoreError> {
    let read = |name: &str| -> Result<String, StoreError> {
        let read = || -> Result<_, redb::Error> {
            let table = database.begin_read()?.open_table(ABOUT)?;
            Ok(table.get(name)?.map(|value| value.value().to_owned()))
        };
        let value = read().map_err(|error| unreadable(file, error))?;
        value.ok_or_else(|| StoreError::Foreign { path: file.to_owned() })
    };
    let layout = read("layout")?;
    if layout != LAYOUT {
        return Err(StoreError::Layout { file: file.to_owned(), found: layout });
    }
    let held = read("at_rest")?;
    match (held.parse::<Format>(), asked) {
        (Ok(known), None) => Ok(known),
        (Ok(known), Some(asked)) if known == asked => Ok(known),
        (_, Some(asked)) => Err(StoreError::AtRest { file: file.to_owned(), held, asked }),
        (Err(_), None) => {
            Err(StoreError::Torn { file: file.to_owned(), why: format!("unknown format {held:?}") })
        }
    }
}

#[cfg(test)]
mod tests {
    use redb::DatabaseError;

    use super::*;

    #[test]
    fn only_a_damaged_file_is_called_torn() {
        let io = |kind: io::ErrorKind| DatabaseError::from(io::Error::from(kind));
        let cases = [
            (DatabaseError::DatabaseAlreadyOpen, "is in use; stop the other relay"),
            (DatabaseError::LockProtocolMismatch, "is in use; stop the other relay"),
            (DatabaseError::UpgradeRequired(2), "has layout redb file format 2, and this version reads"),
            (io(io::ErrorKind::PermissionDenied), "check free space and permissions"),
            (io(io::ErrorKind::ReadOnlyFilesystem), "check free space and permissions"),
            (io(io::ErrorKind::StorageFull), "check free space and permissions"),
            (io(io::ErrorKind::UnexpectedEof), "is torn"),
            (DatabaseError::RepairAborted, "is torn"),
        ];
        for (error, says) in cases {
            let error = unreadable(Path::new("events.redb"), error).to_string();
            assert!(error.contains(says) && error.contains("events.redb"), "{error}");
        }
    }

    #[test]
    fn the_redb_file_of_another_program_is_foreign() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(FILE);
        let table: TableDefinition<'_, u64, u64> = TableDefinition::new("others");
        let of_another_type: TableDefinition<'_, u64, u64> = TableDefinition::new("about");
        for table in [table, of_another_type] {
            let database = Database::create(&file).unwrap();
            let transaction = database.begin_write().unwrap();
            transaction.open_table(table).unwrap();
            transaction.commit().unwrap();
            drop(database);
            let config = StoreConfig { directory: directory.path().to_owned(), at_rest: None };
            let error = Disk::open(&config, Implementation::Library).unwrap_err();
            assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
        }
    }
}
