//! TLS and files of credentials: a run between those who are let in, and what others are told.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use agents::{
    Spec,
    nats::{Attendance, NatsError, Run, Server, coordinate},
    now_ns,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use nkeys::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::site::{Nats, agent, attendance, block, finished, identity, nats, records, run_id};

/// For an answer that no wait is part of.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A server with TLS that lets in the users of one account, and a folder for files.
struct Site {
    nats: Nats,
    account: KeyPair,
    folder: TempDir,
}

/// A JWT as NATS has them: signed by an NKey, whose public half is the issuer.
fn jwt(name: &str, subject: &KeyPair, issuer: &KeyPair, nats: &Value) -> String {
    let (sub, iss) = (subject.public_key(), issuer.public_key());
    let header = json!({"typ": "JWT", "alg": "ed25519-nkey"});
    let claims =
        json!({"jti": name, "iat": 1_700_000_000, "iss": iss, "name": name, "sub": sub, "nats": nats});
    let signed = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
    let signature = URL_SAFE_NO_PAD.encode(issuer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

/// A certificate for localhost and its key, in files.
fn certificate(folder: &Path, name: &str) -> [PathBuf; 2] {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files = ["crt", "key"].map(|extension| folder.join(name).with_extension(extension));
    fs::write(&files[0], made.cert.pem()).unwrap();
    fs::write(&files[1], made.signing_key.serialize_pem()).unwrap();
    files
}

fn site() -> Site {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = certificate(folder.path(), "server");
    let (operator, system, account) =
        (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let operated = json!({"type": "operator", "version": 2});
    let mut limits = json!({"subs": -1, "data": -1, "payload": -1, "conn": -1, "leaf": -1});
    let without_jetstream = json!({"type": "account", "version": 2, "limits": limits});
    for limit in ["mem_storage", "disk_storage", "streams", "consumer"] {
        limits[limit] = json!(-1);
    }
    let with_jetstream = json!({"type": "account", "version": 2, "limits": limits});
    let config = format!(
        "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {}, {}: {} }}\n\
         tls {{ cert_file: {certificate:?}, key_file: {key:?} }}\n",
        jwt("operator", &operator, &operator, &operated),
        system.public_key(),
        system.public_key(),
        jwt("system", &system, &operator, &without_jetstream),
        account.public_key(),
        jwt("account", &account, &operator, &with_jetstream),
    );
    let file = folder.path().join("nats-server.conf");
    fs::write(&file, config).unwrap();
    Site { nats: nats(Some(&file)), account, folder }
}

/// What the example of a configuration grants to whom `of` leads to there, as claims.
fn rights(of: &str) -> Value {
    let (_, own) = include_str!("../../nats-server.conf").split_once(of).unwrap();
    let list = |name: &str| -> Vec<&str> {
        let (_, list) = own.split_once(&format!("{name}: [")).unwrap();
        let lines = list.split_once(']').unwrap().0.lines().filter(|line| !line.trim().starts_with('#'));
        lines.flat_map(|line| line.split('"').skip(1).step_by(2)).collect()
    };
    claims(&list("publish"), &list("subscribe"))
}

fn claims(publish: &[&str], subscribe: &[&str]) -> Value {
    json!({
        "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1,
        "pub": {"allow": publish}, "sub": {"allow": subscribe},
        "resp": {"max": 1, "ttl": 10_000_000_000_u64},
    })
}

impl Site {
    /// The server as a user of the account meets it.
    fn user(&self, name: &str, claims: &Value) -> Server {
        self.user_of(&self.account, name, claims)
    }

    fn user_of(&self, account: &KeyPair, name: &str, claims: &Value) -> Server {
        let user = KeyPair::new_user();
        let (jwt, seed) = (jwt(name, &user, account, claims), user.seed().unwrap());
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        let file = self.folder.path().join(name).with_extension("creds");
        fs::write(&file, text).unwrap();
        let ca = Some(self.folder.path().join("server.crt"));
        Server { url: format!("tls://{}", self.place()), credentials: Some(file), ca }
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

/// What a coordinator and an agent are told, both at once.
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
    let [other, key] = certificate(site.folder.path(), "other");
    let missing = site.folder.path().join("missing.crt");
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
        let file = site.folder.path().join(name);
        fs::write(&file, text).unwrap();
        Some(file)
    };
    for (credentials, says) in [
        (Some(site.folder.path().join("missing.creds")), "missing.creds: No such file"),
        (file("empty.creds", ""), "empty.creds: cannot parse user JWT"),
        (file("no-seed.creds", jwt), "no-seed.creds: cannot parse nkey"),
        (file("wrong-seed.creds", &text.replace("\nSU", "\nSX")), "wrong-seed.creds: "),
        (None, "authorization violation"),
    ] {
        assert_not_let_in(&site, &Server { credentials, ..good.clone() }, says).await;
    }
    // Of an account that the server's operator does not know.
    let unknown = site.user_of(&KeyPair::new_account(), "unknown", &rights("coordinator: {"));
    assert_not_let_in(&site, &unknown, "authorization violation").await;
}
