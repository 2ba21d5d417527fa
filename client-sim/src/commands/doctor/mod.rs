//! Rehearses a plan with a relay before a run depends on it: `client-sim doctor`, and the short form
//! of it that every run with `--url` begins with.
//!
//! [`rehearsal`] talks to the relay through `talk` and fills in [`answers`]; `table` turns answers
//! into verdicts without a socket; `settings` has the names that external relays give to their
//! bounds.

pub(crate) mod answers;
mod events;
mod handshakes;
pub(crate) mod info;
pub(crate) mod needs;
mod rehearsal;
mod settings;
pub(crate) mod table;
mod talk;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    path::Path,
    time::Duration,
};

use anyhow::Context;
use codecs::Format;
use corpus::Corpus;
use program::Interrupt;
use serde::Serialize;
use wire::{Endpoint, RelayUrl};

use self::{
    answers::{Answers, Demand},
    needs::Needs,
    table::{Reason, Refused, Verdict},
    talk::{Patience, Peer, Talk},
};
use crate::{
    args,
    interruption::{self, unless_interrupted},
    sockets::dial,
};
use program::UsageError;
use workload::{Workload, scenario::Scenario};

/// Time for the whole rehearsal.
const PATIENCE: Duration = Duration::from_secs(120);

/// Seconds of a scenario whose plan is looked at: its shapes do not depend on its length.
const PLAN_SECONDS: f64 = 1.0;

/// The output of `client-sim doctor --json`.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    answers: &'a Answers,
    corpus: &'a str,
    refused_events: &'a Refused,
    scenarios: &'a [Verdict],
    /// Settings to change on the relay.
    settings: &'a [String],
}

/// Runs `client-sim doctor`; whether each of the scenarios can be played, and the text to print.
///
/// # Errors
/// When the command line is wrong, the relay cannot be reached, or a signal comes meanwhile.
pub(crate) fn run(args: &args::Doctor) -> anyhow::Result<(bool, String)> {
    let relay = dial::endpoint(&args.url, args.ca.as_deref(), &args.header).map_err(UsageError)?;
    let corpus = workload::inputs::events(args.corpus.as_deref(), args.skip_invalid);
    let corpus = corpus.map_err(|error| UsageError(error.into()))?;
    let names = match args.scenario.as_slice() {
        [] => Scenario::names().into_iter().map(str::to_owned).collect(),
        named => named.to_vec(),
    };
    let named = !args.scenario.is_empty();
    // Kinds that no scenario writes are not tried.
    let mut needs = Needs { written: BTreeMap::new(), ..Needs::from_events(&corpus.events) };
    let mut scenarios = Vec::new();
    for name in names {
        let scenario = brief(&name).map_err(UsageError)?;
        match plan(&scenario, &corpus) {
            Ok(workload) => {
                let own = Needs::from_workload(&workload);
                needs.join(&own);
                scenarios.push((scenario, Some(own)));
            }
            Err(error) if named => return Err(UsageError(error).into()),
            // This corpus has not what every scenario asks for.
            Err(_) => scenarios.push((scenario, None)),
        }
    }
    let offers = handshakes::Offers {
        formats: args.formats.clone(),
        compressions: args.compressions.clone(),
        batched: true,
    };
    program::report(&format!("rehearses with {}, for {} s at most", relay.url(), PATIENCE.as_secs()));
    let asking = ask(&relay, &needs, Some(&offers), Patience::STANDING);
    let answers = interruption::block_on(unless_interrupted(&mut interruption::listen()?, asking))?;
    let refused = table::refused(&answers, &corpus.events);
    let verdicts: Vec<_> = scenarios
        .into_iter()
        .map(|(scenario, needs)| verdict(&answers, scenario, needs.as_ref(), &corpus, &refused))
        .collect();
    let fine = verdicts.iter().all(|verdict| verdict.reasons.is_empty());
    if !args.json {
        return Ok((fine, table::text(&answers, &refused, corpus.events.len(), &verdicts)));
    }
    let settings = table::settings(&answers, verdicts.iter().flat_map(|verdict| &verdict.reasons));
    let report = Report {
        answers: &answers,
        corpus: &corpus.name,
        refused_events: &refused,
        scenarios: &verdicts,
        settings: &settings,
    };
    Ok((fine, serde_json::to_string_pretty(&report)? + "\n"))
}

/// The answers that a plan depends on, from a relay that a run is about to use.
///
/// # Errors
/// When the relay cannot be reached, or a signal comes meanwhile.
pub(crate) fn before_a_run(
    relay: &Endpoint,
    needs: &Needs,
    interrupt: &mut Interrupt,
) -> anyhow::Result<Answers> {
    // Without the burst.
    let mut needs = needs.clone();
    needs.most.remove(&Demand::Rate);
    let asking = ask(relay, &needs, None, Patience::STANDING);
    interruption::block_on(unless_interrupted(interrupt, asking))
}

/// Reads what `client-sim doctor --json` wrote of the relay at `url`, where there is one. Answers
/// that name no relay are taken, too.
///
/// # Errors
/// When the file is not that, or is of another relay.
pub(crate) fn read(file: &Path, url: Option<&RelayUrl>) -> anyhow::Result<Answers> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let answers: Answers = serde_json::from_str(&text)
        .with_context(|| format!("{} is not what client-sim doctor --json writes", file.display()))?;
    let (of, Some(url)) = (&answers.url, url) else { return Ok(answers) };
    // Files of earlier versions have the address as it was given.
    let shown = of.parse().map_or_else(|_| of.clone(), |of: RelayUrl| of.to_string());
    anyhow::ensure!(
        of.is_empty() || shown == url.to_string(),
        "--doctor {} is about {shown}, not {url}; write it anew: client-sim doctor --url {url} --json",
        file.display()
    );
    Ok(answers)
}

async fn ask(
    relay: &Endpoint,
    needs: &Needs,
    offers: Option<&handshakes::Offers>,
    patience: Patience,
) -> anyhow::Result<Answers> {
    let url = relay.url();
    let mut answers = Answers { url: url.to_string(), ..Answers::default() };
    let endpoint = relay.clone();
    let fetching = move || info::fetch(&endpoint);
    match tokio::task::spawn_blocking(fetching).await.context("the request for the document panicked")? {
        Ok(info) => answers.info = Some(info),
        Err(error) => answers.no_info = Some(format!("{error:#}")),
    }
    let words = format!("doctor {:016x}", RandomState::new().hash_one(std::process::id()));
    let peer = Peer { relay: relay.clone(), words, patience };
    let mut talk = Talk::open(&peer).await.with_context(|| format!("cannot connect to {url}"))?;
    let rehearsing = async {
        rehearsal::rehearse(&mut talk, &peer, needs, &mut answers).await;
        if let Some(offers) = offers {
            let tokens = answers.info.as_ref().map_or(&[][..], |info| &info.tokens);
            answers.handshakes = handshakes::all(&peer, offers, tokens).await;
            talk.spent.connections += answers.handshakes.len() as u64;
        }
    };
    let ended = tokio::time::timeout(PATIENCE, rehearsing).await.is_err();
    if ended {
        let rate = talk.rate.as_ref().map(|said| format!("; the relay said {said:?}")).unwrap_or_default();
        answers.stopped = Some(format!("it did not end within {} s{rate}", PATIENCE.as_secs()));
    }
    answers.spent = talk.close().await;
    Ok(answers)
}

fn brief(name: &str) -> anyhow::Result<Scenario> {
    let mut scenario = Scenario::load(name)?;
    // Scenarios of phases keep their own length.
    scenario.set_seconds(PLAN_SECONDS).ok();
    scenario.only_new = true;
    Ok(scenario)
}

fn plan(scenario: &Scenario, corpus: &Corpus) -> anyhow::Result<Workload> {
    workload::inputs::plan_over(scenario, corpus, 1, &[Format::JSON])
}

/// Whether the scenario can be played with what the relay does not refuse.
fn verdict(
    answers: &Answers,
    mut scenario: Scenario,
    needs: Option<&Needs>,
    corpus: &Corpus,
    refused: &Refused,
) -> Verdict {
    let name = scenario.name.clone();
    let mut reasons = needs.map_or_else(Vec::new, |needs| table::reasons(answers, needs));
    if needs.is_none() || (reasons.is_empty() && !refused.is_empty()) {
        scenario.rules = answers.rules(scenario.auth);
        if let Err(error) = plan(&scenario, corpus) {
            reasons.extend(table::set_aside(answers, scenario.auth));
            reasons.push(Reason::from(format!("{error:#}")));
        }
    }
    Verdict { scenario: name, reasons }
}
