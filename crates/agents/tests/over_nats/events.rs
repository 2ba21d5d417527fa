//! Files of events: who fetches them, and accounts that bound what a server keeps.

use std::{
    fs,
    path::{Path, PathBuf},
};

use agents::{CORPUS_FILE_BYTES, NatsError, fetch_corpus};
use async_nats::jetstream;
use tempfile::{TempDir, tempdir};

use crate::{
    EXAMPLE,
    site::{Nats, agents, block, finish, nats, open, open_with_events, records, server},
};

const NAME: &str = "mine.jsonl";

fn events(folder: &TempDir, bytes: u64) -> PathBuf {
    let file = folder.path().join("events");
    fs::File::create(&file).unwrap().set_len(bytes).unwrap();
    file
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
    let file = events(&mine, 300_000);
    for _ in 0..2 {
        let run = open_with_events(&coordinator, NAME, file.clone()).await.unwrap();
        assert!(run.unstored.is_none(), "{:?}", run.unstored);
        assert_eq!(fetch(&agent, "mine", kept.path()).await.unwrap(), None, "it has them");
        assert_eq!(fetch(&agent, "idle", kept.path()).await.unwrap(), Some(kept.path().join(NAME)));
        assert!(fs::read(kept.path().join(NAME)).unwrap() == fs::read(&file).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn events_that_do_not_arrive_or_lead_elsewhere_leave_no_file_over_nats() {
    let nats = nats("jetstream: enabled");
    let mine = tempdir().unwrap();
    let empty = tempdir().unwrap();
    let run = open_with_events(&nats.url, NAME, events(&mine, 300_000)).await.unwrap();
    let jetstream = jetstream::new(async_nats::connect(&nats.url).await.unwrap());
    jetstream.get_stream("OBJ_nsim-run").await.unwrap().purge().await.unwrap();
    let error = fetch(&nats.url, "idle", empty.path()).await.unwrap_err().to_string();
    assert!(error.contains("do not arrive. Copy the file to this machine"), "{error}");
    drop(run);
    let run = open_with_events(&nats.url, NAME, events(&mine, CORPUS_FILE_BYTES + 1)).await.unwrap();
    let unstored = run.unstored.as_ref().unwrap().to_string();
    assert!(unstored.contains("at most 67108864 travel"), "{unstored}");
    drop(run);
    let run = open_with_events(&nats.url, "../mine", events(&mine, 1)).await.unwrap();
    assert_eq!(fetch(&nats.url, "idle", empty.path()).await.unwrap(), None);
    drop(run);
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
}

/// A server whose users are of an account with these limits, and its URL for one of them.
fn limited(limits: &str) -> (Nats, String) {
    let users = "users: [{ user: a, password: b }]";
    let nats = nats(&format!("jetstream: enabled\naccounts {{ A {{ jetstream: {limits}, {users} }} }}"));
    let url = nats.url.replace("nats://", "nats://a:b@");
    (nats, url)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn an_account_may_bound_what_a_server_keeps_or_keep_nothing_over_nats() {
    let mine = tempdir().unwrap();
    let file = events(&mine, 300_000);
    for (limits, words) in [
        ("{ max_mem: 0, max_file: 1M, max_bytes_required: true }", ""),
        ("{ max_mem: 64M, max_file: 100K, max_bytes_required: true }", "insufficient storage resources"),
        ("disabled", "not enabled for account"),
    ] {
        let (_nats, url) = limited(limits);
        let run = open_with_events(&url, NAME, file.clone()).await.unwrap();
        let unstored = run.unstored.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(unstored.contains(words) && unstored.is_empty() == words.is_empty(), "{limits}: {unstored}");
        let kept = tempdir().unwrap();
        let fetched = fetch(&url, "idle", kept.path()).await;
        assert_eq!(fetched.is_ok(), words.is_empty(), "{limits}: {fetched:?}");
        drop(run);
        let agents = agents(&url, "next", 1);
        let run = open(&url, "next", 1).await.unwrap();
        run.ready().await.unwrap();
        records(&run, block(1)).await;
        finish(run, agents).await;
    }
}
