//! Runs at once over one server.

use std::{
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use measure::{Counts, RunRecord};

use crate::site::{Process, Site, but, free, site};

/// A run with a relay and two agents of its own.
struct Run {
    results: PathBuf,
    processes: [Process; 3],
}

impl Run {
    fn start(site: &Site, name: &str) -> Run {
        let (address, results) = (free(), site.folder.path().join(name));
        let target = format!("ws://{address}");
        let agent = |index| site.player(index, 2, &["--allow-target", &target, "--run", name]);
        let mut run = but(&site.run_with(2, 1, &["--relay-listen", &address]), "--out", results.as_os_str());
        run.args(["--run", name, "--seed", "7", "--keep-agent-records"]);
        Run { processes: [agent(0), agent(1), Process(run.spawn().unwrap())], results }
    }

    /// The sum of its agents' own records of the first block.
    fn first_block(&mut self) -> RunRecord {
        let since = Instant::now();
        loop {
            let records: Option<Vec<RunRecord>> =
                [0, 1].map(|index| self.record(index)).into_iter().collect();
            if let Some(records) = records {
                return RunRecord::merge(records).unwrap();
            }
            for process in &mut self.processes {
                assert!(process.0.try_wait().unwrap().is_none(), "{:?} has ended", self.results);
            }
            assert!(since.elapsed() < Duration::from_secs(60), "{:?} has no record", self.results);
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// `None` until it is there, and whole.
    fn record(&self, index: u16) -> Option<RunRecord> {
        let folder = fs::read_dir(&self.results).ok()?.next()?.ok()?.path();
        RunRecord::read(&folder.join(format!("running/000-000-json+none.agent-{index}.json"))).ok()
    }
}

/// The ledger without what depends on the moment: a live event that comes between EOSE and CLOSE.
fn timeless(counts: Counts) -> Counts {
    Counts { deliveries_after_close: 0, ..counts }
}

#[test]
#[ignore = "needs nats-server"]
fn two_runs_at_once_have_the_ledger_of_a_run_alone_over_nats() {
    let site = site();
    let mut at_once = ["a", "b"].map(|name| Run::start(&site, name));
    let played = at_once.each_mut().map(Run::first_block);
    drop(at_once);
    let alone = Run::start(&site, "alone").first_block();
    assert_eq!(alone.counts.balanced(), Ok(()));
    assert!(alone.counts.acked >= 50, "{:?}", alone.counts);
    for record in played {
        assert_eq!(timeless(record.counts), timeless(alone.counts));
        assert_eq!((record.agents.len(), record.connections), (2, alone.connections));
    }
}
