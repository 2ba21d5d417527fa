//! The events of a run, which agents fetch.

use std::{fs, path::PathBuf, time::Duration};

use corpus::Corpus;
use serde_json::Value;

use super::site::{site_of_bundled_events, write_notes};
use crate::ran::Runs;

#[test]
#[ignore = "needs nats-server"]
fn agents_fetch_the_events_that_the_run_has_instead_of_the_bundled_ones_over_nats() {
    let site = site_of_bundled_events();
    let file = site.folder.path().join("mine.jsonl.gz");
    write_notes(&file);
    let fingerprint = Corpus::read(&file).unwrap().fingerprint.to_string();
    let mut agents = [site.agent(0, 2, &[]), site.agent(1, 2, &[])];
    site.run(2, 1).arg("--corpus").arg(&file).ran().measured();
    for agent in &mut agents {
        assert_eq!(agent.end(Duration::from_secs(5)), Some(0));
    }
    let text = fs::read_to_string(site.result_folder().join("result.json")).unwrap();
    let result: Value = serde_json::from_str(&text).unwrap();
    let played = &result["cells"][0]["blocks"][0]["record"]["corpus"];
    assert_eq!(played["sha256"], fingerprint);
    assert_eq!(played["name"], "mine.jsonl.gz", "as the coordinator has it");
    let files = fs::read_dir(site.folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let is_fetched = |path: &PathBuf| path.to_string_lossy().ends_with(".jsonl.gz") && *path != file;
    let fetched: Vec<PathBuf> = files.filter(is_fetched).collect();
    let [fetched] = &fetched[..] else { panic!("kept once: {fetched:?}") };
    assert_eq!(fs::read(fetched).unwrap(), fs::read(&file).unwrap());
}
