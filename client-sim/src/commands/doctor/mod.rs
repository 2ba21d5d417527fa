//! Rehearses a plan with a relay before a run depends on it: `client-sim doctor`, and the short form
//! of it that every run with `--url` begins with.
//!
//! [`rehearsal`] talks to the relay through `talk` and fills in [`answers`]; `table` turns answers
//! into verdicts without a socket.

pub mod answers;
pub(crate) mod handshakes;
pub(crate) mod needs;
mod rehearsal;
pub(crate) mod table;
mod talk;
#[cfg(test)]
mod tests;

use std::{
    convert::Infallible,
    hash::{BuildHasher, RandomState},
    path::Path,
    process,
    time::Duration,
};

use anyhow::Context;
use codecs::Format;
use corpus::{Corpus, Keys, MOST_WORK_BITS, Rules, Signing};
use program::{UsageError, report};
use tokio::{
    task::spawn_blocking,
    time::{sleep, timeout},
};
use wire::{Endpoint, RelayUrl};
use workload::{Workload, scenario::Scenario};

use self::{
    answers::{Answers, Info, Verdict},
    needs::Needs,
    talk::Peer,
};
use crate::{
    args,
    interruption::{self, unless_interrupted},
    sockets::dial,
};

/// Time for the rehearsal of a plan.
const PATIENCE: Duration = Duration::from_secs(120);

/// Time for all handshakes, of which a slow one is no fault of scenarios.
const HANDSHAKES: Duration = Duration::from_secs(60);

/// How long a relay may be silent while answers are missing.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);

/// How often is told how far proof of work is.
pub(crate) const TELL_EVERY: Duration = Duration::from_secs(2);

/// Seconds of a scenario whose plan is looked at: its shapes do not depend on its length.
const PLAN_SECONDS: f64 = 1.0;

/// Runs `client-sim doctor`; whether each of the scenarios can be played, and the text to print.
///
/// # Errors
/// As [`examine`], or when a signal comes meanwhile.
pub(crate) fn run(args: &args::Doctor) -> anyhow::Result<(bool, String)> {
    let examining = examine(args, false);
    let answers = interruption::block_on(unless_interrupted(&mut interruption::listen()?, examining))?;
    let fine = answers.scenarios.iter().all(|verdict| verdict.reasons.is_empty());
    let text = match args.json {
        true => serde_json::to_string_pretty(&answers)? + "\n",
        false => table::text(&answers),
    };
    Ok((fine, text))
}

/// Rehearses scenarios with a relay, makes the offers of the command line, and says so unless `quiet`.
///
/// # Errors
/// When the command line is wrong, or the relay cannot be reached.
pub async fn examine(args: &args::Doctor, quiet: bool) -> anyhow::Result<Answers> {
    let relay = dial::endpoint(&args.url, args.ca.as_deref(), &args.header).map_err(UsageError)?;
    let corpus = workload::inputs::events(args.corpus.as_deref(), args.skip_invalid);
    let corpus = corpus.map_err(|error| UsageError(error.into()))?;
    let named = !args.scenario.is_empty();
    let all = || Scenario::names().into_iter().map(str::to_owned).collect();
    let names = if named { args.scenario.clone() } else { all() };
    let (mut needs, mut scenarios) = (Needs::default(), Vec::new());
    needs.add_events(&corpus.events);
    // Kinds that no scenario writes are not tried.
    needs.written.clear();
    for name in names {
        let mut scenario = Scenario::load(&name).map_err(UsageError)?;
        // Scenarios of phases keep their own length.
        scenario.set_seconds(PLAN_SECONDS).ok();
        scenario.only_new = true;
        let own = plan(&scenario, &corpus).map(|workload| {
            let mut own = Needs::default();
            for needs in [&mut needs, &mut own] {
                needs.add_plan(&workload, &scenario, &corpus);
            }
            own
        });
        match own {
            Err(error) if named => return Err(UsageError(error).into()),
            // This corpus has not what every scenario asks for.
            own => scenarios.push((scenario, own)),
        }
    }
    if !quiet {
        let most_s = (PATIENCE + HANDSHAKES).as_secs();
        report(&format!("rehearses with {}, for {most_s} s at most", relay.url()));
    }
    let signing = args.signing.read().map_err(UsageError)?;
    let seed = RandomState::new().hash_one(process::id());
    let mut answers = ask(&relay, &needs, (seed, &signing), quiet, SILENCE).await?;
    if answers.stopped.is_none() {
        let tokens = answers.info.as_ref().map_or(&[][..], |info| &info.tokens);
        let offers = (&args.formats[..], &args.compressions[..]);
        answers.handshakes = handshakes::all(&relay, offers, tokens, HANDSHAKES).await;
    }
    needs.auth = scenarios.iter().all(|(scenario, _)| scenario.auth);
    let rules = answers.rules(&needs);
    answers.corpus_events = corpus.events.len();
    answers.refused_events = table::refused(&rules, &corpus.events);
    let mut findings = table::findings(&answers);
    for (scenario, own) in scenarios {
        let name = scenario.name.clone();
        let unplanned = |error| vec![format!("{error:#}")];
        let reasons = own.map_or_else(unplanned, |own| reasons(&answers, scenario, &own, &corpus));
        findings.extend(reasons.clone());
        answers.scenarios.push(Verdict { scenario: name, reasons });
    }
    answers.settings = table::settings(answers.info.as_ref(), &findings);
    Ok(answers)
}

/// The throw-away keys of a rehearsal before a run with this seed.
pub(crate) fn keys(seed: u64) -> Keys {
    Keys::derived(&format!("doctor {seed:016x}"), rehearsal::AUTHORS)
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

/// Rehearses a plan with these needs, by given keys or those of the seed.
///
/// # Errors
/// When the relay cannot be reached.
pub(crate) async fn ask(
    relay: &Endpoint,
    needs: &Needs,
    (seed, signing): (u64, &Signing),
    quiet: bool,
    patience: Duration,
) -> anyhow::Result<Answers> {
    let mut answers = Answers { url: relay.url().to_string(), ..Answers::default() };
    let endpoint = relay.clone();
    let fetching = spawn_blocking(move || Info::fetch(&endpoint));
    match fetching.await.context("the request for the document panicked")? {
        Ok(info) => answers.info = Some(info),
        Err(error) => answers.no_info = Some(format!("{error:#}")),
    }
    let asked = answers.info.as_ref().and_then(|info| info.limitation.get(answers::WORK_BITS).copied());
    let bits = asked.unwrap_or(0).max(signing.work_bits.into());
    let Some(work_bits) = u8::try_from(bits).ok().filter(|bits| *bits <= MOST_WORK_BITS) else {
        answers.stopped = Some(format!(
            "its NIP-11 document asks for {bits} bits of proof of work ({}, NIP-13), and events are given \
             {MOST_WORK_BITS} at most, which take about a second each: lower it on the relay",
            answers::WORK_BITS
        ));
        return Ok(answers);
    };
    answers.work_bits = work_bits;
    let keys = signing.keys.as_ref().map_or_else(|| keys(seed), Keys::for_rehearsal);
    let peer = Peer::new(relay.clone(), (keys, work_bits), patience);
    // Some tens of events, each of which takes about a second at 20 bits.
    let time = PATIENCE + Duration::from_millis((1 << work_bits) / 8);
    let rehearsed = tokio::select! {
        rehearsed = timeout(time, rehearsal::rehearse(&peer, needs, &mut answers)) => rehearsed,
        never = tell_of_work(&peer, work_bits), if work_bits > 0 && !quiet => match never {},
    };
    match rehearsed {
        Ok(rehearsed) => rehearsed.with_context(|| format!("cannot connect to {}", relay.url()))?,
        Err(_) => answers.stopped = Some(format!("it did not end within {} s", time.as_secs())),
    }
    answers.rate = peer.rate.take();
    Ok(answers)
}

/// Says how far the proof of work is.
async fn tell_of_work(peer: &Peer, bits: u8) -> Infallible {
    loop {
        sleep(TELL_EVERY).await;
        let events: usize = peer.signed.borrow().values().map(Vec::len).sum();
        report(&format!("proof of work of {bits} bits: {events} events of the rehearsal"));
    }
}

fn plan(scenario: &Scenario, corpus: &Corpus) -> anyhow::Result<Workload> {
    workload::inputs::plan_over(scenario, corpus, 1, &[Format::JSON])
}

/// Why the scenario cannot be played with what the relay does not refuse.
fn reasons(answers: &Answers, mut scenario: Scenario, needs: &Needs, corpus: &Corpus) -> Vec<String> {
    let mut reasons = table::reasons(answers, needs);
    scenario.rules = answers.rules(needs);
    if reasons.is_empty()
        && scenario.rules != Rules::default()
        && let Err(error) = plan(&scenario, corpus)
    {
        reasons.extend(table::set_aside(&scenario.rules));
        reasons.push(format!("{error:#}"));
    }
    reasons
}
