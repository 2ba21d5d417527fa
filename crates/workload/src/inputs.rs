//! A scenario and a corpus by their names, and the plan over them.

use std::path::Path;

use anyhow::{Context, ensure};
use codecs::Format;
use corpus::{Corpus, CorpusError};
use program::report;

use crate::{
    plan::{Share, Workload},
    scenario::Scenario,
};

/// Loads a scenario, changed as asked, and the corpus; of a recording, its own events.
pub fn load(
    name: &str,
    set: &[String],
    seconds: Option<f64>,
    corpus: Option<&Path>,
    skip_invalid: bool,
) -> anyhow::Result<(Scenario, Corpus)> {
    let mut scenario = Scenario::load_with(name, set)?;
    if let Some(seconds) = seconds {
        scenario.set_seconds(seconds)?;
    }
    let corpus = match &scenario.replay {
        None => events(corpus, skip_invalid)?,
        Some(replay) => {
            ensure!(
                corpus.is_none(),
                "--corpus: {name} is a recording, which has its own events: leave it out"
            );
            replay.recorded.corpus()
        }
    };
    Ok((scenario, corpus))
}

/// Reads `--corpus`, and says what `--skip-invalid` left out; without a file the bundled sample.
pub fn events(file: Option<&Path>, skip_invalid: bool) -> Result<Corpus, CorpusError> {
    let Some(file) = file else { return Ok(Corpus::bundled()) };
    let corpus = Corpus::read_with(file, skip_invalid)?;
    if corpus.skipped.count() > 0 {
        report(&format!("{}: {}; `corpus verify` lists all", file.display(), corpus.skipped));
    }
    Ok(corpus)
}

/// Plans the whole scenario over the corpus.
pub fn plan_over(
    scenario: &Scenario,
    corpus: &Corpus,
    seed: u64,
    formats: &[Format],
) -> anyhow::Result<Workload> {
    plan_share_over(scenario, corpus, seed, formats, Share::WHOLE)
}

/// Plans an agent's share of the scenario over the corpus.
pub fn plan_share_over(
    scenario: &Scenario,
    corpus: &Corpus,
    seed: u64,
    formats: &[Format],
    share: Share,
) -> anyhow::Result<Workload> {
    Workload::plan_share(scenario, corpus, seed, formats, share)
        .with_context(|| format!("cannot play scenario {} with corpus {}", scenario.name, corpus.name))
}
