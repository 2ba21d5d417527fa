//! From answers to a table: what works, which scenario can be played, which setting to change,
//! which events will be refused. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write},
};

use codecs::{Event, KindClass};
use corpus::Rules;
use serde::{Serialize, Serializer};

use super::{
    answers::{Answer, Answers, Demand, Ties},
    needs::{Needs, json_bytes},
    settings::Software,
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
    /// The scenario's name.
    pub(crate) scenario: String,
    /// Why it cannot.
    pub(crate) reasons: Vec<Reason>,
}

/// How many events the relay refuses, by reason.
pub(crate) type Refused = std::collections::BTreeMap<&'static str, u64>;

/// The events that the relay's rules refuse.
pub(crate) fn refused(answers: &Answers, events: &[Event<'_>]) -> Refused {
    let mut refused = Refused::new();
    for event in events {
        if let Some(reason) = answers.rules.refuses(event, json_bytes(event)) {
            *refused.entry(reason).or_default() += 1;
        }
    }
    refused
}

/// Why a plan cannot be played; empty when nothing stands against it. Bounds on events are no
/// reason: what the relay refuses is set aside.
pub(crate) fn reasons(answers: &Answers, needs: &Needs) -> Vec<Reason> {
    if let Some(stopped) = &answers.stopped {
        return vec![stopped.clone().into()];
    }
    let mut reasons: Vec<Reason> = Vec::new();
    reasons.extend(unwritten(answers, needs));
    if let Some(said) = answers.read.refusal().filter(|_| !answers.reads(needs.auth)) {
        reasons.push(match answers.read {
            Answer::Silent => "it sends no EOSE to a small request".to_owned().into(),
            _ => Reason::for_demand(Demand::Read, format!("it refuses a small request: {said}")),
        });
    }
    if needs.auth && !answers.challenge {
        reasons.push(Reason::for_demand(Demand::Challenge, "it sends no AUTH challenge (NIP-42)".to_owned()));
    }
    let unread: Vec<_> = needs.kinds.iter().filter(|kind| answers.unread_kinds.contains_key(kind)).collect();
    if let Some(first) = unread.first().filter(|_| !needs.auth) {
        let said = &answers.unread_kinds[*first];
        let text = format!("it refuses requests for {}: {said}", of_kinds(&unread));
        reasons.push(Reason::for_demand(Demand::Read, text));
    }
    let rules = &answers.rules;
    let bounds = [
        (Demand::FilterValues, rules.filter_values, needs.filter_values, "entries in a list of a filter"),
        (Demand::Subscriptions, rules.subscriptions, needs.subscriptions, "subscriptions at one time"),
        (Demand::StoredEvents, rules.stored_events, needs.stored_events, "stored events for one filter"),
        (
            Demand::UnlimitedEvents,
            rules.unlimited_events,
            needs.unlimited_events,
            "stored events for one filter without a limit",
        ),
    ];
    for (demand, bound, needed, what) in bounds {
        if let Some(bound) = bound.filter(|bound| *bound < needed) {
            let text = format!("it takes {bound} {what}, and the scenario needs {needed}");
            reasons.push(Reason::for_demand(demand, text));
        }
    }
    if let Some(said) = answers.reconcile.refusal().filter(|_| needs.reconciles) {
        reasons.push(format!("it does not reconcile (NIP-77): {said}").into());
    }
    reasons
}

/// Why the relay does not take the events of a plan.
fn unwritten(answers: &Answers, needs: &Needs) -> Option<Reason> {
    let refused = |kind: &&u16| {
        let answer = answers.to_kind(**kind, needs.auth)?;
        let judged = !is_set_aside(**kind, answer) && !is_too_large(answers, &needs.written[*kind]);
        answer.refusal().filter(|_| judged)
    };
    let kinds: Vec<_> = needs.written.keys().filter(|kind| refused(kind).is_some()).collect();
    if let Some((first, said)) = kinds.first().and_then(|first| Some((first, refused(first)?))) {
        if answers.to_kind(**first, needs.auth) == Some(&Answer::Silent) {
            return Some(format!("it sends no OK to events of {}", of_kinds(&kinds)).into());
        }
        let text = format!("it takes no events of {}: {said}", of_kinds(&kinds));
        return Some(Reason::for_demand(Demand::Write, text));
    }
    // Answers about no kind at all are of an earlier version.
    let said = answers.write.refusal().filter(|_| needs.events > 0 && !answers.is_written())?;
    Some(Reason::for_demand(Demand::Write, format!("it refuses a small ephemeral event: {said}")))
}

/// Whether events of a kind are set aside because the relay sends them no OK.
pub(super) fn is_set_aside(kind: u16, answer: &Answer) -> bool {
    KindClass::from_kind(kind) == KindClass::Ephemeral && *answer == Answer::Silent
}

/// Whether the relay's bounds rule out the smallest event of a kind, and so all of it.
fn is_too_large(answers: &Answers, event: &Event<'_>) -> bool {
    /// The probe asks to expire, and bounds are found to a few percent.
    const MORE_BYTES: u64 = 100;
    let rules = Rules { oldest_s: None, ..answers.rules.clone() };
    rules.refuses(event, json_bytes(event) + MORE_BYTES).is_some()
}

/// The kinds in words, the first of many.
fn of_kinds(kinds: &[&u16]) -> String {
    const NAMED: usize = 20;
    let words = if kinds.len() == 1 { "kind" } else { "kinds" };
    let named = kinds.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match kinds.len().saturating_sub(NAMED) {
        0 => format!("{words} {named}"),
        more => format!("{words} {named} and {more} more"),
    }
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
    let demands = reasons.into_iter().filter_map(|reason| reason.demand);
    answers.settings(demands.collect())
}

impl Answers {
    fn software(&self) -> Option<Software> {
        self.info.as_ref().and_then(Software::from_info)
    }

    /// The settings that help, of the relay's software or else of all known ones.
    fn settings(&self, demands: BTreeSet<Demand>) -> Vec<String> {
        let all = Software::ALL.into_iter().filter(|one| self.software().is_none_or(|own| own == *one));
        let lines = demands.into_iter().filter_map(|demand| {
            let settings = all.clone().filter_map(|one| Some((one.name(), one.setting(demand)?)));
            let settings: Vec<_> = settings.map(|(name, setting)| format!("{name}: {setting}")).collect();
            let line = || format!("settings for {}: {}", demand.words(), settings.join("; "));
            (!settings.is_empty()).then(line)
        });
        lines.collect()
    }
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
) -> std::fmt::Result {
    writeln!(out, "{}: {}", answers.url, who(answers))?;
    if let Some(stopped) = &answers.stopped {
        writeln!(out, "\nThe probes ended early: {stopped}")?;
    }
    writeln!(out, "\nWhat works")?;
    for (what, answer) in works(answers) {
        writeln!(out, "  {what:<28} {answer}")?;
    }
    for handshake in &answers.handshakes {
        let batched = if handshake.batched { ", batched" } else { "" };
        let offer = format!("{}+{}{batched}", handshake.format, handshake.compression);
        match &handshake.granted {
            Ok(granted) if *granted == handshake.compression => writeln!(out, "  {offer:<28} granted")?,
            Ok(granted) => writeln!(out, "  {offer:<28} granted as {granted}")?,
            Err(why) => writeln!(out, "  {offer:<28} declined: {why}")?,
        }
    }
    writeln!(out, "\nBounds (where none is named, the largest of the corpus and the scenarios is taken)")?;
    let (bounds, mut demands) = bounds(answers);
    for line in bounds {
        writeln!(out, "  {line}")?;
    }
    let sum: u64 = refused.values().sum();
    writeln!(out, "\nEvents of the corpus that it refuses: {sum} of {events}, which a run sets aside")?;
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
    let settings = answers.settings(demands);
    if !settings.is_empty() {
        writeln!(out, "\nWhat to set on the relay")?;
    }
    for line in settings {
        writeln!(out, "  {line}")?;
    }
    let spent = &answers.spent;
    writeln!(
        out,
        "\nThe probes: {} connections, {} requests, {} ephemeral events, {} events that may be stored",
        spent.connections, spent.requests, spent.ephemeral_events, spent.stored_events
    )
}

fn who(answers: &Answers) -> String {
    let Some(info) = &answers.info else {
        return format!("no NIP-11 document ({})", answers.no_info.as_deref().unwrap_or("not asked"));
    };
    let software = info.software.as_deref().or(info.name.as_deref()).unwrap_or("software not named");
    let version = info.version.as_deref().unwrap_or("");
    let known = answers.software().map_or("settings not known", Software::name);
    format!("{software} {version} ({known})")
}

fn works(answers: &Answers) -> Vec<(&'static str, String)> {
    let plain = |answer: &Answer| match answer {
        Answer::NotAsked => "not asked".to_owned(),
        Answer::Taken => "yes".to_owned(),
        other => other.refusal().unwrap_or_default(),
    };
    let mut works = vec![
        ("a small ephemeral event", plain(&answers.write)),
        ("a request", plain(&answers.read)),
        ("EOSE for limit: 0", plain(&answers.limit_zero)),
        ("sends an AUTH challenge", if answers.challenge { "yes" } else { "no" }.to_owned()),
    ];
    if answers.write_after_auth != Answer::NotAsked {
        works.push(("an event after AUTH", plain(&answers.write_after_auth)));
    }
    if answers.read_after_auth != Answer::NotAsked {
        works.push(("a request after AUTH", plain(&answers.read_after_auth)));
    }
    works.extend(kinds(answers));
    works.push(("reconciliation (NIP-77)", plain(&answers.reconcile)));
    let ties = match answers.ties {
        Ties::Unknown => "not known",
        Ties::LowestIdFirst => "lowest id first (NIP-01)",
        Ties::Other => "not the lowest id first, as NIP-01 has it",
    };
    works.push(("equal created_at", ties.to_owned()));
    if let Some(seam) = answers.seam {
        let text = match seam.due {
            0 => "not known".to_owned(),
            due => format!("{} doubled and {} missing of {due} deliveries", seam.doubled, seam.missing),
        };
        works.push(("seam of stored and live", text));
    }
    if let Some((accepted, sent)) = answers.burst {
        let said = answers.said.get(&Demand::Rate).map(|said| format!(": {said}")).unwrap_or_default();
        works.push(("a burst of events", format!("{accepted} of {sent} accepted{said}")));
    }
    works
}

/// Events of which kinds the relay takes, and which not.
fn kinds(answers: &Answers) -> Vec<(&'static str, String)> {
    let with_auth = !answers.kinds_after_auth.is_empty();
    let asked = || answers.written_kinds.keys();
    let answer = |kind: &u16| answers.to_kind(*kind, with_auth);
    let taken: Vec<_> = asked().filter(|kind| answer(kind) == Some(&Answer::Taken)).collect();
    let mut lines = Vec::new();
    if !taken.is_empty() {
        lines.push(("events that scenarios write", format!("of {}", of_kinds(&taken))));
    }
    let mut refused: BTreeMap<String, Vec<&u16>> = BTreeMap::new();
    for kind in asked() {
        if let Some(said) = answer(kind).and_then(Answer::refusal) {
            refused.entry(said).or_default().push(kind);
        }
    }
    lines
        .extend(refused.into_iter().map(|(said, kinds)| ("not", format!("of {}: {said}", of_kinds(&kinds)))));
    lines
}

/// A line for each bound, and what settings would be for.
fn bounds(answers: &Answers) -> (Vec<String>, BTreeSet<Demand>) {
    let rules = &answers.rules;
    let day_s = 86_400;
    let age_days =
        rules.oldest_s.map(|oldest| u64::try_from((super::talk::now_s() - oldest) / day_s).unwrap_or(0));
    let hex = rules.hex_references.then_some(64);
    let all = [
        (Demand::EventBytes, rules.event_bytes, "bytes of an event as JSON"),
        (Demand::EventTags, rules.event_tags, "tags of an event"),
        (Demand::TagValueBytes, rules.tag_value_bytes, "bytes of a tag value"),
        (Demand::HexReferences, hex, "digits of lowercase hex in e and p tags"),
        (Demand::Age, age_days, "days of age"),
        (Demand::FilterValues, rules.filter_values, "entries in a list of a filter"),
        (Demand::Subscriptions, rules.subscriptions, "subscriptions at one time"),
        (Demand::StoredEvents, rules.stored_events, "stored events for one filter (NIP-11 says so)"),
        (
            Demand::UnlimitedEvents,
            rules.unlimited_events,
            "stored events for one filter without a limit (NIP-11 says so)",
        ),
    ];
    let (mut lines, mut demands) = (Vec::new(), BTreeSet::new());
    for (demand, bound, what) in all {
        let Some(bound) = bound else { continue };
        let said = answers.said.get(&demand).map(|said| format!("; beyond: {said}")).unwrap_or_default();
        lines.push(format!("{bound} {what}{said}"));
        demands.insert(demand);
    }
    for (kind, said) in &answers.unread_kinds {
        lines.push(format!("no requests for kind {kind}: {said}"));
        demands.insert(Demand::Read);
    }
    if lines.is_empty() {
        lines.push("none was met".to_owned());
    }
    if answers.burst.is_some_and(|(accepted, sent)| accepted < sent) {
        demands.insert(Demand::Rate);
    }
    (lines, demands)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::answers::Info;

    fn fine() -> Answers {
        Answers { write: Answer::Taken, read: Answer::Taken, ..Answers::default() }
    }

    #[test]
    fn a_relay_that_takes_everything_has_no_reasons() {
        let needs =
            Needs { filter_values: 500, subscriptions: 7, stored_events: 500, events: 9, ..Needs::default() };
        assert_eq!(refusal(&fine(), &needs), None);
    }

    #[test]
    fn each_bound_that_is_too_small_is_a_reason_with_its_setting() {
        let needs = Needs {
            filter_values: 500,
            subscriptions: 30,
            stored_events: 900,
            kinds: [4, 7].into(),
            reconciles: true,
            ..Needs::default()
        };
        let info =
            Info { software: Some("git+https://github.com/hoytech/strfry.git".into()), ..Info::default() };
        let answers = Answers {
            rules: Rules {
                filter_values: Some(499),
                subscriptions: Some(20),
                stored_events: Some(500),
                ..Rules::default()
            },
            unread_kinds: [(4, "\"auth-required: x\"".to_owned()), (1059, "other".to_owned())].into(),
            reconcile: Answer::Silent,
            info: Some(info),
            ..fine()
        };
        let found = reasons(&answers, &needs);
        let told = refusal(&answers, &needs).unwrap();
        assert_eq!(found.len(), 5, "{found:?}");
        for says in
            ["restrictedReadKinds", "maxWebsocketPayloadSize", "maxSubsPerConnection", "maxFilterLimit"]
        {
            assert!(told.contains(says), "{says}: {told}");
        }
        assert!(!told.contains("LocalRelay"), "only the relay's own settings");
        assert!(
            found[0].text.contains("kind 4:") && found[4].text.contains("the relay was silent"),
            "{found:?}"
        );
        let enough = Needs { filter_values: 499, subscriptions: 20, stored_events: 500, ..Needs::default() };
        assert_eq!(refusal(&answers, &enough), None, "at the bounds");
    }

    #[test]
    fn a_relay_of_unknown_software_gets_the_settings_of_all() {
        let answers = Answers { write: Answer::Refused("no".into()), ..fine() };
        let needs = Needs { events: 1, ..Needs::default() };
        let told = refusal(&answers, &needs).unwrap();
        assert!(told.contains("\"no\"") && told.contains("strfry:") && told.contains("khatru:"), "{told}");
        assert_eq!(refusal(&answers, &Needs::default()), None, "nothing to publish");
        let after = Answers { write_after_auth: Answer::Taken, ..answers };
        assert_eq!(refusal(&after, &needs), None);
    }

    #[test]
    fn the_table_names_bounds_refusals_and_verdicts() {
        let mut answers = fine();
        answers.rules = Rules { event_bytes: Some(65_536), hex_references: true, ..Rules::default() };
        answers.said.insert(Demand::EventBytes, "\"invalid: event too large\"".into());
        answers.burst = Some((60, 100));
        answers.written_kinds = [(1, Answer::Taken), (7, Answer::Refused("blocked: 7".into()))].into();
        let reason = |text: &str| Reason::for_demand(Demand::Write, text.to_owned());
        let verdict = |name: &str| Verdict { scenario: name.into(), reasons: vec![reason("because")] };
        let table = text(&answers, &Refused::from([("its size", 20)]), 5_000, &["x", "y"].map(verdict));
        assert_eq!(table.matches("because").count(), 2, "{table}");
        assert_eq!(table.matches("relay.writePolicy.plugin").count(), 1, "settings are told once: {table}");
        for says in [
            "65536 bytes of an event",
            "too large",
            "20 of 5000",
            "cannot be played",
            "of kind 1",
            "of kind 7: \"blocked: 7\"",
            "settings for publishing: strfry: relay.writePolicy.plugin;",
            "settings for larger events",
            "settings for more events a second",
            "60 of 100",
        ] {
            assert!(table.contains(says), "{says} in {table}");
        }
        assert!(text(&fine(), &Refused::new(), 1, &[]).contains("none was met"));
    }
}
