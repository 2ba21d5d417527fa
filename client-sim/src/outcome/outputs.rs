//! Output of a run: files, tried before it begins, and words for people.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, bail};
use measure::RunRecord;
use program::{print, report as say};

use crate::{args::Args, outcome::summary, sockets::swarm::Outcome};
use client::{Words, incidents::Incidents};

/// Tries the files that are written at the end.
pub(crate) fn try_all(args: &Args) -> anyhow::Result<()> {
    let files = [("--record", &args.record), ("--html", &args.html), ("--ledger", &args.ledger)];
    for (place, (flag, file)) in files.iter().enumerate() {
        let Some(file) = file else { continue };
        measure::try_file(file).context(*flag)?;
        if let Some((other, _)) = files[..place].iter().find(|(_, other)| other.as_ref() == Some(file)) {
            bail!("{other} and {flag} name the same file; give each its own");
        }
    }
    Ok(())
}

/// Texts about a run that its record lacks: the first words of the relay and the system.
pub(crate) type Said = BTreeMap<Words, String>;

/// What is to be said of a run's clients. Without a refusal a reader that was cut off counts as one.
pub(crate) fn said(outcome: &Outcome) -> Said {
    let reports = || outcome.clients.iter().map(|(_, client)| &client.report);
    let mut said = Said::new();
    for (what, words) in reports().flat_map(|report| &report.words) {
        said.entry(*what).or_insert_with(|| words.clone());
    }
    if let Some(why) = reports().find_map(|report| report.cut_off.as_ref()) {
        said.entry(Words::Complaint).or_insert_with(|| format!("to a slow reader, {why}"));
    }
    said
}

/// The files that a run writes, as its summary names them.
fn files(args: &Args) -> String {
    let files = [("record", &args.record), ("page", &args.html), ("ledger", &args.ledger)];
    let named = files.into_iter().filter_map(|(what, file)| Some((what, file.as_ref()?)));
    named.map(|(what, file)| format!("{what}: {}, ", file.display())).collect()
}

/// Writes record and page, prints the record or the summary, and reports what is wrong; also of an
/// incomplete run. What cannot be written keeps nothing from being printed.
pub(crate) fn finish(
    args: &Args,
    record: &RunRecord,
    whom: &str,
    said: &Said,
    incidents: &Incidents,
) -> anyhow::Result<()> {
    let ledger = args.ledger.as_deref().unwrap_or(Path::new(""));
    let finished = incidents.finish().with_context(|| format!("cannot write --ledger {}", ledger.display()));
    let written = args.record.iter().try_for_each(|path| record.write(path));
    let page = args.html.iter().try_for_each(|path| {
        measure::write_whole(path, report::run_html(record)?.as_bytes())
            .with_context(|| format!("cannot write --html {}", path.display()))
    });
    let printed = match () {
        () if args.json => print(&record.to_json()),
        () if args.quiet || args.progress_json || args.share.is_some() => Ok(()),
        () if args.wide => print(&report::run_text(record)),
        () => {
            let lost = record.owed().balanced().err().and_then(|_| incidents.lost());
            print(&summary::summary(record, whom, lost, &files(args)))
        }
    };
    match (&record.share, record.status.reason()) {
        (Some(share), Some(reason)) => say(&format!("agent {}: {reason}", share.index)),
        // The summary has its first words alone.
        (None, Some(reason)) => say(&format!("the run ended early: {reason}")),
        (_, None) => {}
    }
    let counts = &record.counts;
    for (what, first) in said {
        say(&match what {
            Words::Complaint => format!("the relay's first complaint: {first}"),
            Words::PassedOver => {
                format!("passed over {} messages of the relay, the first: {first}", counts.answers_unexpected)
            }
            Words::OutOfOrder => format!(
                "{} stored events came out of order, the first: {first}; NIP-01 asks for the newest first where a filter \
                 has a limit, and for the lowest id first among equals",
                counts.deliveries_out_of_order
            ),
            Words::LiveOutOfOrder => format!(
                "{} live events came behind later ones of their publisher, the first: {first}; no NIP orders live events",
                counts.deliveries_live_out_of_order
            ),
            Words::NoConnection => format!("this machine had no room for a connection: {first}"),
        });
    }
    for (bound, ns) in record.missed_bounds() {
        say(&format!("the scenario demands {bound}, and it was {:.3} ms", ns as f64 / 1e6));
    }
    if let Err(why) = record.owed().balanced() {
        let hint = if args.ledger.is_none() { " (--ledger FILE names all)" } else { "" };
        say(&format!("the ledger does not balance: {why}{hint}"));
        say(incidents.named().trim_end());
    }
    written?;
    page?;
    finished?;
    printed
}
