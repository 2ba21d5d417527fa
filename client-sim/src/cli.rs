//! The program: parses the command line, runs the command and chooses the exit code.

use std::{collections::BTreeSet, ffi::OsString, process::ExitCode};

use anyhow::{Context, ensure};
use client::auth;
use codecs::{Format, hex};
use measure::{Exit, RunRecord, Status, ValidityClass};

use crate::{
    args::{Args, Command, Doctor, Explain},
    commands::{doctor, floor, run, serve},
    interruption::Interrupted,
    links,
};
use program::{UsageError, print, report};
use workload::{
    Workload, explain,
    inputs::{load, plan_over},
    plan_facts::PlanFacts,
};

/// Runs the program. `args` are the arguments after its name and role.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = std::iter::once("client-sim".into()).chain(args).collect();
    let mut args = match program::parse::<Args>(&args) {
        Ok(args) => args,
        Err(not_parsed) => return not_parsed.code,
    };
    program::log("warn");
    match &args.command {
        None if args.serve.is_some() => done(serve::serve(&args).map(|()| Exit::Success)),
        None => done(run::run(&mut args).map(|record| exit(&record))),
        Some(Command::Doctor(args)) => examine(args),
        Some(Command::Links { check: true, links, .. }) => ask_links(links::check(links.map(usize::from))),
        Some(Command::Links { capacity: true, .. }) => {
            ask_links(links::capacity().map(|text| (Exit::Success, text)))
        }
        Some(Command::Links { .. }) => say(links::list()),
        Some(Command::Scenarios) => say(explain::list()),
        Some(Command::Formats) => say(Ok(explain::formats())),
        Some(Command::Explain(args)) => say(plan(args)),
    }
}

/// Ends the program with its exit code; of an error, which is said, with the one that belongs to it.
fn ended(done: anyhow::Result<Exit>, exit_of: impl FnOnce(&anyhow::Error) -> Exit) -> ExitCode {
    let exit = done.unwrap_or_else(|error| {
        report(&format!("client-sim: {error:#}"));
        if error.is::<UsageError>() { Exit::Usage } else { exit_of(&error) }
    });
    exit.into()
}

fn done(played: anyhow::Result<Exit>) -> ExitCode {
    ended(played, |error| {
        let is_not_possible = error.is::<floor::NotPossible>()
            || error.is::<link::NotPossible>()
            || error.is::<links::TooMuch>();
        match () {
            () if error.is::<Interrupted>() => Exit::Interrupted,
            () if is_not_possible => Exit::NotPossible,
            () => Exit::Error,
        }
    })
}

/// Runs `client-sim doctor`: exit code 1 when a scenario that was asked for cannot be played.
fn examine(args: &Doctor) -> ExitCode {
    let examined = doctor::run(args).and_then(|(fine, text)| {
        print(&text)?;
        Ok(if fine || args.scenario.is_empty() { Exit::Success } else { Exit::Error })
    });
    ended(examined, |error| if error.is::<Interrupted>() { Exit::Interrupted } else { Exit::Error })
}

/// Prints what a measurement of links came to, or why there is none.
fn ask_links(asked: anyhow::Result<(Exit, String)>) -> ExitCode {
    let asked = asked.and_then(|(exit, text)| print(&text).map(|()| exit));
    ended(asked, |error| if error.is::<links::TooBusy>() { Exit::Invalid } else { Exit::NotPossible })
}

/// Prints what a command says, or why it cannot.
fn say(text: anyhow::Result<String>) -> ExitCode {
    ended(text.and_then(|text| print(&text)).map(|()| Exit::Success), |_| Exit::Usage)
}

/// The plan of a scenario.
fn plan(args: &Explain) -> anyhow::Result<String> {
    let name = args.name.as_ref().or(args.scenario.as_ref());
    let name = name.context("name a scenario (client-sim scenarios)")?;
    let corpus = args.corpus.as_deref();
    let (mut scenario, corpus) = load(name, &args.set, args.seconds, corpus, args.skip_invalid)?;
    let formats: Vec<_> = Format::core().collect();
    if args.load.len() > 1 {
        ensure!(args.agents.is_none(), "--agents splits the plan of one --load");
        let step = |load: &f64| {
            let mut scenario = scenario.clone();
            scenario.set_load(*load);
            let plan = plan_over(&scenario, &corpus, args.seed, &formats)?;
            Ok(PlanFacts::from_workload(&plan).per_second(&scenario))
        };
        let steps = args.load.iter().map(step).collect::<anyhow::Result<Vec<_>>>()?;
        return Ok(if args.json {
            serde_json::to_string_pretty(&steps)? + "\n"
        } else {
            explain::steps(&steps)
        });
    }
    args.load.iter().for_each(|load| scenario.set_load(*load));
    scenario.only_new |= args.pubkeys;
    let workload = plan_over(&scenario, &corpus, args.seed, &formats)?;
    if args.pubkeys {
        return Ok(signers(&workload, args.seed));
    }
    let (scenario, corpus, workload) = (&scenario, &corpus, &workload);
    let explanation =
        explain::Explanation { scenario, corpus, workload, seed: args.seed, agents: args.agents };
    if args.json { explanation.json() } else { explanation.text() }
}

/// The public keys that sign what a run of this plan and its rehearsal send, one a line.
fn signers(workload: &Workload, seed: u64) -> String {
    let client = |n| {
        let mut proof = auth::proof("", "", 0);
        auth::sign_proof(&mut proof, n, None);
        proof.pubkey
    };
    let clients = (0..workload.roles.len()).filter(|_| workload.proves()).map(client);
    let authors = workload.events.iter().map(|event| event.pubkey);
    let keys: BTreeSet<[u8; 32]> = authors.chain(clients).chain(doctor::keys(seed).public()).collect();
    keys.iter().map(|key| hex::encode(key) + "\n").collect()
}

/// The exit code of a run. An early end comes before all other reasons, because it unbalances the
/// ledger.
fn exit(record: &RunRecord) -> Exit {
    match (&record.status, record.counts.balanced(), record.validity.class) {
        (Status::Interrupted, _, _) => Exit::Interrupted,
        (Status::Incomplete { .. }, _, _) => Exit::Incomplete,
        (Status::Complete, Err(_), _) => Exit::Unbalanced,
        (Status::Complete, Ok(()), ValidityClass::Invalid) => Exit::Invalid,
        (Status::Complete, Ok(()), _) if record.missed_bounds().next().is_some() => Exit::BoundMissed,
        (Status::Complete, Ok(()), _) => Exit::Success,
    }
}
