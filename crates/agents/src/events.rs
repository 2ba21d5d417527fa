//! The file of a run's events: the coordinator puts it into an object store, agents that have not
//! these events fetch it.

use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
};

use async_nats::{
    Client,
    jetstream::{
        self,
        object_store::{Config, ObjectMetadata},
        stream::StorageType,
    },
};
use tempfile::NamedTempFile;
use tokio::{
    fs,
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::{
    attend::find,
    server::{NatsError, Server, reach},
    spec::{CorpusFile, RunId, Spec, file_sha256},
    times::{KEPT, TRAVEL},
};

/// Bytes of a message: several fit into what a server takes by default.
const CHUNK_BYTES: usize = 128 << 10;

/// The one object in the bucket of a run.
const NAME: &str = "events";

/// Room for each message's name and length, 1/64 of its bytes, and for the object's description.
const MORE_BYTES: u64 = 64 << 10;

/// Puts the file into a bucket of its own. Its bytes are stated, as accounts may demand, and on disk.
pub(crate) async fn store(client: &Client, spec: &Spec, file: &Path) -> Result<(), NatsError> {
    let jetstream = jetstream::new(client.clone());
    // What a coordinator of this name left that was killed.
    forget(client, spec).await;
    let putting = async {
        let bytes = fs::metadata(file).await?.len();
        let config = Config {
            bucket: spec.run.bucket(),
            description: Some("Events of a run, while it lasts".to_owned()),
            max_age: KEPT,
            max_bytes: i64::try_from(bytes + bytes / 64 + MORE_BYTES)?,
            storage: StorageType::File,
            num_replicas: 1,
            ..Config::default()
        };
        let store = jetstream.create_object_store(config).await?;
        let meta = ObjectMetadata {
            name: NAME.to_owned(),
            chunk_size: Some(CHUNK_BYTES),
            ..ObjectMetadata::default()
        };
        store.put(meta, &mut fs::File::open(file).await?).await?;
        Ok::<_, Box<dyn Error + Send + Sync>>(())
    };
    let what = "store the run's events";
    match timeout(TRAVEL, putting).await {
        Ok(stored) => stored.map_err(|error| NatsError::server(what, &error)),
        Err(late) => Err(NatsError::server(what, &late)),
    }
}

/// Deletes the bucket. What fails is forgotten by age.
pub(crate) async fn forget(client: &Client, spec: &Spec) {
    let _ = jetstream::new(client.clone()).delete_object_store(spec.run.bucket()).await;
}

/// Waits for the run and fetches the file of its events into a folder, where it is kept under its
/// hash for later runs. Returns the file, or `None` when the run has the events of the fingerprint
/// `own_sha256`, or states no file.
///
/// The caller checks the file's content: a coordinator may state any.
///
/// # Errors
/// When the server cannot be reached or does not have what the run states.
pub async fn fetch_corpus(
    server: &Server,
    run: &RunId,
    own_sha256: &str,
    folder: &Path,
) -> Result<Option<PathBuf>, NatsError> {
    let connection = reach(server, &format!("events, run {run}")).await?;
    let fetching = async {
        let spec = find(&connection, run).await?.spec;
        let Some(file) = spec.corpus_file.filter(|_| spec.identity.corpus_sha256 != own_sha256) else {
            return Ok(None);
        };
        file.check().map_err(|error| NatsError::Refused(error.to_string()))?;
        let path = folder.join(file.name());
        if !is_whole(&path, &file) {
            let fetched = timeout(TRAVEL, fetch(&connection.client, run, &file, &path)).await;
            fetched.unwrap_or_else(|late| Err(late.into())).map_err(|error| {
                let bytes = file.bytes;
                NatsError::Refused(format!(
                    "{error}: the run's events ({bytes} bytes) do not arrive. Copy the file to this machine and start \
                     the agent with --corpus"
                ))
            })?;
        }
        Ok(Some(path))
    };
    tokio::select! {
        fetched = fetching => fetched,
        error = connection.ends() => Err(error),
    }
}

/// Whether a file is the one that the run states.
fn is_whole(path: &Path, file: &CorpusFile) -> bool {
    file_sha256(path).is_ok_and(|(sha256, bytes)| bytes == file.bytes && sha256 == file.sha256)
}

async fn fetch(
    client: &Client,
    run: &RunId,
    file: &CorpusFile,
    path: &Path,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let store = jetstream::new(client.clone()).get_object_store(run.bucket()).await?;
    // Whatever the server has, no more than the run states is read.
    let mut object = store.get(NAME).await?.take(file.bytes + 1);
    // Becomes the file once it is whole.
    let part = NamedTempFile::new_in(path.parent().unwrap_or(path))?;
    let mut written = fs::File::from_std(part.reopen()?);
    tokio::io::copy(&mut object, &mut written).await?;
    written.flush().await?;
    if !is_whole(part.path(), file) {
        return Err(io::Error::other("they are not what the run states").into());
    }
    part.persist(path)?;
    Ok(())
}
