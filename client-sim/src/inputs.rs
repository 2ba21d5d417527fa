//! What a run and `client-sim doctor` read before anything starts: scenario, corpus, relay.

use std::{
    io::{ErrorKind, Write, stdout},
    path::Path,
};

use anyhow::Context;
use codecs::Format;
use corpus::{Corpus, CorpusError};
use wire::{Endpoint, Header};

use crate::{
    scenario::Scenario,
    workload::{Share, Workload},
};

/// A mistake in the command line, the scenario or the corpus; the text says how to correct it.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub(crate) struct UsageError(pub(crate) anyhow::Error);

/// Loads a scenario, changed as asked, and the corpus.
pub(crate) fn load(
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
    Ok((scenario, events(corpus, skip_invalid)?))
}

/// Reads `--corpus`, and says what `--skip-invalid` left out; without a file the bundled sample.
pub(crate) fn events(file: Option<&Path>, skip_invalid: bool) -> Result<Corpus, CorpusError> {
    let Some(file) = file else { return Ok(Corpus::bundled()) };
    let corpus = Corpus::read_with(file, skip_invalid)?;
    if corpus.skipped.count() > 0 {
        report(&format!("{}: {}; `corpus verify` lists all", file.display(), corpus.skipped));
    }
    Ok(corpus)
}

/// Plans the whole scenario over the corpus.
pub(crate) fn plan_over(
    scenario: &Scenario,
    corpus: &Corpus,
    seed: u64,
    formats: &[Format],
) -> anyhow::Result<Workload> {
    plan_share_over(scenario, corpus, seed, formats, Share::WHOLE)
}

/// Plans an agent's share of the scenario over the corpus.
pub(crate) fn plan_share_over(
    scenario: &Scenario,
    corpus: &Corpus,
    seed: u64,
    formats: &[Format],
    share: Share,
) -> anyhow::Result<Workload> {
    Workload::plan_share(scenario, corpus, seed, formats, share)
        .with_context(|| format!("cannot play scenario {} with corpus {}", scenario.name, corpus.name))
}

/// The relay of a URL with the header fields of requests to it and, for `wss://`, the root
/// certificates to trust, read once for all connections.
pub(crate) fn endpoint(url: &str, ca: Option<&Path>, headers: &[Header]) -> anyhow::Result<Endpoint> {
    let relay = Endpoint::new(url.parse()?, ca).context("cannot check the relay's certificate")?;
    relay.with_headers(headers.to_vec()).context("--header")
}

/// Prints a line to standard error: standard output is for results.
#[expect(clippy::print_stderr, reason = "messages for people go to standard error")]
pub(crate) fn report(text: &str) {
    eprintln!("{text}");
}

/// Prints a result to standard output. A pipe that its reader closed is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}
