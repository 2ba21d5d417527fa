//! A run in the eyes of foreign programs: its metrics, and the sums over its agents.

use std::{collections::BTreeSet, fs, path::Path, process::Command, time::Duration};

use measure::RunRecord;
use report::ResultFile;

use super::site::{Process, but, site};
use crate::{
    program::assert_metrics_add_up,
    ran::Runs,
    scrape::{address, scrapes},
};

/// Has the parser of the Prometheus project read metrics, by the grammar of OpenMetrics.
fn foreign_families(metrics: &str, folder: &Path) -> String {
    let file = folder.join("metrics.txt");
    fs::write(&file, metrics).unwrap();
    let parse =
        "import sys; from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
print(' '.join(f'{f.name}:{f.type}:{f.unit}' for f in parse(open(sys.argv[1]).read())))";
    Command::new("python3").args(["-c", parse]).arg(file).ran().ended(0).out.trim().to_owned()
}

const PYTHON: &str = include_str!("sums.py");

/// Figures that Python found of a metric of a block.
#[derive(serde::Deserialize)]
struct Recomputed(String, u32, u32, String, usize, bool, u64, u64, u64, u64, u64);

fn assert_sums(result: &ResultFile, folder: &Path) {
    let text = Command::new("python3").args(["-c", PYTHON]).arg(folder).ran().ended(0).out;
    let found: Vec<Recomputed> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let metrics = |record: &RunRecord| record.latency.len();
    let blocks = || result.cells.iter().flat_map(|cell| &cell.blocks);
    assert_eq!(found.len(), blocks().map(|block| metrics(block.record.as_ref().unwrap())).sum::<usize>());
    let mut medians = 0;
    for Recomputed(id, round, position, metric, agents, same, count, p50, p90, p99, max) in found {
        let what = format!("{id}, round {round}, position {position}: {metric}");
        let cell = result.cells.iter().find(|cell| cell.id == id).unwrap();
        let mut blocks = cell.blocks.iter();
        let block = blocks.find(|block| (block.round, block.position) == (round, position)).unwrap();
        let stated = &block.record.as_ref().unwrap().latency[&metric];
        assert_eq!((agents, same), (3, true), "{what}");
        assert_eq!((count, max), (stated.len(), stated.max_ns()), "{what}");
        for (q, value) in [(0.5, p50), (0.9, p90), (0.99, p99)] {
            // Too few samples have no quantile here.
            if let Some(ns) = stated.quantile_ns(q).ns() {
                assert_eq!(value, ns, "{what} at {q}");
                medians += u32::from(q == 0.5 && metric == "response");
            }
        }
    }
    assert!(medians > 0, "no block has a median");
}

#[test]
#[ignore = "needs nats-server, and python3 with prometheus-client and hdrhistogram 0.10.8"]
fn metrics_that_a_foreign_parser_reads_and_sums_over_agents_by_python_agree_with_the_result_over_nats() {
    let site = site();
    let mut agents = [0, 1, 2].map(|index| site.agent(index, 3, &[]));
    let mut run = but(&site.run(3, 2), "--rounds", "2".as_ref());
    run.args(["--metrics-listen", "127.0.0.1:0", "--keep-agent-records"]);
    let mut run = Process(run.spawn().unwrap());
    let (address, _said) = address(run.0.stderr.take().unwrap());
    let scrapes = scrapes(&address);
    let code = run.end(Duration::from_secs(10));
    assert!(matches!(code, Some(0 | 3)), "{code:?}");
    agents.iter_mut().for_each(|agent| assert_eq!(agent.end(Duration::from_secs(5)), Some(0)));
    let result = ResultFile::read(&site.result_folder()).unwrap();
    let rounds = result.cells[0].blocks.iter().map(|block| block.round);
    assert!(rounds.collect::<BTreeSet<_>>().is_superset(&BTreeSet::from([0, 1])), "blocks have keys of both");
    let families = "nsim_connections:gauge: nsim_events_sent:counter: nsim_deliveries:counter: \
         nsim_delivery_latency_p99_seconds:gauge:seconds nsim_cpu_seconds:counter:seconds nsim_blocks:counter:";
    for metrics in [&scrapes[0], &scrapes[scrapes.len() / 2], scrapes.last().unwrap()] {
        assert_eq!(foreign_families(metrics, site.folder.path()), families);
    }
    assert_metrics_add_up(&scrapes, &result);
    assert_sums(&result, &site.result_folder());
}
