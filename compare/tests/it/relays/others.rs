//! `compare/relays`: external relays, built and started by scripts.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use report::ResultFile;
use tempfile::TempDir;

use super::run;
use crate::{
    common::only_folder,
    ran::{Ran, Runs},
};

/// The scripts that build and start external relays.
const RELAYS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/relays");

/// Runs a script of a `compare/relays`.
fn script(relays: &Path, words: &[&str]) -> Ran {
    Command::new("bash").arg(relays.join(words[0])).args(&words[1..]).current_dir(relays).ran()
}

/// A copy of the scripts, below which nothing is built.
fn scripts(place: &Path) -> PathBuf {
    let relays = place.join("compare/relays");
    fs::create_dir_all(&relays).unwrap();
    for name in ["build", "start", "nostr-rs-relay.toml"] {
        fs::copy(Path::new(RELAYS).join(name), relays.join(name)).unwrap();
    }
    relays
}

#[test]
fn wrong_words_for_relays_of_others_are_refused_with_the_fix() {
    let place = TempDir::new().unwrap();
    let relays = scripts(place.path());
    let usage = "usage: start RELAY ADDRESS [tuned]";
    for (words, says) in [
        (&["build", "local-relay", "strfry"][..], "unknown relay strfry; known: local-relay"),
        (&["start"], usage),
        (&["start", "khatru", "127.0.0.1:1", "tuned", "more"], usage),
        (&["start", "strfry", "127.0.0.1:1"], "unknown relay strfry; known: local-relay"),
        (&["start", "khatru", "7777"], "7777 is no address: expected HOST:PORT"),
        (&["start", "khatru", "127.0.0.1:1", "tunned"], "unknown word tunned; known: tuned"),
    ] {
        script(&relays, words).ended(2).saying(&[says]);
    }
    assert!(!place.path().join("target").exists(), "nothing was built");
}

#[test]
fn a_relay_of_others_that_is_not_built_is_named_with_the_fix() {
    let place = TempDir::new().unwrap();
    let relays = scripts(place.path());
    let known = script(&relays, &["build", "--list"]).out;
    assert!(known.split_whitespace().count() >= 5, "{known}");
    for relay in known.split_whitespace() {
        let said = script(&relays, &["start", relay, "127.0.0.1:1"]).ended(2).said;
        assert_eq!(said, format!("{relay} is not built: compare/relays/build {relay}\n"));
    }
}

#[test]
#[ignore = "needs khatru, by compare/relays/build"]
fn khatru_runs_beside_our_relay_and_both_ledgers_balance() {
    let out = TempDir::new().unwrap();
    let khatru = format!("khatru={RELAYS}/start khatru {{address}} tuned");
    let said = run(out.path(), &["--relay", "relay-sim", "--relay", &khatru]).measured().said;
    let result = ResultFile::read(&only_folder(out.path())).unwrap();
    let ids: Vec<&str> = result.cells.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!(ids, ["json+none+relay-sim", "json-control+relay-sim", "json+none+khatru"], "{said}");
    let mut deliveries = BTreeSet::new();
    for cell in &result.cells {
        let counts = cell.blocks[0].record.as_ref().unwrap().counts;
        counts.balanced().unwrap_or_else(|why| panic!("{}: {why}", cell.id));
        deliveries.insert(counts.deliveries);
    }
    assert!(deliveries.len() == 1 && !deliveries.contains(&0), "all play one plan: {deliveries:?}");
}
