//! The program: parses the command line, runs the command and chooses the exit code.

use std::{collections::BTreeSet, ffi::OsString, io::stderr, process::ExitCode};

use anyhow::{Context, ensure};
use client::auth;
use codecs::{Format, hex};
use measure::{Exit, RunRecord, Status, ValidityClass};
use tracing_subscriber::EnvFilter;

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
    tracing_subscriber::fmt()
        .with_env_filter(log_filter())
        .with_writer(stderr)
        // It would print them to standard error, and panic where nobody reads that.
        .log_internal_errors(false)
        .with_ansi(anstream::AutoStream::choice(&stderr()) != anstream::ColorChoice::Never)
        .init();
    match &args.command {
        None if args.serve.is_some() => done(serve::serve(&args).map(|()| Exit::Success)),
        None => done(run::run(&mut args).map(|record| exit(&record))),
        Some(Command::Doctor(args)) => examine(args),
        Some(Command::Links { check: true, links, .. }) => check_links(*links),
        Some(Command::Links { capacity: true, .. }) => {
            ask_links(links::capacity().map(|text| (links::Outcome::Right, text)))
        }
        Some(Command::Links { .. }) => say(links::list()),
        Some(Command::Scenarios) => say(explain::list()),
        Some(Command::Formats) => say(Ok(explain::formats())),
        Some(Command::Explain(args)) => say(plan(args)),
    }
}

/// The exit code of a scenario that was played, or why it was not.
fn done(played: anyhow::Result<Exit>) -> ExitCode {
    let exit = played.unwrap_or_else(|error| {
        report(&format!("client-sim: {error:#}"));
        match () {
            () if error.is::<UsageError>() => Exit::Usage,
            () if error.is::<floor::NotPossible>()
                || error.is::<link::NotPossible>()
                || error.is::<links::TooMuch>() =>
            {
                Exit::NotPossible
            }
            () => Exit::Error,
        }
    });
    exit.into()
}

/// Logs of the HTTP client, which hold the heads of requests and so what is secret in them.
const SECRET_LOGS: [&str; 2] = ["ureq=off", "ureq_proto::util=off"];

/// The filter of RUST_LOG, but for secrets.
fn log_filter() -> EnvFilter {
    let asked = EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    let without = SECRET_LOGS.map(|directive| directive.parse().expect("a constant that was tried"));
    without.into_iter().fold(asked, EnvFilter::add_directive)
}

/// Runs `client-sim doctor`: exit code 1 when a scenario that was asked for cannot be played.
fn examine(args: &Doctor) -> ExitCode {
    let examined = doctor::run(args).and_then(|(fine, text)| {
        print(&text)?;
        Ok(fine || args.scenario.is_empty())
    });
    match examined {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => Exit::Error.into(),
        Err(error) => {
            report(&format!("client-sim: {error:#}"));
            match () {
                () if error.is::<UsageError>() => Exit::Usage,
                () if error.is::<Interrupted>() => Exit::Interrupted,
                () => Exit::Error,
            }
            .into()
        }
    }
}

/// Runs `client-sim links --check`.
fn check_links(users: Option<u16>) -> ExitCode {
    ask_links(links::check(users.map(usize::from)))
}

/// Prints what a measurement of links came to, or why there is none.
fn ask_links(asked: anyhow::Result<(links::Outcome, String)>) -> ExitCode {
    match asked.and_then(|(outcome, text)| print(&text).map(|()| outcome)) {
        Ok(links::Outcome::Right) => ExitCode::SUCCESS,
        Ok(links::Outcome::Wrong) => Exit::Error.into(),
        Ok(links::Outcome::Untested) => Exit::Invalid.into(),
        Err(error) => {
            report(&format!("client-sim: {error:#}"));
            if error.is::<links::TooBusy>() { Exit::Invalid } else { Exit::NotPossible }.into()
        }
    }
}

/// Prints what a command says, or why it cannot.
fn say(text: anyhow::Result<String>) -> ExitCode {
    match text.and_then(|text| print(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&format!("client-sim: {error:#}"));
            Exit::Usage.into()
        }
    }
}

/// The plan of a scenario.
fn plan(args: &Explain) -> anyhow::Result<String> {
    let Explain {
        name,
        scenario,
        set,
        corpus,
        skip_invalid,
        seed,
        seconds,
        load: loads,
        agents,
        pubkeys,
        json,
    } = args;
    let name = name.as_ref().or(scenario.as_ref()).context("name a scenario (client-sim scenarios)")?;
    let (mut scenario, corpus) = load(name, set, *seconds, corpus.as_deref(), *skip_invalid)?;
    let formats: Vec<_> = Format::core().collect();
    if loads.len() > 1 {
        ensure!(agents.is_none(), "--agents splits the plan of one --load");
        let step = |load: &f64| {
            let mut scenario = scenario.clone();
            scenario.set_load(*load);
            let plan = plan_over(&scenario, &corpus, *seed, &formats)?;
            Ok(PlanFacts::from_workload(&plan).per_second(&scenario))
        };
        let steps = loads.iter().map(step).collect::<anyhow::Result<Vec<_>>>()?;
        return if *json { Ok(serde_json::to_string_pretty(&steps)? + "\n") } else { explain::steps(&steps) };
    }
    if let [load] = loads[..] {
        scenario.set_load(load);
    }
    scenario.only_new |= *pubkeys;
    let workload = plan_over(&scenario, &corpus, *seed, &formats)?;
    if *pubkeys {
        return Ok(signers(&workload, *seed));
    }
    let explanation = explain::Explanation {
        scenario: &scenario,
        corpus: &corpus,
        workload: &workload,
        seed: *seed,
        agents: *agents,
    };
    if *json { explanation.json() } else { explanation.text() }
}

/// The public keys that sign what a run of this plan and its rehearsal send, one a line.
fn signers(workload: &Workload, seed: u64) -> String {
    let client = |n| {
        let mut proof = auth::proof("", "", 0);
        auth::sign_proof(&mut proof, n, None);
        proof.pubkey
    };
    let clients = (0..workload.roles.len()).filter(|_| workload.auth).map(client);
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
