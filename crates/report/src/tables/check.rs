//! Hot paths against the committed counts.
use crate::{
    result::{Instructions, RESOLUTION, Row},
    tables::table::Table,
    verdicts::comparison::Verdict,
};

/// A path that costs more than this share above its committed count fails; where two counts of it
/// differ, this and their difference.
pub const FAILS: f64 = 0.03;

/// Counts beside the committed ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// Why the counts do not compare, where another compiler, Valgrind, C library or processor made
    /// them.
    pub differs: Vec<String>,
    /// One row a side that is not the same: what it was, what it is, and what that means.
    pub changed: Table,
    /// Sides that cost more than [`FAILS`] above their committed count.
    pub failed: Vec<String>,
    /// Names of paths that only one of both has.
    pub unmatched: Vec<String>,
    verdicts: Vec<(String, Verdict)>,
}

/// Whether a change may go in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It may.
    Passed,
    /// A path costs too much, or only one of both counts has it.
    Failed,
    /// Nobody knows: the counts were made under other conditions.
    NotComparable,
}

impl Check {
    /// Whether the change may go in.
    pub fn outcome(&self) -> Outcome {
        match () {
            () if !self.differs.is_empty() => Outcome::NotComparable,
            () if self.failed.is_empty() && self.unmatched.is_empty() => Outcome::Passed,
            () => Outcome::Failed,
        }
    }

    /// The verdict on a side: `codec json library, relay`.
    pub fn verdict(&self, side: &str) -> Option<Verdict> {
        self.verdicts.iter().find(|(name, _)| name == side).map(|(_, verdict)| *verdict)
    }
}

/// Compares counts with the committed ones, which may be of more paths when `only` some were
/// counted.
pub fn check(committed: &Instructions, now: &Instructions, only: Option<&str>) -> Check {
    let mut check = Check {
        differs: differences(committed, now),
        changed: Table::new(2, &["path", "side", "committed", "now", "change", ""]),
        failed: Vec::new(),
        unmatched: Vec::new(),
        verdicts: Vec::new(),
    };
    for row in &now.rows {
        match committed.row(&row.name) {
            Some(before) => check.compare(before, row),
            None => check.unmatched.push(format!("{} is new", row.name)),
        }
    }
    let wanted = |row: &&Row| only.is_none_or(|only| row.name.contains(only));
    let gone = committed.rows.iter().filter(wanted).filter(|row| now.row(&row.name).is_none());
    check.unmatched.extend(gone.map(|row| format!("{} is gone", row.name)));
    check
}

impl Check {
    fn compare(&mut self, before: &Row, now: &Row) {
        let repeats = before.repeat_difference.max(now.repeat_difference);
        for (side, before, now_at) in
            [("relay", before.relay, now.relay), ("client", before.client, now.client)]
        {
            if before == 0.0 && now_at == 0.0 {
                continue;
            }
            let change = now_at / before - 1.0;
            let verdict = verdict(1.0 + change, repeats);
            self.verdicts.push((format!("{}, {side}", now.name), verdict));
            if verdict == Verdict::Same {
                continue;
            }
            let fails = change > FAILS + repeats;
            let meaning = if fails { "fails".to_owned() } else { verdict.to_string() };
            self.changed.rows.push(vec![
                now.name.clone(),
                side.to_owned(),
                format!("{before:.1}"),
                format!("{now_at:.1}"),
                format!("{:+.2} %", change * 100.0),
                meaning,
            ]);
            if fails {
                self.failed.push(format!("{}, {side}", now.name));
            }
        }
    }
}

/// Paths whose two counts differ by more than a gate can do with: plays by as much as fails, others
/// by more than [`RESOLUTION`].
pub fn unsteady(counted: &Instructions) -> Vec<&Row> {
    let most = |row: &Row| if row.name.starts_with("play ") { FAILS } else { RESOLUTION };
    counted.rows.iter().filter(|row| row.repeat_difference >= most(row)).collect()
}

/// The verdict on a ratio of two counts, where two counts of the same differed by the share
/// `repeats`.
pub(crate) fn verdict(ratio: f64, repeats: f64) -> Verdict {
    let resolution = RESOLUTION.max(repeats);
    match () {
        () if ratio > 1.0 + resolution => Verdict::Worse,
        () if ratio < 1.0 - resolution => Verdict::Better,
        () => Verdict::Same,
    }
}

/// Differences that keep two counts from comparing.
fn differences(committed: &Instructions, now: &Instructions) -> Vec<String> {
    let (before, now) = (&committed.conditions, &now.conditions);
    let compiler = |name: &Option<String>| name.clone().unwrap_or_else(|| "unknown".to_owned());
    let build = |optimised| if optimised { "optimised" } else { "not optimised" }.to_owned();
    [
        ("compiler", compiler(&before.rustc), compiler(&now.rustc)),
        ("build", build(before.optimised), build(now.optimised)),
        ("Valgrind", before.valgrind.clone(), now.valgrind.clone()),
        ("C library", before.libc.clone(), now.libc.clone()),
        ("processor", before.processor.clone(), now.processor.clone()),
    ]
    .into_iter()
    .filter(|(_, before, now)| before != now)
    .map(|(what, before, now)| format!("{what}: {now} here, {before} in the table"))
    .collect()
}

#[cfg(test)]
mod tests {
    use measure::{SCHEMA_VERSION, Tool};

    use super::*;
    use crate::result::Conditions;

    fn counted(rows: &[(&str, f64, f64)]) -> Instructions {
        let row = |&(name, relay, client): &(&str, f64, f64)| Row {
            name: name.to_owned(),
            units: 1,
            relay,
            client,
            repeat_difference: 0.0,
        };
        Instructions {
            schema_version: SCHEMA_VERSION.to_owned(),
            tool: Tool { name: "compare".to_owned(), version: String::new() },
            conditions: Conditions {
                rustc: Some("rustc 1.0".to_owned()),
                optimised: true,
                valgrind: "valgrind-3".to_owned(),
                libc: "libc 2".to_owned(),
                processor: "x86_64".to_owned(),
            },
            rows: rows.iter().map(row).collect(),
        }
    }

    #[test]
    fn three_per_cent_fail_and_a_fifth_of_one_is_seen() {
        let committed = counted(&[("a", 1_000.0, 1_000.0), ("b", 1_000.0, 0.0)]);
        for (relay, verdict, outcome) in [
            (1_000.0, Verdict::Same, Outcome::Passed),
            (1_001.9, Verdict::Same, Outcome::Passed),
            (1_002.1, Verdict::Worse, Outcome::Passed),
            (1_020.0, Verdict::Worse, Outcome::Passed),
            (1_031.0, Verdict::Worse, Outcome::Failed),
            (990.0, Verdict::Better, Outcome::Passed),
        ] {
            let found = check(&committed, &counted(&[("a", relay, 1_000.0), ("b", 1_000.0, 0.0)]), None);
            assert_eq!((found.verdict("a, relay"), found.outcome()), (Some(verdict), outcome), "{relay}");
            assert_eq!(found.verdict("a, client"), Some(Verdict::Same));
        }
    }

    #[test]
    fn paths_that_come_and_go_fail_until_they_are_accepted() {
        let committed = counted(&[("a", 1.0, 1.0), ("b", 1.0, 1.0)]);
        let found = check(&committed, &counted(&[("a", 1.0, 1.0), ("c", 1.0, 1.0)]), None);
        assert_eq!(found.unmatched, ["c is new", "b is gone"]);
        assert_eq!(found.outcome(), Outcome::Failed);
        let of_a = check(&committed, &counted(&[("a", 1.0, 1.0)]), Some("a"));
        assert_eq!(of_a.outcome(), Outcome::Passed, "b was not asked for");
    }

    #[test]
    fn what_two_counts_of_the_same_differ_by_is_no_change_and_no_failure() {
        let (mut committed, now) = (counted(&[("a", 1_000.0, 0.0)]), counted(&[("a", 1_007.0, 0.0)]));
        assert_eq!(check(&committed, &now, None).verdict("a, relay"), Some(Verdict::Worse));
        committed.rows[0].repeat_difference = 0.008;
        let found = check(&committed, &now, None);
        assert_eq!(found.verdict("a, relay"), Some(Verdict::Same));
        assert!(found.changed.is_empty());
        for (relay, outcome) in [(1_037.0, Outcome::Passed), (1_039.0, Outcome::Failed)] {
            assert_eq!(check(&committed, &counted(&[("a", relay, 0.0)]), None).outcome(), outcome, "{relay}");
        }
    }

    #[test]
    fn a_path_that_does_not_repeat_is_named() {
        let mut counts = counted(&[("codec a", 1.0, 1.0), ("play b", 1.0, 1.0)]);
        for (differ, names) in
            [(0.0019, vec![]), (0.0021, vec!["codec a"]), (0.031, vec!["codec a", "play b"])]
        {
            counts.rows.iter_mut().for_each(|row| row.repeat_difference = differ);
            assert_eq!(unsteady(&counts).iter().map(|row| &row.name).collect::<Vec<_>>(), names, "{differ}");
        }
    }

    #[test]
    fn counts_of_another_compiler_neither_pass_nor_fail() {
        let committed = counted(&[("a", 1.0, 1.0)]);
        for (cost, outcome) in [(1.0, Outcome::Passed), (2.0, Outcome::Failed)] {
            let mut now = counted(&[("a", cost, cost)]);
            assert_eq!(check(&committed, &now, None).outcome(), outcome);
            now.conditions.rustc = Some("rustc 2.0".to_owned());
            let found = check(&committed, &now, None);
            assert_eq!(found.differs, ["compiler: rustc 2.0 here, rustc 1.0 in the table"]);
            assert_eq!(found.outcome(), Outcome::NotComparable);
        }
    }
}
