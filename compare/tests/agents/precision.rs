//! Rounds that a pilot plans: agents play its blocks and the counted ones in one run.

use std::{collections::BTreeSet, ffi::OsStr, fs, path::Path, time::Duration};

use report::ResultFile;

use crate::site::{instead, said, site};

/// Agents' own records in a folder.
fn records(folder: &Path) -> usize {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().contains(".agent-")).count()
}

// A round of two cells is three blocks of some four seconds, and eleven rounds are the fewest: five
// of the pilot and six with an interval.
#[test]
#[ignore = "needs nats-server, a quiet host and three minutes"]
fn campaign_of_rounds_that_a_pilot_plans_over_nats() {
    let site = site();
    let mut agents = [0, 1].map(|index| site.agent(index, 2, &[]));
    let planned = ["--precision", "50%", "--max-time", "5m", "--keep-agent-records"].map(OsStr::new);
    let run = instead(&site.run(2, 1), "--rounds", 2, &planned);
    let output = instead(&run, "--quiet", 1, &[]).output().unwrap();
    let said = said(&output);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{said}");
    for agent in &mut agents {
        assert_eq!(agent.end(Duration::from_secs(5)), Some(0));
    }

    let result = ResultFile::read(&site.result_folder()).unwrap();
    let planned = result.config.planned_rounds.as_ref().unwrap();
    assert_eq!((planned.pilot_rounds, planned.rounds), (5, result.config.rounds));
    assert!(planned.rounds >= 6, "{planned:?}");
    let at = |text: &str| said.find(text).unwrap_or_else(|| panic!("{text:?} in {said}"));
    let in_order = [
        at("Pilot of 5 rounds, which are not counted:"),
        at("15 blocks, about "),
        at(&planned.to_string()),
        // Fixed before the first of them.
        at(&format!("\n{} blocks, about ", 3 * planned.rounds)),
    ];
    assert!(in_order.is_sorted(), "{in_order:?} in {said}");

    let blocks: Vec<_> = result.cells.iter().flat_map(|cell| &cell.blocks).collect();
    // With rounds that make up for invalid times.
    let played = result.schedule.len();
    assert!(played >= planned.rounds as usize && blocks.len() == 3 * played, "{played}: {}", blocks.len());
    let seeds: BTreeSet<u64> = blocks.iter().map(|block| block.seed).collect();
    assert_eq!(seeds.len(), blocks.len(), "the relay has what a block sent");
    for block in &blocks {
        let record = block.record.as_ref().unwrap_or_else(|| panic!("{:?}", block.failure));
        assert_eq!((record.agents.len(), record.counts.balanced()), (2, Ok(())));
    }
    let running = site.result_folder().join("running");
    assert_eq!((records(&running.join("pilot")), records(&running)), (2 * 15, 2 * blocks.len()));
}
