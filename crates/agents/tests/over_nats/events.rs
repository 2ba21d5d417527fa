//! Files of events: who fetches them, which are refused, and accounts that bound what a server keeps.

use std::{
    fs,
    path::{Path, PathBuf},
};

use agents::{CORPUS_FILE_BYTES, CorpusFile, NatsError, fetch_corpus, file_sha256};
use async_nats::jetstream;
use sha2::{Digest, Sha256};
use tempfile::{TempDir, tempdir};

use crate::{
    EXAMPLE,
    site::{agents, block, nats, open, open_with_events, records, server},
};

/// A file of several messages that repeats nothing, and what a run states of it.
fn events(folder: &TempDir) -> (PathBuf, CorpusFile) {
    let bytes: Vec<u8> = (0..10_000).flat_map(|number: u32| Sha256::digest(number.to_string())).collect();
    let file = folder.path().join("mine.jsonl");
    fs::write(&file, bytes).unwrap();
    let (sha256, bytes) = file_sha256(&file).unwrap();
    (file, CorpusFile { sha256, bytes, extension: ".jsonl".to_owned() })
}

async fn fetch(url: &str, own_sha256: &str, folder: &Path) -> Result<Option<PathBuf>, NatsError> {
    fetch_corpus(&server(url), &"run".parse().unwrap(), own_sha256, folder).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn events_travel_with_the_rights_of_the_example_and_are_kept_over_nats() {
    let nats = nats(EXAMPLE);
    let url = |user: &str| nats.url.replace("nats://", &format!("nats://{user}:{user}-secret@"));
    let (coordinator, agent) = (url("coordinator"), url("agent-1"));
    let (mine, kept) = (tempdir().unwrap(), tempdir().unwrap());
    let (file, stated) = events(&mine);
    let expected = kept.path().join(stated.name());
    for _ in 0..2 {
        let run = open_with_events(&coordinator, stated.clone(), file.clone()).await;
        assert!(run.unstored().is_none(), "{:?}", run.unstored());
        assert_eq!(fetch(&agent, "mine", kept.path()).await.unwrap(), None, "it has them");
        assert_eq!(fetch(&agent, "idle", kept.path()).await.unwrap().as_ref(), Some(&expected));
        assert!(fs::read(&expected).unwrap() == fs::read(&file).unwrap());
        // What was damaged meanwhile is fetched again.
        fs::write(&expected, "damaged").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn events_that_are_not_what_the_run_states_are_refused_over_nats() {
    let nats = nats("jetstream: enabled");
    let mine = tempdir().unwrap();
    let (file, good) = events(&mine);
    for (stated, says) in [
        (CorpusFile { sha256: "0".repeat(64), ..good.clone() }, "not what the run states"),
        (CorpusFile { bytes: good.bytes - 1, ..good.clone() }, "not what the run states"),
        (CorpusFile { bytes: good.bytes + 1, ..good.clone() }, "not what the run states"),
        (CorpusFile { bytes: CORPUS_FILE_BYTES + 1, ..good.clone() }, "at most 67108864 travel"),
        (CorpusFile { sha256: "../../mine".to_owned(), ..good.clone() }, "corpus_file.sha256 is not allowed"),
        (good, "do not arrive"),
    ] {
        let is_good = says == "do not arrive";
        let run = open_with_events(&nats.url, stated, file.clone()).await;
        if is_good {
            let jetstream = jetstream::new(async_nats::connect(&nats.url).await.unwrap());
            jetstream.get_stream("OBJ_nsim-run").await.unwrap().purge().await.unwrap();
        }
        let empty = tempdir().unwrap();
        let error = fetch(&nats.url, "idle", empty.path()).await.unwrap_err();
        assert!(matches!(&error, NatsError::Refused(why) if why.contains(says)), "{says}: {error}");
        assert_eq!(fs::read_dir(&empty).unwrap().count(), 0, "nothing is kept: {error}");
        drop(run);
    }
}

/// A server whose users are of an account with these limits, and its URL for one of them.
fn limited(limits: &str) -> (crate::site::Nats, String) {
    let users = "users: [{ user: a, password: b }]";
    let nats = nats(&format!("jetstream: enabled\naccounts {{ A {{ jetstream: {limits}, {users} }} }}"));
    let url = nats.url.replace("nats://", "nats://a:b@");
    (nats, url)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn an_account_may_bound_what_a_server_keeps_or_keep_nothing_over_nats() {
    let mine = tempdir().unwrap();
    let (file, stated) = events(&mine);
    for (limits, words) in [
        ("{ max_mem: 0, max_file: 1M, max_bytes_required: true }", None),
        (
            "{ max_mem: 64M, max_file: 100K, max_bytes_required: true }",
            Some("insufficient storage resources"),
        ),
        ("disabled", Some("not enabled for account")),
    ] {
        let (_nats, url) = limited(limits);
        let run = open_with_events(&url, stated.clone(), file.clone()).await;
        let unstored = run.unstored().map(ToString::to_string);
        let kept = tempdir().unwrap();
        let fetched = fetch(&url, "idle", kept.path()).await.unwrap();
        assert_eq!(fetched.is_some(), words.is_none(), "{limits}");
        match (words, &unstored) {
            (None, None) => {}
            (Some(words), Some(said)) if said.contains(words) => {}
            _ => panic!("{limits}: {unstored:?}"),
        }
        drop(run);
        let agents = agents(&url, "run", 1);
        let run = open(&url, "run", 1).await.unwrap();
        run.ready().await.unwrap();
        records(&run, block(0, 1)).await;
        crate::site::finish(run, agents).await;
    }
}
