//! Asks each external relay once, before the first round, which terms and events it accepts. Cells that
//! it declines are dropped, and the others are named by the granted terms.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use cell::Cell;
use client_sim::{
    answers::{Answers, Handshake},
    args::{Doctor, Signs, work_bits},
};
use codecs::Format;
use corpus::Rules;
use measure::Exit;
use wire::RelayUrl;

use crate::{
    args::PlayFlags,
    matrix::CellSpec,
    relays::Started,
    usage::{Ended, NOTHING_MEASURED, until_signal, values},
};
use program::{Interrupt, UsageError};
use report::{
    reference::BASE_COMPRESSION,
    result::{Foreign, RelayCommand, Role},
};

/// Answers as clients read them, as those of the relay at this address, or of any.
///
/// # Errors
/// When they do not serialize.
pub(crate) fn text(answers: &Answers, url: Option<&RelayUrl>) -> Result<String> {
    let url = url.map_or_else(String::new, RelayUrl::to_string);
    serde_json::to_string(&Answers { url, ..answers.clone() }).context("answers serialize")
}

/// The answers of each relay by its name, which is empty where there is one.
pub(crate) type ByRelay = BTreeMap<String, Answers>;

/// Questions the relay at `--url`, or starts each relay of `--relay` once, questions it, and notes the
/// programs that ran for it. Reports and returns what is left out for them; nothing of relays of our own.
///
/// # Errors
/// When a relay cannot be reached or does not speak JSON, or a scenario cannot be played with it, and
/// after Ctrl-C.
pub(crate) fn asked(
    flags: &PlayFlags,
    relays: &mut [RelayCommand],
    cells: &mut Vec<CellSpec>,
) -> Result<(ByRelay, Option<Foreign>)> {
    if !flags.has_relays_of_others() {
        return Ok((ByRelay::new(), None));
    }
    let mut by_relay = until_signal(async |interrupt| {
        let mut by_relay = ByRelay::new();
        if let Some(url) = &flags.url {
            by_relay.insert(String::new(), ask(flags, url, cells, interrupt).await?);
        }
        for relay in relays.iter_mut().filter(|relay| !relay.is_floor()) {
            by_relay.insert(relay.name.clone(), ask_started(flags, relay, cells, interrupt).await?);
        }
        Ok(by_relay)
    })?;
    let foreign = apply(&mut by_relay, cells)?;
    let refused =
        foreign.refused_events.iter().map(|(reason, events)| format!("{events} events set aside: {reason}"));
    for note in foreign.declined.iter().cloned().chain(refused) {
        program::report(&note);
    }
    Ok((by_relay, Some(foreign)))
}

/// Starts a relay, and asks it about its cells.
async fn ask_started(
    flags: &PlayFlags,
    relay: &mut RelayCommand,
    cells: &[CellSpec],
    interrupt: &mut Interrupt,
) -> Result<Answers> {
    let own: Vec<CellSpec> =
        cells.iter().filter(|cell| cell.cell.relay_name == relay.name).cloned().collect();
    let started = tokio::select! {
        biased;
        () = interrupt.wait() => return Err(interrupted()),
        started = Started::start(relay, None) => started?,
    };
    relay.programs.clone_from(&started.programs);
    let asked = ask(flags, &started.url, &own, interrupt).await;
    let noticed = started.stop().await?;
    for warning in noticed.warnings {
        program::report(&format!("warning: {warning}"));
    }
    match noticed.failure {
        Some(failure) => Err(anyhow!(failure)),
        None => asked.with_context(|| format!("relay {}", relay.name)),
    }
}

fn interrupted() -> anyhow::Error {
    Ended { exit: Exit::Interrupted, reason: NOTHING_MEASURED.to_owned() }.into()
}

/// Asks a relay about the formats, compressions and scenarios of these cells.
///
/// # Errors
/// When the relay cannot be reached, or a scenario cannot be played with it, and after Ctrl-C.
async fn ask(
    flags: &PlayFlags,
    url: &RelayUrl,
    cells: &[CellSpec],
    interrupt: &mut Interrupt,
) -> Result<Answers> {
    let last = |flag| values(&flags.client_args, flag).pop();
    let pow = last("--pow").map(|bits| work_bits(&bits)).transpose();
    let pow = pow.map_err(|error| UsageError(anyhow!("--pow: {error}")))?;
    let doctor = Doctor {
        url: url.with_password().to_owned(),
        ca: flags.ca.as_ref().map(PathBuf::from),
        header: flags.header.clone(),
        signing: Signs { keys: last("--keys").map(PathBuf::from), pow },
        scenario: distinct(cells.iter().map(|spec| spec.cell.scenario.clone())),
        corpus: flags.events.corpus.as_ref().map(PathBuf::from),
        skip_invalid: flags.events.skip_invalid,
        formats: distinct(cells.iter().map(|spec| spec.cell.format)),
        compressions: distinct(cells.iter().map(|spec| spec.cell.compression)),
        json: false,
    };
    let answers = tokio::select! {
        biased;
        () = interrupt.wait() => return Err(interrupted()),
        answers = client_sim::examine(&doctor, true) => answers.context("the relay was asked what it takes")?,
    };
    let told = answers.scenarios.iter().filter(|verdict| !verdict.reasons.is_empty());
    let told: Vec<_> =
        told.map(|verdict| format!("{}: {}", verdict.scenario, verdict.reasons.join("; "))).collect();
    if !told.is_empty() {
        bail!("{url} cannot play {}", [told, answers.settings].concat().join("; "));
    }
    Ok(answers)
}

/// Each value once.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut distinct, value| {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
        distinct
    })
}

/// Drops the cells that their relays decline, and names the others by the terms that are granted. All
/// relays get the rules of the strictest. Returns the dropped cells and the refused events.
///
/// # Errors
/// When a relay does not speak JSON.
fn apply(answers: &mut ByRelay, cells: &mut Vec<CellSpec>) -> Result<Foreign> {
    let rules = answers.values().map(|answers| answers.rules.clone()).reduce(Rules::and).unwrap_or_default();
    let mut refused_events = BTreeMap::new();
    for answers in answers.values_mut() {
        answers.rules.clone_from(&rules);
        for (reason, events) in &answers.refused_events {
            let most = refused_events.entry(reason.clone()).or_insert(*events);
            *most = (*events).max(*most);
        }
    }
    let handshakes = |relay: &str| answers.get(relay).map_or(&[][..], |answers| &answers.handshakes);
    let declined = name_by_grants(cells, handshakes)?;
    Ok(Foreign { declined, refused_events })
}

/// Drops declined cells, and renames cells that are granted otherwise than offered. Returns the changes
/// as text.
fn name_by_grants<'h>(
    cells: &mut Vec<CellSpec>,
    handshakes: impl Fn(&str) -> &'h [Handshake],
) -> Result<Vec<String>> {
    let (mut notes, mut kept) = (Vec::new(), Vec::<CellSpec>::new());
    for mut spec in std::mem::take(cells) {
        let Cell { format, compression, batching, via_gateway, .. } = spec.cell;
        let compression = compression.label();
        let is_base = format == Format::JSON && compression == BASE_COMPRESSION;
        // Of the relay the gateway needs JSON alone; the rest it grants itself.
        if spec.role == Role::Floor || (via_gateway && !is_base) {
            kept.push(spec);
            continue;
        }
        let grant = |compression: &str, batched: bool| {
            let found = handshakes(&spec.cell.relay_name).iter().find(|one| {
                one.format == format.name() && one.compression == compression && one.batched == batched
            });
            found.map_or_else(|| Err("not asked".to_owned()), |one| one.granted.clone())
        };
        let batches = batching.map_or(Ok(()), |_| grant(BASE_COMPRESSION, true).map(drop));
        match batches.and_then(|()| grant(&compression, false)) {
            Err(why) if is_base && spec.role != Role::Cell => bail!("the relay does not speak JSON: {why}"),
            Err(why) => notes.push(format!("{} is not measured: {why}", spec.id)),
            Ok(label) if label == compression => kept.push(spec),
            Ok(label) => {
                let asked = spec.id.clone();
                spec.id = asked.replacen(&format!("+{compression}"), &format!("+{label}"), 1);
                spec.cell.compression =
                    label.parse().with_context(|| format!("the relay grants {asked} as {label}"))?;
                if kept.iter().any(|one| one.id == spec.id) {
                    notes.push(format!("{asked} is not measured: the relay grants it as {}", spec.id));
                } else {
                    notes.push(format!("{asked} is measured as {}, which the relay grants", spec.id));
                    kept.push(spec);
                }
            }
        }
    }
    *cells = kept;
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use cell::Factor;

    use super::*;
    use crate::matrix::{Matrix, cells};

    fn some_cells(batchings: &[&str]) -> Vec<CellSpec> {
        let matrix = Matrix::default()
            .with(Factor::Format, ["json", "cbor-packed"])
            .with(Factor::Compression, ["none", "deflate", "deflate-no-takeover"])
            .with(Factor::Batching, batchings.iter().copied());
        let mut cells = cells(&matrix).unwrap();
        cells.retain(|cell| cell.role != Role::Floor);
        cells
    }

    fn handshake(offer: (&str, &str, bool), granted: Result<&str, &str>) -> Handshake {
        Handshake {
            format: offer.0.to_owned(),
            compression: offer.1.to_owned(),
            batched: offer.2,
            granted: granted.map(str::to_owned).map_err(str::to_owned),
        }
    }

    #[test]
    fn cells_bear_the_name_of_what_is_granted_and_declined_ones_are_dropped_with_the_reason() {
        let mut cells = some_cells(&["off", "on"]);
        let narrowed = "deflate:upload_takeover=no";
        let handshakes = [
            handshake(("json", "none", false), Ok("none")),
            handshake(("json", "deflate", false), Ok(narrowed)),
            handshake(("json", "deflate-no-takeover", false), Ok(narrowed)),
            handshake(("json", "none", true), Err("it does not batch events")),
            handshake(("cbor-packed", "none", false), Err("it agreed on json")),
            handshake(("cbor-packed", "deflate", false), Err("it agreed on json")),
        ];
        let notes = name_by_grants(&mut cells, |_| &handshakes).unwrap();
        let ids: Vec<&str> = cells.iter().map(|cell| cell.id.as_str()).collect();
        assert_eq!(ids, ["json+none", "json-control", "json+deflate:upload_takeover=no"]);
        assert_eq!(cells[2].cell.compression.label(), narrowed);
        let says = notes.join("\n");
        for expected in [
            "json+deflate is measured as json+deflate:upload_takeover=no",
            "json+deflate-no-takeover is not measured: the relay grants it as json+deflate:upload_takeover=no",
            "json.batched+none is not measured: it does not batch events",
            "cbor-packed+none is not measured: it agreed on json",
            "cbor-packed+deflate-no-takeover is not measured: not asked",
        ] {
            assert!(says.contains(expected), "{expected} in {says}");
        }
    }

    #[test]
    fn without_json_there_is_nothing_to_compare_with() {
        let mut cells = some_cells(&["off"]);
        let handshakes = [handshake(("json", "none", false), Err("HTTP 403"))];
        let error = name_by_grants(&mut cells, |_| &handshakes).unwrap_err().to_string();
        assert!(error.contains("HTTP 403"), "{error}");
    }
}
