//! Findings of the verdicts, and their limits: results with known effects under noise as it was
//! seen on a shared machine (3 % from block to block, and a drift that doubles the cost over a
//! run).

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::{PLAIN, Run, record, result};
use report::{Comparison, Family, ResultFile, Verdict, metric::Metric};

const CELLS: [&str; 3] = ["json+none", "cbor-packed+none", "proto+none"];

/// A run in which the relay spends `factor` times JSON's CPU on proto.
fn noisy(seed: u64, rounds: u32, factor: f64) -> ResultFile {
    noisier(seed, rounds, factor, 0.03)
}

/// The same with so much noise from block to block.
fn noisier(seed: u64, rounds: u32, factor: f64, noise: f64) -> ResultFile {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    result("standard", rounds, &CELLS, |id, round, position| {
        let drift = 1.0 + f64::from(round * 6 + position) / f64::from(rounds * 6);
        // Twelve uniform numbers make a normal one.
        let normal: f64 = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
        let effect = if id == "proto+none" { factor } else { 1.0 };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "around 60,000")]
        let cpu = (60_000.0 * drift * (noise * normal).exp() * effect) as u64;
        let mut record = record(id, 1 + u64::from(round), Run { deliveries: 40, ..PLAIN });
        record.relay_cpu = Some(measure::CpuTime { total_ns: cpu * 40, ..measure::CpuTime::default() });
        record.latency.clear();
        record
    })
}

fn relay_cpu(result: &ResultFile, cell: &str) -> Comparison {
    let mut found = report::comparisons(result).into_iter();
    found.find(|c| c.cell == cell && c.metric == Metric::RelayCpu).expect("every cell is compared")
}

#[test]
fn json_against_itself_is_called_different_in_2_of_40_at_most() {
    let verdicts: Vec<Verdict> = (0..20)
        .flat_map(|seed| {
            let result = noisy(seed, 12, 1.0);
            ["proto+none", "cbor-packed+none"].map(|cell| relay_cpu(&result, cell).verdict)
        })
        .collect();
    let different = verdicts.iter().filter(|v| matches!(v, Verdict::Better | Verdict::Worse)).count();
    assert!(different <= 2, "{verdicts:?}");
}

#[test]
fn ten_percent_more_cpu_is_found_in_18_of_20_runs() {
    let found: Vec<Comparison> = (0..20).map(|seed| relay_cpu(&noisy(seed, 12, 1.1), "proto+none")).collect();
    let worse = found.iter().filter(|comparison| comparison.verdict == Verdict::Worse).count();
    assert!(worse >= 18, "{found:?}");
    assert!(found.iter().all(|comparison| comparison.corrected && comparison.rounds == 12));
}

#[test]
fn six_rounds_cannot_be_corrected_and_say_so() {
    let result = noisy(3, 6, 0.5);
    let comparison = relay_cpu(&result, "proto+none");
    assert_eq!((comparison.corrected, comparison.verdict), (false, Verdict::Better));
    assert!(report::summary(&result).contains("not corrected for 2 cells"));
    let comparison = relay_cpu(&noisy(3, 5, 0.5), "proto+none");
    assert_eq!((comparison.interval, comparison.verdict), (None, Verdict::Inconclusive));
}

#[test]
fn a_control_that_differs_from_itself_withholds_the_verdicts_of_its_metric() {
    let mut result = noisy(5, 12, 0.5);
    let control = result.cells.iter_mut().find(|cell| cell.id == "json-control").unwrap();
    for block in &mut control.blocks {
        block.record.as_mut().unwrap().relay_cpu.as_mut().unwrap().total_ns *= 2;
    }
    assert_eq!(relay_cpu(&result, "proto+none").verdict, Verdict::Inconclusive);
    let bytes = report::comparisons(&result).into_iter().find(|c| c.metric == Metric::WireBytes).unwrap();
    assert_eq!(bytes.verdict, Verdict::Same);
    let summary = report::summary(&result);
    assert!(summary.contains("A/A control (JSON against itself): failed in relay CPU ×"), "{summary}");
}

#[test]
fn a_primary_family_is_corrected_by_itself_and_the_rest_apart() {
    let one_family = noisy(3, 12, 1.06);
    let mut result = one_family.clone();
    result.config.primary = vec!["proto+none".to_owned()];
    let cells = ["proto+none", "cbor-packed+none"];
    let [before, other_before] = cells.map(|cell| relay_cpu(&one_family, cell));
    let [primary, secondary] = cells.map(|cell| relay_cpu(&result, cell));
    assert_eq!([before.family, other_before.family], [None, None]);
    assert_eq!([primary.family, secondary.family], [Some(Family::Primary), Some(Family::Secondary)]);
    assert!(primary.corrected && secondary.corrected);
    // Holm over two cells doubles the smaller probability; each is alone now.
    assert!(before.p > 0.0 && (before.p / primary.p - 2.0).abs() < 1e-9, "{before:?}\n{primary:?}");
    assert!((primary.ratio, primary.interval) == (before.ratio, before.interval));
    // Six rounds support no correction over two cells, and that over one.
    let mut few = noisy(3, 6, 0.5);
    few.config.primary = vec!["proto+none".to_owned()];
    assert!(relay_cpu(&few, "proto+none").corrected);
    let derived = serde_json::to_value(report::Derived::from_result(&result)).unwrap();
    let families: Vec<_> = derived["comparisons"].as_array().unwrap().iter().map(|c| &c["family"]).collect();
    assert!(families.contains(&&"primary".into()) && families.contains(&&"secondary".into()));
}

#[test]
fn a_run_in_which_json_deviates_from_itself_is_warned_of_above_the_tables() {
    let noise = "Noisy: JSON against itself is known in relay CPU to ±";
    let calm = noisy(3, 12, 1.1);
    let loud = noisier(3, 12, 1.1, 0.15);
    let renderings = |result: &ResultFile| {
        [report::summary(result), report::terminal(result, false)].map(|text| text.replace("\n  ", " "))
    };
    for text in renderings(&calm) {
        assert!(!text.contains(noise), "{text}");
    }
    for text in renderings(&loud) {
        let (place, table) = (text.find(noise).unwrap(), text.find("wire B/event").unwrap());
        assert!(place < table, "{text}");
        let remedies = ["Quiet the host", "--no-pin", "--rounds "];
        assert!(remedies.iter().all(|remedy| text.contains(remedy)), "{text}");
    }
}
