//! Files that travel: the coordinator puts the file of a run's events into an object store, agents
//! that have not these events fetch it.

use std::{
    error::Error,
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use async_nats::jetstream::{
    self,
    object_store::{self, ObjectMetadata, ObjectStore},
    stream::{DirectGetErrorKind, StorageType},
};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;
use tokio::time::timeout;

use super::{
    KEPT, Names, NatsError, Server,
    attend::{find, reach},
};
use crate::spec::{CorpusFile, RunId, file_sha256, hex};

/// The bucket of files.
const FILES: &str = "nsim-files";

/// For a file to be put or fetched: an agent has a minute to claim its slot.
const TRAVELS_WITHIN: Duration = Duration::from_secs(60);

/// Bytes of a message: several records of a run fit into what a server takes by default.
const CHUNK_BYTES: usize = 128 << 10;

/// The file of a run's events, in the object store while the run lasts. It bears the name of the
/// run's start, so that no other run replaces it under an agent that reads.
pub(super) struct EventsFile {
    store: ObjectStore,
    name: String,
}

impl EventsFile {
    /// Puts the file.
    pub(super) async fn put(
        jetstream: &jetstream::Context,
        names: &Names,
        file: &Path,
    ) -> Result<EventsFile, NatsError> {
        let name = names.header.clone();
        let meta =
            ObjectMetadata { name: name.clone(), chunk_size: Some(CHUNK_BYTES), ..ObjectMetadata::default() };
        let putting = async {
            let mut file = tokio::fs::File::open(file).await?;
            let store = bucket(jetstream).await?;
            store.put(meta, &mut file).await?;
            Ok::<_, Box<dyn Error + Send + Sync>>(store)
        };
        let failed = NatsError::server("store the run's events");
        match timeout(TRAVELS_WITHIN, putting).await {
            Ok(Ok(store)) => Ok(EventsFile { store, name }),
            Ok(Err(error)) => Err(failed(error)),
            Err(late) => Err(failed(late.into())),
        }
    }

    /// Forgets the file. What fails is forgotten by age.
    pub(super) async fn remove(&self) {
        let _ = self.store.delete(&self.name).await;
    }
}

/// Opens the bucket, and makes it first on a server that has none. On disk, because files are
/// longer than everything else of a run.
async fn bucket(jetstream: &jetstream::Context) -> Result<ObjectStore, Box<dyn Error + Send + Sync>> {
    if let Ok(store) = jetstream.get_object_store(FILES).await {
        return Ok(store);
    }
    let config = object_store::Config {
        bucket: FILES.to_owned(),
        description: Some("Files of events, while their runs last".to_owned()),
        max_age: KEPT,
        storage: StorageType::File,
        num_replicas: 1,
        ..object_store::Config::default()
    };
    Ok(jetstream.create_object_store(config).await?)
}

/// Waits for the run and fetches the file of its events into a folder, where it is kept under its
/// hash for later runs. Returns the file, or `None` when the run has the events of the fingerprint
/// `own_sha256`, or states no file.
///
/// The caller checks the file's content: a coordinator may state any.
///
/// # Errors
/// When the server cannot be reached, or the file is too large, of another hash, or not there.
pub async fn fetch_corpus(
    server: &Server,
    run: &RunId,
    own_sha256: &str,
    folder: &Path,
) -> Result<Option<PathBuf>, NatsError> {
    let connection = reach(server, &format!("an agent's events, run {run}")).await?;
    let jetstream = connection.jetstream();
    let fetching = async {
        let (_, spec) = find(&jetstream, run).await?;
        let Some(file) = &spec.corpus_file else { return Ok::<_, NatsError>(None) };
        if spec.identity.corpus_sha256 == own_sha256 {
            return Ok(None);
        }
        file.check().map_err(|error| NatsError::Refused(error.to_string()))?;
        let path = folder.join(file.name());
        if !is_whole(&path, file) {
            let names = Names::new(&spec);
            let receiving = receive(&jetstream, &names, file, folder, &path);
            timeout(TRAVELS_WITHIN, receiving).await.unwrap_or_else(|_| Err(late(file)))?;
        }
        Ok(Some(path))
    };
    tokio::select! {
        fetched = fetching => fetched,
        error = connection.ends() => Err(error),
    }
}

/// Whether the file is here from an earlier run.
fn is_whole(path: &Path, file: &CorpusFile) -> bool {
    file_sha256(path).is_ok_and(|(sha256, bytes)| bytes == file.bytes && sha256 == file.sha256)
}

/// Reads the file message by message, each by its subject and sequence: an agent needs no right but
/// to read, and the server keeps nothing for it.
async fn receive(
    jetstream: &jetstream::Context,
    names: &Names,
    file: &CorpusFile,
    folder: &Path,
    path: &Path,
) -> Result<(), NatsError> {
    let refused = |what: String| NatsError::Refused(format!("the run's events: {what}"));
    let store = jetstream.get_object_store(FILES).await;
    let store = store.map_err(|error| refused(format!("there is no bucket {FILES}: {error}")))?;
    let found = store.info(&names.header).await.map_err(|error| refused(error.to_string()))?;
    if found.size as u64 != file.bytes {
        return Err(refused(format!("{} bytes are stored where the run states {}", found.size, file.bytes)));
    }
    let stream = jetstream.get_stream(format!("OBJ_{FILES}")).await;
    let stream = stream.map_err(|error| refused(error.to_string()))?;
    let subject = format!("$O.{FILES}.C.{}", found.nuid);
    let unwritten = |error: io::Error| refused(format!("cannot write {}: {error}", path.display()));
    // Becomes the file once it is whole.
    let mut part = NamedTempFile::new_in(folder).map_err(unwritten)?;
    let (mut hash, mut arrived, mut next) = (Sha256::new(), 0, None);
    while arrived < file.bytes {
        let chunk = match stream.direct_get_next_for_subject(&subject, next).await {
            Ok(chunk) => chunk,
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => {
                return Err(refused(format!("they end after {arrived} of {} bytes", file.bytes)));
            }
            Err(error) => return Err(refused(error.to_string())),
        };
        arrived += chunk.payload.len() as u64;
        if arrived > file.bytes {
            return Err(refused(format!("they go on after the {} bytes that the run states", file.bytes)));
        }
        hash.update(&chunk.payload);
        part.write_all(&chunk.payload).map_err(unwritten)?;
        next = Some(chunk.sequence + 1);
    }
    let sha256 = hex(&hash.finalize());
    if sha256 != file.sha256 {
        return Err(refused(format!("their SHA-256 is {sha256} where the run states {}", file.sha256)));
    }
    part.persist(path).map_err(|error| unwritten(error.error))?;
    Ok(())
}

fn late(file: &CorpusFile) -> NatsError {
    NatsError::Refused(format!(
        "the run's events ({} bytes) did not arrive within {} s: copy the file to this machine and start the \
         agent with --corpus",
        file.bytes,
        TRAVELS_WITHIN.as_secs()
    ))
}
