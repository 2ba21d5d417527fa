//! From answers to a table: what works, which scenario can be played, which setting to change,
//! which events will be refused. Pure.

use std::fmt::Write;

use codecs::Event;
use serde::Serialize;

use super::{
    answers::{Answer, Answers, Demand, Ties},
    needs::{Needs, json_bytes},
    settings::Software,
};

/// Whether a scenario can be played.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    /// The scenario's name.
    pub(crate) scenario: String,
    /// Why it cannot, each with the setting to change where one is known.
    pub(crate) reasons: Vec<String>,
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
pub(crate) fn reasons(answers: &Answers, needs: &Needs) -> Vec<String> {
    let mut reasons = Vec::new();
    if let Some(stopped) = &answers.stopped {
        reasons.push(stopped.clone());
        return reasons;
    }
    let written = [&answers.write, &answers.write_after_auth].contains(&&Answer::Taken);
    if let Some(said) = answers.write.refusal().filter(|_| !written && needs.events > 0) {
        reasons
            .push(answers.with_setting(Demand::Write, format!("it refuses a small ephemeral event: {said}")));
    }
    if let Some(said) = answers.read.refusal() {
        reasons.push(answers.with_setting(Demand::Read, format!("it refuses a small request: {said}")));
    }
    if needs.auth && !answers.challenge {
        reasons.push(answers.with_setting(Demand::Write, "it sends no AUTH challenge (NIP-42)".to_owned()));
    }
    let unread: Vec<_> = needs.kinds.iter().filter(|kind| answers.unread_kinds.contains_key(kind)).collect();
    if let Some(first) = unread.first().filter(|_| !needs.auth) {
        let kinds: Vec<_> = unread.iter().map(ToString::to_string).collect();
        let said = &answers.unread_kinds[*first];
        let text = format!("it refuses requests for kind {}: {said}", kinds.join(", "));
        reasons.push(answers.with_setting(Demand::Read, text));
    }
    let rules = &answers.rules;
    let bounds = [
        (Demand::FilterValues, rules.filter_values, needs.filter_values, "entries in a list of a filter"),
        (Demand::Subscriptions, rules.subscriptions, needs.subscriptions, "subscriptions at one time"),
        (Demand::StoredEvents, rules.stored_events, needs.stored_events, "stored events for one filter"),
    ];
    for (demand, bound, needed, what) in bounds {
        if let Some(bound) = bound.filter(|bound| *bound < needed) {
            let text = format!("it takes {bound} {what}, and the scenario needs {needed}");
            reasons.push(answers.with_setting(demand, text));
        }
    }
    if let Some(said) = answers.reconcile.refusal().filter(|_| needs.reconciles) {
        reasons.push(format!("it does not reconcile (NIP-77): {said}"));
    }
    reasons
}

impl Answers {
    fn software(&self) -> Option<Software> {
        self.info.as_ref().and_then(Software::of)
    }

    /// The text with the setting that helps: of the relay's software, or of all known ones.
    fn with_setting(&self, demand: Demand, text: String) -> String {
        let setting = match self.software() {
            Some(software) => {
                software.setting(demand).map(|setting| format!("{}: {setting}", software.name()))
            }
            None => {
                let all = Software::ALL
                    .into_iter()
                    .filter_map(|one| Some(format!("{}: {}", one.name(), one.setting(demand)?)));
                Some(all.collect::<Vec<_>>().join("; ")).filter(|all| !all.is_empty())
            }
        };
        match setting {
            Some(setting) => format!("{text} [setting: {setting}]"),
            None => text,
        }
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
    for line in bounds(answers) {
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
        }
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
        let text = format!("{accepted} of {sent} accepted{said}");
        works.push((
            "a burst of events",
            if accepted < sent { answers.with_setting(Demand::Rate, text) } else { text },
        ));
    }
    works
}

fn bounds(answers: &Answers) -> Vec<String> {
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
    ];
    let mut lines = Vec::new();
    for (demand, bound, what) in all {
        let Some(bound) = bound else { continue };
        let said = answers.said.get(&demand).map(|said| format!("; beyond: {said}")).unwrap_or_default();
        lines.push(answers.with_setting(demand, format!("{bound} {what}{said}")));
    }
    for (kind, said) in &answers.unread_kinds {
        lines.push(answers.with_setting(Demand::Read, format!("no requests for kind {kind}: {said}")));
    }
    if lines.is_empty() {
        lines.push("none was met".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use corpus::Rules;

    use super::*;
    use crate::doctor::answers::Info;

    fn fine() -> Answers {
        Answers { write: Answer::Taken, read: Answer::Taken, ..Answers::default() }
    }

    #[test]
    fn a_relay_that_takes_everything_has_no_reasons() {
        let needs =
            Needs { filter_values: 500, subscriptions: 7, stored_events: 500, events: 9, ..Needs::default() };
        assert_eq!(reasons(&fine(), &needs), Vec::<String>::new());
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
        assert_eq!(found.len(), 5, "{found:?}");
        for says in
            ["restrictedReadKinds", "maxWebsocketPayloadSize", "maxSubsPerConnection", "maxFilterLimit"]
        {
            assert!(found.iter().any(|reason| reason.contains(says)), "{says}: {found:?}");
        }
        assert!(!found.join(" ").contains("LocalRelay"), "only the relay's own settings");
        assert!(found[0].contains("kind 4:") && found[4].contains("the relay was silent"), "{found:?}");
        let enough = Needs { filter_values: 499, subscriptions: 20, stored_events: 500, ..Needs::default() };
        assert_eq!(reasons(&answers, &enough), Vec::<String>::new(), "at the bounds");
    }

    #[test]
    fn a_relay_of_unknown_software_gets_the_settings_of_all() {
        let answers = Answers { write: Answer::Refused("no".into()), ..fine() };
        let needs = Needs { events: 1, ..Needs::default() };
        let found = reasons(&answers, &needs);
        assert!(found[0].contains("\"no\"") && found[0].contains("strfry:") && found[0].contains("khatru:"));
        assert_eq!(reasons(&answers, &Needs::default()), Vec::<String>::new(), "nothing to publish");
        let after = Answers { write_after_auth: Answer::Taken, ..answers };
        assert_eq!(reasons(&after, &needs), Vec::<String>::new());
    }

    #[test]
    fn the_table_names_bounds_refusals_and_verdicts() {
        let mut answers = fine();
        answers.rules = Rules { event_bytes: Some(65_536), hex_references: true, ..Rules::default() };
        answers.said.insert(Demand::EventBytes, "\"invalid: event too large\"".into());
        answers.burst = Some((60, 100));
        let verdicts = [Verdict { scenario: "x".into(), reasons: vec!["because".into()] }];
        let table = text(&answers, &Refused::from([("its size", 20)]), 5_000, &verdicts);
        for says in
            ["65536 bytes of an event", "too large", "20 of 5000", "cannot be played", "because", "60 of 100"]
        {
            assert!(table.contains(says), "{says} in {table}");
        }
        assert!(text(&fine(), &Refused::new(), 1, &[]).contains("none was met"));
    }
}
