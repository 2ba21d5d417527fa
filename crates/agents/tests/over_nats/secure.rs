//! TLS and files of credentials: a run between those who are let in, and what others are told.

use std::{fs, path::PathBuf, time::Duration};

use agents::{
    Spec,
    nats::{Attendance, NatsError, Run, Server, coordinate},
    now_ns,
};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    account::{Account, certificate, claims, rights},
    site::{Nats, agent, attendance, block, finished, identity, nats, records, run_id},
};

/// For an answer that no wait is part of.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A server with TLS that lets in the users of one account.
struct Site {
    nats: Nats,
    account: Account,
}

fn site() -> Site {
    let account = Account::new();
    Site { nats: nats(Some(&account.config())), account }
}

impl Site {
    /// The server as a user of the account meets it.
    fn user(&self, name: &str, claims: &Value) -> Server {
        self.met_with(self.account.user(name, claims))
    }

    fn met_with(&self, credentials: PathBuf) -> Server {
        let url = format!("tls://{}", self.place());
        Server { url, credentials: Some(credentials), ca: Some(self.account.ca()) }
    }

    fn coordinator(&self) -> Server {
        self.user("coordinator", &rights("coordinator: {"))
    }

    fn agent(&self, index: u16) -> Server {
        self.user(&format!("agent-{index}"), &rights(&format!("user: agent-{index},")))
    }

    fn place(&self) -> String {
        let (_, port) = self.nats.url.rsplit_once(':').unwrap();
        format!("localhost:{port}")
    }
}

async fn open(server: Server) -> Result<Run, NatsError> {
    let (of, has_relay, corpus_file) = (2, false, None);
    let spec = Spec { run: run_id("run"), nonce: now_ns(), of, has_relay, identity: identity(), corpus_file };
    coordinate(server, spec, None).await
}

fn attends(server: Server, index: u16) -> Attendance {
    Attendance { server, ..attendance("", "run", index, 2) }
}

/// Errors that a coordinator and an agent are told, both at once.
async fn refused(server: &Server) -> [NatsError; 2] {
    let opened = timeout(AT_ONCE, open(server.clone())).await.expect("a coordinator that is told");
    let left = timeout(AT_ONCE, agent(attends(server.clone(), 1))).await.expect("an agent that is told");
    [opened.unwrap_err(), left.unwrap().unwrap_err()]
}

/// Nobody is let in, and is told where and why.
async fn assert_not_let_in(site: &Site, server: &Server, says: &str) {
    for error in refused(server).await {
        assert!(matches!(error, NatsError::Connect { is_final: true, .. }), "{error:?}");
        let (error, place) = (error.to_string(), site.place());
        assert!(error.contains(&place) && error.contains(says), "{place}: {says}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn users_with_credentials_play_a_run_over_tls_over_nats() {
    let site = site();
    let agents = [0, 1].map(|index| agent(attends(site.agent(index), index)));
    let run = open(site.coordinator()).await.unwrap();
    run.ready().await.unwrap();
    for position in 0..2 {
        records(&run, block(position, 1), 2).await;
    }
    assert_eq!(run.finish(), 0);
    finished(agents.into()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn a_server_whose_certificate_is_not_trusted_is_refused_over_nats() {
    let site = site();
    let [other, key] = certificate(site.account.folder(), "other");
    let missing = site.account.folder().join("missing.crt");
    for (ca, says) in [
        (None, "invalid peer certificate"),
        (Some(&other), "invalid peer certificate"),
        (Some(&missing), "missing.crt: No such file"),
        (Some(&key), "other.key: it has no certificate"),
    ] {
        let server = Server { ca: ca.cloned(), ..site.coordinator() };
        assert_not_let_in(&site, &server, says).await;
    }
    // The certificate is for another name.
    let mut server = site.coordinator();
    server.url = server.url.replace("localhost", "127.0.0.1");
    for error in refused(&server).await {
        assert!(error.to_string().contains("not valid for name"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn a_user_without_the_runs_rights_is_told_which_over_nats() {
    let site = site();
    let of_another_run = rights("user: agent-1,").to_string().replace(".run.", ".other.");
    let of_another_run = serde_json::from_str(&of_another_run).unwrap();
    let of_none = claims(&["elsewhere"], &["_INBOX.>"]);
    let run = open(site.coordinator()).await.unwrap();
    for (claims, says) in [
        (of_another_run, ["$JS.API.STREAM.INFO.NSIM", "$KV.nsim.run.slot.1"]),
        (of_none, ["$JS.API.STREAM.INFO.KV_nsim"; 2]),
    ] {
        let errors = refused(&site.user("stranger", &claims)).await;
        for (error, says) in errors.iter().zip(says) {
            assert!(matches!(error, NatsError::Denied(_)), "{error:?}");
            assert!(error.to_string().contains(says), "{says}: {error}");
        }
    }
    // The run is as it was.
    let agents = [0, 1].map(|index| agent(attends(site.agent(index), index)));
    run.ready().await.unwrap();
    records(&run, block(0, 1), 2).await;
    run.finish();
    finished(agents.into()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn credentials_that_let_nobody_in_are_refused_over_nats() {
    let site = site();
    let good = site.coordinator();
    let text = fs::read_to_string(good.credentials.as_ref().unwrap()).unwrap();
    let jwt = &text[..=text.find("\n\n").unwrap()];
    let file = |name: &str, text: &str| {
        let file = site.account.folder().join(name);
        fs::write(&file, text).unwrap();
        Some(file)
    };
    for (credentials, says) in [
        (Some(site.account.folder().join("missing.creds")), "missing.creds: No such file"),
        (file("empty.creds", ""), "empty.creds: cannot parse user JWT"),
        (file("no-seed.creds", jwt), "no-seed.creds: cannot parse nkey"),
        (file("wrong-seed.creds", &text.replace("\nSU", "\nSX")), "wrong-seed.creds: "),
        (None, "authorization violation"),
    ] {
        assert_not_let_in(&site, &Server { credentials, ..good.clone() }, says).await;
    }
    // Of an account that the server's operator does not know.
    let unknown = site.met_with(site.account.stranger(&rights("coordinator: {")));
    assert_not_let_in(&site, &unknown, "authorization violation").await;
}
