//! From answers to a table: which scenario can be played, which events are set aside, which setting
//! to change. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write},
};

use codecs::Event;
use corpus::rules::of_kinds;
use serde::{Serialize, Serializer};

use super::{
    answers::{Answer, Answers, Demand},
    needs::{Needs, json_bytes, width},
    settings,
};

/// Why a scenario cannot be played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) text: String,
    /// The demand that a setting of the relay would meet.
    pub(crate) demand: Option<Demand>,
}

impl Reason {
    fn for_demand(demand: Demand, text: String) -> Reason {
        Reason { text, demand: Some(demand) }
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Reason {
        Reason { text, demand: None }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Whether a scenario can be played.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) scenario: String,
    /// Why it cannot.
    pub(crate) reasons: Vec<Reason>,
}

/// How many events are set aside, by reason.
pub(crate) type Refused = BTreeMap<String, u64>;

/// The events that the relay's rules refuse.
pub(crate) fn refused(answers: &Answers, events: &[Event<'_>]) -> Refused {
    let mut refused = Refused::new();
    for event in events {
        if let Some(reason) = answers.rules.refuses(event, json_bytes(event)) {
            *refused.entry(reason.into_owned()).or_default() += 1;
        }
    }
    refused
}

/// Why a plan cannot be played; empty when nothing stands against it. A rule on events is no reason:
/// what the relay refuses or withholds is set aside.
pub(crate) fn reasons(answers: &Answers, needs: &Needs) -> Vec<Reason> {
    if let Some(stopped) = &answers.stopped {
        return vec![stopped.clone().into()];
    }
    let mut reasons: Vec<Reason> = Vec::new();
    if let Some(said) = answers.read.refusal().filter(|_| !answers.reads(needs.auth)) {
        reasons.push(match answers.read {
            Answer::Silent => "it sends no EOSE to a small request".to_owned().into(),
            _ => Reason::for_demand(Demand::Read, format!("it refuses a small request: {said}")),
        });
    }
    if needs.auth && answers.auth != Answer::Taken {
        let text = match answers.auth.refusal() {
            Some(said) => format!("it does not accept AUTH (NIP-42): {said}"),
            None => "it sends no AUTH challenge (NIP-42)".to_owned(),
        };
        reasons.push(Reason::for_demand(Demand::Auth, text));
    }
    let kinds = answers.rules(needs.auth).kinds;
    if !needs.written.is_empty() && needs.written.keys().all(|kind| kinds.contains_key(kind)) {
        reasons.extend(set_aside(answers, needs.auth));
    }
    for (demand, bound) in &answers.bounds {
        let needed = needs.most(*demand);
        if bound.most < needed {
            let (most, said) = (bound.most, &bound.said);
            let text = format!("it takes {most} {}, and the scenario needs {needed}: {said}", what(*demand));
            reasons.push(Reason::for_demand(*demand, text));
        }
    }
    for (kinds, filter) in &needs.requests {
        let Some(bound) = answers.requests.get(kinds).filter(|bound| bound.most < width(filter)) else {
            continue;
        };
        let entries = match bound.most {
            0 => String::new(),
            most => format!(" with more than {most} entries in a list"),
        };
        let text = format!("it refuses requests for {kinds}{entries}: {}", bound.said);
        reasons.push(Reason::for_demand(Demand::Requests, text));
    }
    if let Some(said) = answers.reconcile.refusal().filter(|_| needs.reconciles) {
        reasons.push(format!("it does not reconcile (NIP-77): {said}").into());
    }
    reasons
}

/// Kinds that are set aside, with the relay's words.
pub(crate) fn set_aside(answers: &Answers, auth: bool) -> impl Iterator<Item = Reason> {
    let reason = |text: String| {
        let demand = if text.contains(": refused") { Demand::Write } else { Demand::Read };
        Reason::for_demand(demand, format!("it does not take and give back {text}"))
    };
    answers.rules(auth).kinds_set_aside().into_iter().map(reason)
}

/// Why a plan cannot be played and what to set on the relay, in one line; `None` when nothing
/// stands against it.
pub(crate) fn refusal(answers: &Answers, needs: &Needs) -> Option<String> {
    let reasons = reasons(answers, needs);
    let settings = settings(answers, &reasons);
    let texts = reasons.iter().map(ToString::to_string).chain(settings).collect::<Vec<_>>();
    Some(texts.join("; ")).filter(|text| !text.is_empty())
}

/// Settings to change on the relay, a line for each demand of the reasons.
pub(crate) fn settings<'r>(answers: &Answers, reasons: impl IntoIterator<Item = &'r Reason>) -> Vec<String> {
    let demands: BTreeSet<_> = reasons.into_iter().filter_map(|reason| reason.demand).collect();
    demands.into_iter().filter_map(|demand| settings::settings(answers.info.as_ref(), demand)).collect()
}

/// The table for people.
pub(crate) fn text(answers: &Answers, refused: &Refused, events: usize, verdicts: &[Verdict]) -> String {
    let mut out = String::new();
    write_all(&mut out, answers, refused, events, verdicts).expect("writing into a String cannot fail");
    out
}

fn write_all(
    out: &mut String,
    answers: &Answers,
    refused: &Refused,
    events: usize,
    verdicts: &[Verdict],
) -> fmt::Result {
    writeln!(out, "{}: {}", answers.url, who(answers))?;
    if let Some(stopped) = &answers.stopped {
        writeln!(out, "\nThe rehearsal ended early: {stopped}")?;
    }
    writeln!(out, "\nWhat works")?;
    let works = [
        ("a request", &answers.read),
        ("an answer to its AUTH challenge", &answers.auth),
        ("a request after AUTH", &answers.read_after_auth),
        ("reconciliation (NIP-77)", &answers.reconcile),
    ];
    for (what, answer) in works.into_iter().filter(|(_, answer)| **answer != Answer::NotAsked) {
        writeln!(out, "  {what:<32} {}", answer.refusal().unwrap_or_else(|| "yes".to_owned()))?;
    }
    for handshake in &answers.handshakes {
        let batched = if handshake.batched { ", batched" } else { "" };
        let offer = format!("{}+{}{batched}", handshake.format, handshake.compression);
        match &handshake.granted {
            Ok(granted) if *granted == handshake.compression => writeln!(out, "  {offer:<32} granted")?,
            Ok(granted) => writeln!(out, "  {offer:<32} granted as {granted}")?,
            Err(why) => writeln!(out, "  {offer:<32} declined: {why}")?,
        }
    }
    writeln!(out, "\nBounds (where none is named, the rehearsal met none)")?;
    let (bounds, mut demands) = bounds(answers);
    for line in bounds {
        writeln!(out, "  {line}")?;
    }
    let sum: u64 = refused.values().sum();
    writeln!(out, "\nEvents of the corpus that a run sets aside: {sum} of {events}")?;
    for (reason, count) in refused {
        writeln!(out, "  {count:>6}  {reason}")?;
    }
    writeln!(out, "\nScenarios")?;
    for verdict in verdicts {
        let can = if verdict.reasons.is_empty() { "can be played" } else { "cannot be played" };
        writeln!(out, "  {:<24} {can}", verdict.scenario)?;
        for reason in &verdict.reasons {
            writeln!(out, "      {reason}")?;
            demands.extend(reason.demand);
        }
    }
    let settings = demands.into_iter().filter_map(|one| settings::settings(answers.info.as_ref(), one));
    let settings: Vec<String> = settings.collect();
    if !settings.is_empty() {
        writeln!(out, "\nWhat to set on the relay")?;
    }
    for line in settings {
        writeln!(out, "  {line}")?;
    }
    let spent = &answers.spent;
    writeln!(
        out,
        "\nThe rehearsal: {} connections, {} requests, {} ephemeral events, {} events that may be stored",
        spent.connections, spent.requests, spent.ephemeral_events, spent.stored_events
    )
}

fn who(answers: &Answers) -> String {
    let Some(info) = &answers.info else {
        return format!("no NIP-11 document ({})", answers.no_info.as_deref().unwrap_or("not asked"));
    };
    let software = info.software.as_deref().or(info.name.as_deref()).unwrap_or("software not named");
    let version = info.version.as_deref().unwrap_or("");
    let known = settings::software(Some(info)).map_or("settings not known", |software| software.name);
    format!("{software} {version} ({known})")
}

/// The unit of a demand's bound.
fn what(demand: Demand) -> &'static str {
    match demand {
        Demand::EventBytes => "bytes of an event as JSON",
        Demand::EventTags => "tags of an event",
        Demand::TagValueBytes => "bytes of a tag value",
        Demand::HexReferences => "digits of lowercase hex in e and p tags",
        Demand::Age => "seconds of age",
        Demand::Future => "seconds ahead",
        Demand::Connections => "connections at one time",
        Demand::Subscriptions => "subscriptions at one time",
        Demand::StoredEvents => "stored events for one filter",
        Demand::UnlimitedEvents => "stored events for one filter without a limit",
        Demand::Requests | Demand::Read | Demand::Write | Demand::Auth | Demand::Rate => demand.words(),
    }
}

/// A line for each bound, and what settings would be for.
fn bounds(answers: &Answers) -> (Vec<String>, BTreeSet<Demand>) {
    let rules = &answers.rules;
    let now_s = super::talk::now_s();
    let seconds = |from: i64, to: i64| u64::try_from(to - from).unwrap_or(0);
    let of_events = [
        (Demand::EventBytes, rules.event_bytes),
        (Demand::EventTags, rules.event_tags),
        (Demand::TagValueBytes, rules.tag_value_bytes),
        (Demand::HexReferences, rules.hex_references.then_some(64)),
        (Demand::Age, rules.oldest_s.map(|oldest_s| seconds(oldest_s, now_s))),
        (Demand::Future, rules.newest_s.map(|newest_s| seconds(now_s, newest_s))),
    ];
    let said = |demand: &Demand| answers.said.get(demand).map(String::as_str).unwrap_or_default();
    let of_events = of_events.into_iter().filter_map(|(demand, most)| Some((demand, most?, said(&demand))));
    let others = answers.bounds.iter().map(|(demand, bound)| (*demand, bound.most, bound.said.as_str()));
    let (mut lines, mut demands) = (Vec::new(), BTreeSet::new());
    for (demand, most, said) in of_events.chain(others) {
        lines.push(format!("{most} {}; beyond: {said}", what(demand)));
        demands.insert(demand);
    }
    for (kinds, bound) in &answers.requests {
        let most = bound.most;
        lines.push(format!("{most} entries in a list of a request for {kinds}; beyond: {}", bound.said));
        demands.insert(Demand::Requests);
    }
    for reason in set_aside(answers, false) {
        lines.push(reason.text);
        demands.extend(reason.demand);
    }
    let after_auth = &answers.rules.kinds_after_auth;
    let given: Vec<u16> =
        answers.rules.kinds.keys().copied().filter(|kind| !after_auth.contains_key(kind)).collect();
    if !given.is_empty() {
        lines.push(format!("after AUTH it takes and gives back {}", of_kinds(&given)));
    }
    if let Some(said) = answers.said.get(&Demand::Rate) {
        lines.push(format!("a bound on the rate, which a run may meet: {said}"));
        demands.insert(Demand::Rate);
    }
    if lines.is_empty() {
        lines.push("none was met".to_owned());
    }
    (lines, demands)
}
