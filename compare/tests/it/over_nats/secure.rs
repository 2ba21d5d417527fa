//! `--nats-creds` and `--nats-ca` of both commands, over a server with TLS.

use std::{
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};

use super::{
    account::Account,
    site::{Site, free, secure_site},
};
use crate::{certificate::certificate, ran::Runs};

/// The flags for these files.
fn flags<'a>(credentials: &'a Path, ca: &'a Path) -> [&'a str; 4] {
    ["--nats-creds", credentials.to_str().unwrap(), "--nats-ca", ca.to_str().unwrap()]
}

/// A coordinator and an agent that the server does not let in.
fn both(site: &Site, flags: &[&str]) -> [Child; 2] {
    let coordinator = site.run_with(1, 1, &["--relay-listen", &free()]).args(flags).spawn().unwrap();
    let mut agent = site.compare("agent");
    agent.args(["--index", "0", "--of", "1", "--allow-target", &site.relay]).args(flags);
    [coordinator, agent.stderr(Stdio::piped()).spawn().unwrap()]
}

#[test]
#[ignore = "needs nats-server"]
fn a_command_that_the_server_does_not_let_in_names_the_flag_and_the_file_over_nats() {
    let account = Account::new();
    let site = secure_site(&account);
    let ours = account.user("coordinator");
    let strangers = account.stranger();
    let [others, _] = certificate(account.folder(), "other");
    let (ca, missing) = (account.ca(), account.folder().join("missing"));
    let named = |flag: &str, file: &PathBuf| format!("{flag} {}", file.display());
    let cases = [
        (flags(&ours, &others), named("--nats-ca", &others), "invalid peer certificate"),
        (flags(&ours, &missing), named("--nats-ca", &missing), "No such file"),
        (flags(&missing, &ca), named("--nats-creds", &missing), "No such file"),
        (flags(&strangers, &ca), named("--nats-creds", &strangers), "authorization violation"),
    ];
    for (flags, file, why) in cases {
        for child in both(&site, &flags) {
            let place = site.nats.strip_prefix("tls://").unwrap();
            child.ran().ended(1).saying(&[place, &file, why]);
        }
    }
    assert!(!site.folder.path().join("results").exists(), "nothing was measured");
}

#[test]
#[ignore = "needs nats-server"]
fn a_run_with_credentials_over_tls_is_played_over_nats() {
    let account = Account::new();
    let site = secure_site(&account);
    let [coordinator, agent] = ["coordinator", "agent-0"].map(|name| account.user(name));
    let ca = account.ca();
    let mut agent = site.agent(0, 1, &flags(&agent, &ca));
    site.run(1, 1).args(flags(&coordinator, &ca)).ran().measured();
    assert_eq!(agent.end(Duration::from_secs(5)), Some(0));
    for (cell, record) in site.records() {
        assert_eq!((record.agents.len(), record.counts.balanced()), (1, Ok(())), "{cell:#}");
    }
}
