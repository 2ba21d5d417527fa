//! A run in the eyes of foreign programs: its metrics, and the sums over its agents.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

use measure::{Counts, RunRecord};
use report::ResultFile;

use super::{
    site::{Process, but, said, site},
    watching::listening,
};
use crate::scrape::scrape;

/// The value of a sample, named as it is written.
fn value(metrics: &str, sample: &str) -> u64 {
    let named = metrics.lines().filter_map(|line| line.split_once(' ')).find(|(name, _)| *name == sample);
    let (_, value) = named.unwrap_or_else(|| panic!("no {sample} in\n{metrics}"));
    value.parse().unwrap()
}

/// Has the parser of the Prometheus project read metrics, by the grammar of OpenMetrics.
fn foreign_families(metrics: &str, folder: &Path) -> String {
    let file = folder.join("metrics.txt");
    fs::write(&file, metrics).unwrap();
    let parse =
        "import sys; from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
print(' '.join(f'{f.name}:{f.type}:{f.unit}' for f in parse(open(sys.argv[1]).read())))";
    let output = Command::new("python3").args(["-c", parse]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}\n{metrics}", said(&output));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Metrics served of a run at any time, each state of it once.
fn all_metrics(run: &mut Process) -> Vec<String> {
    let mut lines = BufReader::new(run.0.stderr.take().unwrap()).lines();
    let address = lines.find_map(|line| {
        line.unwrap()
            .strip_prefix("metrics at http://")
            .and_then(|line| line.strip_suffix("/metrics"))
            .map(str::to_owned)
    });
    let address = address.unwrap();
    assert!(address.ends_with(&format!(":{}", listening(run.0.id())[0])));
    assert_eq!(listening(run.0.id()).len(), 1, "no other port");
    let mut scrapes: Vec<String> = Vec::new();
    while let Some(metrics) = scrape(&address) {
        if scrapes.last() != Some(&metrics) {
            scrapes.push(metrics);
        }
        thread::sleep(Duration::from_millis(10));
    }
    scrapes
}

fn assert_metrics(scrapes: &[String], result: &ResultFile, folder: &Path) {
    let families = "nsim_connections:gauge: nsim_events_sent:counter: nsim_deliveries:counter: \
         nsim_delivery_latency_p99_seconds:gauge:seconds nsim_cpu_seconds:counter:seconds nsim_blocks:counter:";
    let (first, last) = (scrapes.first().unwrap(), scrapes.last().unwrap());
    for metrics in [first, &scrapes[scrapes.len() / 2], last] {
        assert_eq!(foreign_families(metrics, folder), families);
    }
    for sample in ["nsim_events_sent_total", "nsim_deliveries_total"] {
        let values: Vec<u64> = scrapes.iter().map(|metrics| value(metrics, sample)).collect();
        assert!(values.is_sorted(), "{sample} falls: {values:?}");
        let grew = values.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!(grew >= 4, "{sample} grows within blocks: {values:?}");
    }
    let blocks = || result.cells.iter().flat_map(|cell| &cell.blocks);
    let ledger = |count: fn(&Counts) -> u64| {
        blocks().map(|block| count(&block.record.as_ref().unwrap().counts)).sum::<u64>()
    };
    assert_eq!(value(last, "nsim_deliveries_total"), ledger(|counts| counts.deliveries));
    assert_eq!(value(last, "nsim_events_sent_total"), ledger(|counts| counts.planned));
    let ends = ["valid", "suspect", "invalid", "failed"];
    let ends = ends.map(|end| value(last, &format!("nsim_blocks_total{{validity=\"{end}\"}}")));
    assert_eq!((ends.iter().sum::<u64>(), ends[3]), (blocks().count() as u64, 0));
}

const PYTHON: &str = include_str!("sums.py");

/// Figures that Python found of a metric of a block.
#[derive(serde::Deserialize)]
struct Recomputed(String, u32, u32, String, usize, bool, u64, u64, u64, u64, u64);

fn assert_sums(result: &ResultFile, folder: &Path) {
    let output = Command::new("python3").args(["-c", PYTHON]).arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
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
    let scrapes = all_metrics(&mut run);
    let code = run.end(Duration::from_secs(10));
    assert!(matches!(code, Some(0 | 3)), "{code:?}");
    agents.iter_mut().for_each(|agent| assert_eq!(agent.end(Duration::from_secs(5)), Some(0)));
    let result = ResultFile::read(&site.result_folder()).unwrap();
    let rounds = result.cells[0].blocks.iter().map(|block| block.round);
    assert!(rounds.collect::<BTreeSet<_>>().is_superset(&BTreeSet::from([0, 1])), "blocks have keys of both");
    assert_metrics(&scrapes, &result, site.folder.path());
    assert_sums(&result, &site.result_folder());
}
