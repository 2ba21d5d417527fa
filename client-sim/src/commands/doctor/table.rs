//! From answers to a table: which scenario can be played, what is set aside, which setting to change.
//! Pure.

use std::collections::BTreeMap;

use codecs::Event;
use corpus::{
    Rules,
    rules::{Bound, of_kinds},
};

use super::{
    answers::{AUTH, Answers, Info, READ, RECONCILE},
    needs::{ENTRIES, Needs, json_bytes},
};

/// Software, words of findings and setting, a line each.
const SETTINGS: &str = include_str!("settings.txt");

/// How many events the rules refuse, by reason.
pub(super) fn refused(rules: &Rules, events: &[Event<'_>]) -> BTreeMap<String, u64> {
    let mut refused = BTreeMap::new();
    for reason in events.iter().filter_map(|event| rules.refuses(event, json_bytes(event))) {
        *refused.entry(reason.into_owned()).or_default() += 1;
    }
    refused
}

/// Why a plan cannot be played; empty when nothing stands against it. A rule on events is no reason:
/// what the relay refuses or withholds is set aside.
pub(super) fn reasons(answers: &Answers, needs: &Needs) -> Vec<String> {
    if let Some(stopped) = &answers.stopped {
        return vec![stopped.clone()];
    }
    let wanted = [(READ, !answers.reads(needs.auth)), (AUTH, needs.auth), (RECONCILE, needs.reconciles)];
    let wanted = wanted.into_iter().filter(|(_, is_wanted)| *is_wanted);
    let mut reasons: Vec<_> = wanted.filter_map(|(what, _)| does_not(answers, what)).collect();
    for (what, needed) in &needs.most {
        let bound = answers.bounds.get(what).filter(|bound| bound.most < *needed);
        reasons.extend(bound.map(|bound| lacks(what, bound, &format!(", and the scenario needs {needed}"))));
    }
    let rules = answers.rules(needs);
    if !needs.written.is_empty() && needs.written.keys().all(|kind| rules.kinds.contains_key(kind)) {
        reasons.extend(set_aside(&rules));
    }
    reasons
}

/// What a relay has too little of, with its words.
fn lacks(what: &str, Bound { most, said }: &Bound, but: &str) -> String {
    match what.strip_prefix(ENTRIES).filter(|_| *most == 0) {
        Some(of) => format!("it takes no request for {of}: {said}"),
        None => format!("it takes {most} {what}{but}: {said}"),
    }
}

/// What it does not do, with its words.
fn does_not(answers: &Answers, what: &str) -> Option<String> {
    let said = answers.tried.get(what)?.as_ref()?;
    Some(format!("it does not {what}: {said}"))
}

/// Kinds that are set aside, with the relay's words.
pub(super) fn set_aside(rules: &Rules) -> impl Iterator<Item = String> {
    rules.kinds_set_aside().into_iter().map(|line| match line.contains(": refused") {
        true => format!("it refuses {line}"),
        false => format!("it keeps back {line}"),
    })
}

/// Why a plan cannot be played and what to set on the relay, in one line; `None` when nothing
/// stands against it.
pub(crate) fn refusal(answers: &Answers, needs: &Needs) -> Option<String> {
    let reasons = reasons(answers, needs);
    let settings = settings(answers.info.as_ref(), &reasons);
    (!reasons.is_empty()).then(|| [reasons, settings].concat().join("; "))
}

/// Settings to change on the relay, a line for each of its faults: those of its software, or else of
/// all known ones.
pub(super) fn settings(info: Option<&Info>, findings: &[String]) -> Vec<String> {
    let own = software(info);
    let mut settings: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, words, setting) in rows().filter(|row| row.1 != "is" && own.is_none_or(|own| own == row.0)) {
        // Behind the first colon are the relay's words.
        let is_met = |word: &&str| {
            findings.iter().any(|text| text.split(": ").next().is_some_and(|own| own.contains(*word)))
        };
        for word in words.split(", ").filter(is_met) {
            settings.entry(word).or_default().push(format!("{name}: {setting}"));
        }
    }
    settings.iter().map(|(word, of)| format!("settings for \"{word}\": {}", of.join("; "))).collect()
}

fn rows() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    SETTINGS.lines().filter_map(|line| {
        let mut parts = line.splitn(3, " | ");
        Some((parts.next()?, parts.next()?, parts.next()?))
    })
}

/// The software that NIP-11 names; `None` if it is another or not named.
fn software(info: Option<&Info>) -> Option<&'static str> {
    let info = info?;
    let text = format!("{:?} {:?}", info.software, info.name).to_lowercase();
    let is = |marks: &str| marks.split(' ').any(|mark| text.contains(mark));
    rows().find(|(_, words, marks)| *words == "is" && is(marks)).map(|(name, ..)| name)
}

/// All that the relay refuses or withholds.
pub(super) fn findings(answers: &Answers) -> Vec<String> {
    let rules = &answers.rules;
    let mut all: Vec<String> = set_aside(rules).collect();
    all.extend(rules.bounds.iter().map(|(property, bound)| format!("it refuses {}", property.beyond(bound))));
    all.extend(answers.bounds.iter().map(|(what, bound)| lacks(what, bound, "")));
    let mut of = |is: &dyn Fn(u16) -> bool, text: &str| {
        let kinds: Vec<u16> = rules.kinds.keys().copied().filter(|kind| is(*kind)).collect();
        all.extend((!kinds.is_empty()).then(|| format!("{}{text}", of_kinds(&kinds))));
    };
    of(&|kind| rules.kinds[&kind].live, " delivered live: played by scenarios that read no stored events");
    of(&|kind| rules.kinds[&kind].stored, " given back: played by scenarios that read nothing live");
    of(&|kind| !rules.kinds_after_auth.contains_key(&kind), " taken and given back after AUTH");
    let bits = Some(answers.work_bits).filter(|bits| *bits > 0);
    all.extend(bits.map(|bits| format!("each event is given {bits} bits of proof of work (NIP-13)")));
    all.extend(answers.rate.iter().map(|said| format!("a bound on the rate, which a run may meet: {said}")));
    all.extend(does_not(answers, AUTH));
    all
}

/// The table for people.
pub(super) fn text(answers: &Answers) -> String {
    let mut lines = vec![format!("{}: {}", answers.url, who(answers))];
    let mut section = |title: &str, of: Vec<String>| {
        lines.extend([String::new(), title.to_owned()]);
        lines.extend(of.into_iter().map(|line| format!("  {line}")));
    };
    if let Some(stopped) = &answers.stopped {
        section("The rehearsal ended early", vec![stopped.clone()]);
    }
    let works = answers.tried.iter();
    let works = works.map(|(what, why)| (what.clone(), why.clone().unwrap_or_else(|| "yes".to_owned())));
    let handshakes = answers.handshakes.iter().map(|one| {
        let batched = if one.batched { ", batched" } else { "" };
        let granted = match &one.granted {
            Ok(granted) if *granted == one.compression => "granted".to_owned(),
            Ok(granted) => format!("granted as {granted}"),
            Err(why) => format!("declined: {why}"),
        };
        (format!("{}+{}{batched}", one.format, one.compression), granted)
    });
    let works = works.chain(handshakes).map(|(what, how)| format!("{what:<32} {how}"));
    section("What works", works.collect());
    section("Bounds (where none is named, the rehearsal met none)", findings(answers));
    let refused = answers.refused_events.iter().map(|(reason, count)| format!("{count:>6}  {reason}"));
    let sum: u64 = answers.refused_events.values().sum();
    let title = format!("Events of the corpus that a run sets aside: {sum} of {}", answers.corpus_events);
    section(&title, refused.collect());
    let scenarios = answers.scenarios.iter().flat_map(|verdict| {
        let can = if verdict.reasons.is_empty() { "can be played" } else { "cannot be played" };
        let reasons = verdict.reasons.iter().map(|reason| format!("    {reason}"));
        std::iter::once(format!("{:<24} {can}", verdict.scenario)).chain(reasons)
    });
    section("Scenarios", scenarios.collect());
    if !answers.settings.is_empty() {
        section("What to set on the relay", answers.settings.clone());
    }
    lines.join("\n") + "\n"
}

fn who(answers: &Answers) -> String {
    let Some(info) = &answers.info else {
        return format!("no NIP-11 document ({})", answers.no_info.as_deref().unwrap_or("not asked"));
    };
    let name = info.software.as_deref().or(info.name.as_deref()).unwrap_or("software not named");
    let version = info.version.as_deref().unwrap_or("");
    format!("{name} {version} ({})", software(Some(info)).unwrap_or("settings not known"))
}
