//! Hot paths against the committed counts.
use crate::{
    result::{Instructions, RESOLUTION, Row},
    tables::table::Table,
    verdicts::comparison::Verdict,
};

/// A path that costs more than this share above its committed count fails; where two counts of it
/// differ, this and their difference.
const FAILS: f64 = 0.03;

/// Counts beside the committed ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// Why the counts do not compare, where another compiler, Valgrind, C library or processor made
    /// them: then nobody knows whether the change may go in.
    pub differs: Vec<String>,
    /// One row a side that is not the same: what it was, what it is, and what that means.
    pub changed: Table,
    /// Sides that cost more than 3 % above their committed count, and paths that only one of both
    /// has.
    pub failed: Vec<String>,
}

/// Compares counts with the committed ones, which may be of more paths when `only` some were
/// counted.
pub fn check(committed: &Instructions, now: &Instructions, only: Option<&str>) -> Check {
    let mut check = Check {
        differs: differences(committed, now),
        changed: Table::new(2, &["path", "side", "committed", "now", "change", ""]),
        failed: Vec::new(),
    };
    for row in &now.rows {
        match committed.row(&row.name) {
            Some(before) => check.compare(before, row),
            None => check.failed.push(format!("{} is new", row.name)),
        }
    }
    let wanted = |row: &&Row| only.is_none_or(|only| row.name.contains(only));
    let gone = committed.rows.iter().filter(wanted).filter(|row| now.row(&row.name).is_none());
    check.failed.extend(gone.map(|row| format!("{} is gone", row.name)));
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
                let percent = FAILS * 100.0;
                self.failed.push(format!("{}, {side}: more than {percent:.0} % above its count", now.name));
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
    Verdict::of_interval((ratio, ratio), RESOLUTION.max(repeats))
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
    fn three_per_cent_fail_and_a_fifth_of_one_is_seen_beyond_what_two_counts_differ_by() {
        for (differ, relay, says) in [
            (0.0, 1_000.0, None),
            (0.0, 1_001.9, None),
            (0.0, 1_002.1, Some("worse")),
            (0.0, 1_020.0, Some("worse")),
            (0.0, 1_031.0, Some("fails")),
            (0.0, 990.0, Some("better")),
            (0.008, 1_007.0, None),
            (0.008, 1_037.0, Some("worse")),
            (0.008, 1_039.0, Some("fails")),
        ] {
            let mut committed = counted(&[("a", 1_000.0, 1_000.0), ("b", 1_000.0, 0.0)]);
            committed.rows[0].repeat_difference = differ;
            let found = check(&committed, &counted(&[("a", relay, 1_000.0), ("b", 1_000.0, 0.0)]), None);
            let changes: Vec<_> = found.changed.rows.iter().filter_map(|row| row.last()).collect();
            assert_eq!(changes, Vec::from_iter(says), "{relay}");
            assert_eq!(found.failed.len(), usize::from(says == Some("fails")), "{relay}");
        }
    }

    #[test]
    fn paths_that_come_and_go_fail_until_they_are_accepted() {
        let committed = counted(&[("a", 1.0, 1.0), ("b", 1.0, 1.0)]);
        let found = check(&committed, &counted(&[("a", 1.0, 1.0), ("c", 1.0, 1.0)]), None);
        assert_eq!(found.failed, ["c is new", "b is gone"]);
        let of_a = check(&committed, &counted(&[("a", 1.0, 1.0)]), Some("a"));
        assert!(of_a.failed.is_empty(), "b was not asked for");
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
    fn counts_of_another_compiler_are_said_not_to_compare() {
        let (committed, mut now) = (counted(&[("a", 1.0, 1.0)]), counted(&[("a", 2.0, 2.0)]));
        assert!(check(&committed, &now, None).differs.is_empty());
        now.conditions.rustc = Some("rustc 2.0".to_owned());
        let found = check(&committed, &now, None);
        assert_eq!(found.differs, ["compiler: rustc 2.0 here, rustc 1.0 in the table"]);
    }
}
