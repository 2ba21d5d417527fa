//! Files of events: who fetches them, and which are refused.

use std::{
    fs,
    path::{Path, PathBuf},
};

use agents::{
    CORPUS_FILE_BYTES, CorpusFile, Identity, Spec,
    nats::{NatsError, Run, coordinate, fetch_corpus},
    now_ns,
};
use async_nats::{
    HeaderMap,
    jetstream::{self, stream::Stream},
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::site::{hasty, identity, nats, run_id, server};

/// Several messages long.
const BYTES: usize = 300_000;

/// A file that repeats nothing, and what a run states of it.
fn events(folder: &TempDir) -> (PathBuf, CorpusFile) {
    let numbers = (0..BYTES.div_ceil(32)).map(|number| Sha256::digest(number.to_string()));
    let bytes: Vec<u8> = numbers.flatten().take(BYTES).collect();
    let file = folder.path().join("mine.jsonl");
    fs::write(&file, &bytes).unwrap();
    let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    (file, CorpusFile { sha256, bytes: BYTES as u64, extension: ".jsonl".to_owned() })
}

/// Opens a run whose events no agent has.
async fn open(url: &str, stated: CorpusFile, file: &Path) -> Run {
    let identity = Identity { corpus_sha256: "mine".to_owned(), ..identity() };
    let spec = Spec {
        run: run_id("run"),
        nonce: now_ns(),
        of: 1,
        has_relay: false,
        identity,
        corpus_file: Some(stated),
    };
    coordinate(server(url), spec, Some(file.to_owned())).await.unwrap()
}

async fn fetch(url: &str, own_sha256: &str, folder: &TempDir) -> Result<Option<PathBuf>, NatsError> {
    fetch_corpus(&server(url), &run_id("run"), own_sha256, folder.path()).await
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

async fn stored(jetstream: &jetstream::Context) -> Stream {
    jetstream.get_stream("OBJ_nsim-files").await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn events_travel_with_the_rights_of_the_example_and_are_kept_over_nats() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("nats-server.conf");
    let nats = nats(Some(&config));
    let url = |user: &str| nats.url.replace("nats://", &format!("nats://{user}:{user}-secret@"));
    let (coordinator, agent) = (url("coordinator"), url("agent-1"));
    let (mine, kept) = (folder(), folder());
    let (file, stated) = events(&mine);
    let run = open(&coordinator, stated.clone(), &file).await;
    assert_eq!(fetch(&agent, "mine", &kept).await.unwrap(), None, "it has them");
    let expected = kept.path().join(stated.name());
    assert_eq!(fetch(&agent, "idle", &kept).await.unwrap().as_ref(), Some(&expected));
    assert!(fs::read(&expected).unwrap() == fs::read(&file).unwrap());

    // An agent cannot put a file in the place of the run's.
    let options =
        async_nats::ConnectOptions::with_user_and_password("agent-1".into(), "agent-1-secret".into());
    let jetstream = hasty(options.connect(&nats.url).await.unwrap());
    let sent = jetstream.publish("$O.nsim-files.C.x", "{}".into()).await.unwrap();
    sent.await.unwrap_err();

    // When the run has ended nothing is left but that there was a file; the agent has its own.
    drop(run);
    let options =
        async_nats::ConnectOptions::with_user_and_password("coordinator".into(), "coordinator-secret".into());
    let jetstream = jetstream::new(options.connect(&nats.url).await.unwrap());
    assert!(stored(&jetstream).await.cached_info().state.bytes < 2_000);
    let run = open(&coordinator, stated.clone(), &file).await;
    stored(&jetstream).await.purge().await.unwrap();
    assert_eq!(fetch(&agent, "idle", &kept).await.unwrap().as_ref(), Some(&expected));
    fs::write(&expected, "damaged").unwrap();
    let error = fetch(&agent, "idle", &kept).await.unwrap_err().to_string();
    assert!(error.contains("not found"), "{error}");
    drop(run);
}

/// Why an agent refuses the events of a run that states `stated` of `file`, after `change`.
async fn refused(url: &str, stated: CorpusFile, file: &Path, change: impl AsyncFnOnce()) -> String {
    let run = open(url, stated, file).await;
    change().await;
    let empty = folder();
    let error = fetch(url, "idle", &empty).await.unwrap_err();
    assert!(matches!(error, NatsError::Refused(_)), "{error:?}");
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0, "nothing is kept: {error}");
    drop(run);
    error.to_string()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn events_that_are_not_what_the_run_states_are_refused_over_nats() {
    let nats = nats(None);
    let mine = folder();
    let (file, good) = events(&mine);
    let other = CorpusFile { sha256: "0".repeat(64), ..good.clone() };
    let shorter = CorpusFile { bytes: good.bytes - 1, ..good.clone() };
    let longer = CorpusFile { bytes: good.bytes + 1, ..good.clone() };
    let large = CorpusFile { bytes: CORPUS_FILE_BYTES + 1, ..good.clone() };
    let elsewhere = CorpusFile { sha256: "../../mine".to_owned(), ..good.clone() };
    for (stated, says) in [
        (other, "SHA-256"),
        (shorter, "300000 bytes are stored where the run states 299999"),
        (longer, "300000 bytes are stored where the run states 300001"),
        (large, "67108865 bytes, and at most 67108864 travel"),
        (elsewhere, "corpus_file.sha256 is not allowed"),
    ] {
        let reason = refused(&nats.url, stated, &file, async || ()).await;
        assert!(reason.contains(says), "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn events_that_are_cut_short_replaced_or_no_object_are_refused_over_nats() {
    let nats = nats(None);
    let jetstream = jetstream::new(async_nats::connect(&nats.url).await.unwrap());
    let mine = folder();
    let (file, stated) = events(&mine);
    let without = async |subject: &str| {
        let stream = stored(&jetstream).await;
        let last = stream.get_last_raw_message_by_subject(subject).await.unwrap();
        stream.delete_message(last.sequence).await.unwrap();
    };
    let with = async |changed: &dyn Fn(Value) -> Vec<u8>| {
        let stream = stored(&jetstream).await;
        let meta = stream.get_last_raw_message_by_subject("$O.nsim-files.M.*").await.unwrap();
        let chunk = vec![b'x'; BYTES + 1];
        jetstream.publish("$O.nsim-files.C.hostile", chunk.into()).await.unwrap().await.unwrap();
        let meta_bytes = changed(serde_json::from_slice(&meta.payload).unwrap());
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Rollup", "sub");
        let sent = jetstream.publish_with_headers(meta.subject, headers, meta_bytes.into()).await.unwrap();
        sent.await.unwrap();
    };
    let of_nuid = |nuid: &'static str| {
        move |mut meta: Value| {
            meta["nuid"] = nuid.into();
            serde_json::to_vec(&meta).unwrap()
        }
    };
    let mut found = Vec::new();
    found.push(refused(&nats.url, stated.clone(), &file, async || without("$O.nsim-files.C.*").await).await);
    found.push(refused(&nats.url, stated.clone(), &file, async || without("$O.nsim-files.M.*").await).await);
    for nuid in ["hostile", "nothing", "no subject"] {
        found.push(refused(&nats.url, stated.clone(), &file, async || with(&of_nuid(nuid)).await).await);
    }
    found.push(refused(&nats.url, stated, &file, async || with(&|_| b"{".to_vec()).await).await);
    let expected = ["they end after", "not found", "they go on after", "they end after 0 of", "", "decode"];
    for (reason, says) in found.iter().zip(expected) {
        assert!(reason.contains("the run's events: ") && reason.contains(says), "{says:?}: {reason}");
    }
    assert_eq!(found.len(), expected.len());
}
