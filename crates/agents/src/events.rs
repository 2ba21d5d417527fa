//! The file of a run's events. The coordinator puts it into an object store. Agents without these events
//! fetch it.

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
    spec::{RunId, Spec},
    times::{KEPT, TRAVEL},
};

/// Largest file of events that travels: some 100,000 events, compressed. Over 10 Mbit/s an agent
/// has it within the minute for claiming a slot.
pub const CORPUS_FILE_BYTES: u64 = 64 << 20;

/// Bytes of a message: several fit into what a server takes by default.
const CHUNK_BYTES: usize = 128 << 10;

/// Room for each message's name and length, 1/64 of its bytes, and for the object's description.
const MORE_BYTES: u64 = 64 << 10;

/// Puts the file into a bucket of its own. Its bytes are stated, as accounts may demand, and on disk.
pub(crate) async fn store(client: &Client, spec: &Spec, file: &Path) -> Result<(), NatsError> {
    let jetstream = jetstream::new(client.clone());
    // What a coordinator of this name left that was killed.
    forget(client, spec).await;
    let putting = async {
        let bytes = fs::metadata(file).await?.len();
        if bytes > CORPUS_FILE_BYTES {
            let why = format!(
                "{} has {bytes} bytes, and at most {CORPUS_FILE_BYTES} travel (`corpus convert` compresses it)",
                file.display()
            );
            return Err(why.into());
        }
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
            name: spec.corpus_file().ok_or("it has no name")?.to_owned(),
            chunk_size: Some(CHUNK_BYTES),
            ..ObjectMetadata::default()
        };
        store.put(meta, &mut fs::File::open(file).await?).await?;
        Ok::<_, Box<dyn Error + Send + Sync>>(())
    };
    let stored = timeout(TRAVEL, putting).await.unwrap_or_else(|late| Err(late.into()));
    stored.map_err(|error| NatsError::server("store the run's events", &error))
}

/// Deletes the bucket. What fails is forgotten by age.
pub(crate) async fn forget(client: &Client, spec: &Spec) {
    let _ = jetstream::new(client.clone()).delete_object_store(spec.run.bucket()).await;
}

/// Waits for the run and fetches the file of its events into a folder, where it is kept for later
/// runs. Returns the file, or `None` when the run has the events of the fingerprint `own_sha256`, or
/// no file.
///
/// The caller checks the file's content: a coordinator may store any.
///
/// # Errors
/// When the server cannot be reached or does not have the run's file.
pub async fn fetch_corpus(
    server: &Server,
    run: &RunId,
    own_sha256: &str,
    folder: &Path,
) -> Result<Option<PathBuf>, NatsError> {
    let connection = reach(server, &format!("events, run {run}")).await?;
    let fetching = async {
        let spec = find(&connection, run).await?.spec;
        let Some(name) = spec.corpus_file().filter(|_| spec.identity.corpus_sha256 != own_sha256) else {
            return Ok(None);
        };
        let path = folder.join(name);
        if !path.exists() {
            let fetched = timeout(TRAVEL, fetch(&connection.client, run, name, &path)).await;
            fetched.unwrap_or_else(|late| Err(late.into())).map_err(|error| {
                NatsError::Refused(format!(
                    "{error}: the run's events do not arrive. Copy the file to this machine and start the agent with \
                     --corpus"
                ))
            })?;
        }
        Ok(Some(path))
    };
    connection.during(fetching).await
}

/// The store's client compares the bytes with their digest.
async fn fetch(
    client: &Client,
    run: &RunId,
    name: &str,
    path: &Path,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let store = jetstream::new(client.clone()).get_object_store(run.bucket()).await?;
    let mut object = store.get(name).await?.take(CORPUS_FILE_BYTES + 1);
    // Becomes the file once it is whole.
    let part = NamedTempFile::new_in(path.parent().unwrap_or(path))?;
    let mut written = fs::File::from_std(part.reopen()?);
    if tokio::io::copy(&mut object, &mut written).await? > CORPUS_FILE_BYTES {
        return Err(io::Error::other(format!("more than {CORPUS_FILE_BYTES} bytes")).into());
    }
    written.flush().await?;
    part.persist(path)?;
    Ok(())
}
