//! The load that each cell is given for a share of its own relay's cores.

use std::time::Duration;

use compare::{
    CellSpec,
    own_core::{at_shares, choose, give, question},
    search::Probes,
};
use report::result::{AtLoad1, Role};

use crate::common::{Left, PLAIN, Scripted, config, interrupted, matrix, measured, record};

/// Of a core: 4 % for being there, and so much for each load.
fn utilisation(id: &str, load: f64) -> f64 {
    0.04 + load * if id.starts_with("cbor") { 0.01 } else { 0.08 }
}

fn played(id: &str, load: f64) -> Left {
    let mut record = record("json+none", 1, PLAIN);
    let busy = Duration::from_nanos(record.elapsed_ns).mul_f64(utilisation(id, load));
    record.relay_cpu.as_mut().unwrap().total_ns = u64::try_from(busy.as_nanos()).unwrap();
    measured(record)
}

fn cells() -> Vec<CellSpec> {
    at_shares(&matrix(&["cbor+none"]), &[0.1, 0.3])
}

#[test]
fn each_cell_gets_the_load_of_its_share_and_a_control_that_of_its_anchor() {
    let (mut cells, folder) = (cells(), tempfile::tempdir().unwrap());
    let question = question("note-stream", &config("quick", 1), AtLoad1 { deliveries_per_s: 4_000.0 });
    let generator = Scripted::new(|task| played(&task.cell.id, task.cell.cell.load));
    let mut probes = Probes::new(&generator, &cells, &question, folder.path()).unwrap();
    let chosen = choose(&cells, &question, &mut probes, &mut |_| ()).unwrap().unwrap();
    let ids: Vec<&str> = chosen.iter().map(|found| found.cell.as_str()).collect();
    assert_eq!(
        ids,
        ["json+none+10-percent", "cbor+none+10-percent", "json+none+30-percent", "cbor+none+30-percent"]
    );
    for found in &chosen {
        let reached = utilisation(&found.cell, found.load);
        // The first probe alone is far off: most of what it sees does not grow with the load.
        assert!((reached / found.utilisation - 1.0).abs() < 0.01, "{reached}: {found:?}");
        let [low, second] = &found.probes[..] else { panic!("{found:?}") };
        let off = |probe: f64| (utilisation(&found.cell, probe) / found.utilisation).ln().abs();
        assert!(off(found.load) <= off(second.load) && (low.load - 0.5).abs() < 1e-9, "{found:?}");
        assert!((second.utilisation - utilisation(&found.cell, second.load)).abs() < 1e-3, "{found:?}");
    }
    give(&mut cells, &chosen);
    for share in [0.1, 0.3] {
        let load_of = |role: Role| {
            let of = |cell: &&CellSpec| cell.role == role && cell.utilisation == Some(share);
            cells.iter().find(of).unwrap().cell.load
        };
        let (anchor, control, cell) = (load_of(Role::Anchor), load_of(Role::Control), load_of(Role::Cell));
        assert!((anchor - control).abs() < 1e-9 && cell > 2.0 * anchor, "{anchor} {control} {cell}");
    }
}

#[test]
fn a_share_stands_once_and_is_named_as_it_was_written() {
    let cells = at_shares(&matrix(&["cbor+none"]), &[0.07, 0.1, 0.07, 0.29]);
    let ids: Vec<&str> =
        cells.iter().filter(|cell| cell.role == Role::Cell).map(|cell| cell.id.as_str()).collect();
    assert_eq!(ids, ["cbor+none+7-percent", "cbor+none+10-percent", "cbor+none+29-percent"]);
}

#[test]
fn a_relay_that_does_not_tell_how_busy_it_is_has_no_share_and_an_interruption_ends_the_probes() {
    let (cells, folder) = (cells(), tempfile::tempdir().unwrap());
    let question = question("note-stream", &config("quick", 1), AtLoad1 { deliveries_per_s: 4_000.0 });
    let silent = Scripted::new(|task| {
        let (record, left) = played(&task.cell.id, 1.0);
        (record.map(|record| measure::RunRecord { relay_cpu: None, ..record }), left)
    });
    let mut probes = Probes::new(&silent, &cells, &question, folder.path()).unwrap();
    let error = choose(&cells, &question, &mut probes, &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("json+none+10-percent does not tell its CPU time"), "{error}");
    let stopped = Scripted::new(|_| interrupted());
    let mut probes = Probes::new(&stopped, &cells, &question, folder.path()).unwrap();
    assert_eq!(choose(&cells, &question, &mut probes, &mut |_| ()).unwrap(), None);
}
