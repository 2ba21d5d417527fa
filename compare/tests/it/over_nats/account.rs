//! An account of a NATS server with TLS, as files: certificate, configuration, users' credentials.

use std::{
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use nkeys::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::certificate::certificate;

/// The account's keys, and a folder for its files.
pub(crate) struct Account {
    keys: KeyPair,
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

impl Account {
    /// Makes keys, and the server's certificate.
    pub(crate) fn new() -> Account {
        let folder = tempfile::tempdir().unwrap();
        certificate(folder.path(), "server");
        Account { keys: KeyPair::new_account(), folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The server's certificate, which clients trust.
    pub(crate) fn ca(&self) -> PathBuf {
        self.folder().join("server.crt")
    }

    /// A configuration with TLS and the users of this account.
    pub(crate) fn config(&self) -> String {
        let (operator, system) = (KeyPair::new_operator(), KeyPair::new_account());
        let operated = json!({"type": "operator", "version": 2});
        let mut limits = json!({"subs": -1, "data": -1, "payload": -1, "conn": -1, "leaf": -1});
        let without_jetstream = json!({"type": "account", "version": 2, "limits": limits});
        for limit in ["mem_storage", "disk_storage", "streams", "consumer"] {
            limits[limit] = json!(-1);
        }
        let with_jetstream = json!({"type": "account", "version": 2, "limits": limits});
        format!(
            "jetstream: enabled\noperator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {}, {}: {} }}\n\
             tls {{ cert_file: {:?}, key_file: {:?} }}\n",
            jwt("operator", &operator, &operator, &operated),
            system.public_key(),
            system.public_key(),
            jwt("system", &system, &operator, &without_jetstream),
            self.keys.public_key(),
            jwt("account", &self.keys, &operator, &with_jetstream),
            self.ca(),
            self.folder().join("server.key"),
        )
    }

    /// Writes the credentials of a user of this account.
    pub(crate) fn user(&self, name: &str) -> PathBuf {
        self.user_of(&self.keys, name)
    }

    /// Writes those of a user of an account that the server does not know.
    pub(crate) fn stranger(&self) -> PathBuf {
        self.user_of(&KeyPair::new_account(), "stranger")
    }

    fn user_of(&self, account: &KeyPair, name: &str) -> PathBuf {
        let user = KeyPair::new_user();
        let claims = json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1});
        let (jwt, seed) = (jwt(name, &user, account, &claims), user.seed().unwrap());
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        let file = self.folder().join(name).with_extension("creds");
        fs::write(&file, text).unwrap();
        file
    }
}
