//! The real program against relays in Python that grant less than they are offered.

use report::{
    ResultFile,
    bracket::{End, Limit},
    result::{Probe, ProbeOutcome},
};

use crate::{
    common::{self, only_folder},
    python::Relay,
    ran::Runs,
};

/// Runs a command with and without deflate over a relay; returns what it said on standard error,
/// and its result.
fn compare(command: &str, relay: &Relay, args: &[&str]) -> (String, ResultFile) {
    let out = tempfile::tempdir().unwrap();
    let said = common::compare()
        .args([command, "--url", &relay.1, "--compressions", "none,deflate", "--scenario", "note-stream"])
        .arg("--out")
        .arg(out.path())
        .args(args)
        .ran()
        .measured()
        .said;
    (said, ResultFile::read(&only_folder(out.path())).unwrap())
}

const ONE_ROUND: [&str; 7] = ["--rounds", "1", "--seconds", "1", "--", "--rate", "100"];

/// Asserts that a note is said once, before the first round or probe.
fn assert_said_first(said: &str, note: &str, first: &str) {
    let at: Vec<usize> = said.match_indices(note).map(|(at, _)| at).collect();
    assert_eq!(at.len(), 1, "{note:?} once in: {said}");
    assert!(said.find(first).is_some_and(|first| at[0] < first), "{note:?} before {first:?} in: {said}");
}

fn ids(result: &ResultFile) -> Vec<&str> {
    result.cells.iter().map(|cell| cell.id.as_str()).collect()
}

#[test]
#[ignore = "needs python3 with websockets"]
fn what_a_python_relay_grants_of_deflate_is_the_name_of_what_is_measured() {
    let relay = Relay::start(&["none", "0", "narrow"]);
    let (said, result) = compare("run", &relay, &ONE_ROUND);
    let granted = "deflate:window_bits=12:upload_takeover=no";
    let note = format!("json+deflate is measured as json+{granted}, which the relay grants");
    assert_said_first(&said, &note, "blocks, about");
    assert_eq!(ids(&result), ["json+none", "json-control", &format!("json+{granted}")]);
    assert_eq!(result.config.foreign.as_ref().unwrap().declined, [note]);
    for cell in &result.cells {
        for block in &cell.blocks {
            let record = block.record.as_ref().unwrap_or_else(|| panic!("{:?}", block.failure));
            record.counts.balanced().unwrap();
            assert_eq!(record.counts.deliveries, 800, "{}", cell.id);
        }
    }
    let deflated = &result.cells[2];
    assert_eq!(deflated.cell.compression, granted);
    let agreement = &deflated.blocks[0].record.as_ref().unwrap().agreement;
    let extensions = agreement.extensions.as_deref().unwrap();
    assert!(extensions.contains("client_no_context_takeover"), "{extensions}");
    assert!(extensions.contains("server_max_window_bits=12"), "{extensions}");
}

/// Such a relay takes 50 notes a second at most. A second of 80 is answered after 0.3 s in the
/// median.
#[test]
#[ignore = "needs python3 with websockets"]
fn a_search_finds_what_a_slow_python_relay_sustains() {
    let relay = Relay::start(&["slow", "0", "none"]);
    let args = "--by rate --slo p50<100ms,lost=0 --start 20 --limit 320 --probe-seconds 1 --precision 0.5 --no-curve";
    let args: Vec<&str> = args.split(' ').collect();
    let (said, result) = compare("search", &relay, &args);
    assert_said_first(&said, "json+deflate is not measured: it agreed on compression none", "/s for ");
    let search = result.search.unwrap();
    assert_eq!(result.config.url.as_ref().map(ToString::to_string).as_ref(), Some(&relay.1));
    let [cell] = &search.cells[..] else { panic!("{:?}", search.cells) };
    assert_eq!(cell.cell, "json+none");
    let passes = |probe: &&Probe| probe.outcome == ProbeOutcome::Pass;
    let highest = cell.probes.iter().filter(passes).map(|probe| probe.rate_per_s).max();
    assert!(highest.is_none_or(|rate| rate < 80), "{said}");
    let limit = Limit::from_probes(&search.config, cell);
    // A busy machine may make every probe invalid, which is said and is not the relay's failure.
    match limit.end {
        End::Slo => assert!((20..80).contains(&limit.capacity_per_s.unwrap()), "{limit:?}: {said}"),
        End::GeneratorLimit | End::Disturbed => {}
        _ => panic!("{limit:?}: {said}"),
    }
}
