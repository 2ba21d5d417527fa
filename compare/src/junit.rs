//! A comparison of relays as JUnit XML, which CI services show next to other tests.

use std::path::Path;

use anyhow::{Context, Result};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use report::{
    Block, Judged, Verdict,
    result::{ResultFile, Role},
};

/// Writes a test case for each verdict, and for the ledger of each cell.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write(result: &ResultFile, judged: &[Judged], file: &Path) -> Result<()> {
    let text = report(result, judged).to_string().context("a report serializes")?;
    measure::write_whole(file, text.as_bytes()).with_context(|| format!("cannot write {}", file.display()))
}

fn report(result: &ResultFile, judged: &[Judged]) -> Report {
    let mut suite = TestSuite::new(result.config.scenarios.join(", "));
    suite.add_test_cases(judged.iter().map(compared));
    for cell in result.cells.iter().filter(|cell| cell.role != Role::Floor) {
        let found = |block: &Block| {
            let why = match &block.record {
                Some(record) => record.owed().balanced().err()?,
                None if block.is_interrupted() => return None,
                None => block.failure.clone().unwrap_or_else(|| "no record".to_owned()),
            };
            Some(format!("round {}: {why}", block.round + 1))
        };
        let status = match cell.blocks.iter().find_map(found) {
            Some(why) => failure(why),
            None if cell.blocks.iter().all(Block::is_interrupted) => {
                skipped("no block was played to its end".to_owned())
            }
            None => TestCaseStatus::success(),
        };
        suite.add_test_case(TestCase::new(format!("ledger of {}", cell.id), status));
    }
    let mut report = Report::new("compare run");
    report.add_test_suite(suite);
    report
}

/// A verdict. A metric that fails nothing may still be worse, and its text states this.
fn compared(judged: &Judged) -> TestCase {
    let one = &judged.comparison;
    let name = format!("{} of {} against {}", one.metric.short(), one.cell, one.reference);
    let found = format!("{judged}: {}", one.verdict);
    match (judged.fails, one.verdict) {
        (true, _) => TestCase::new(name, failure(judged.to_string())),
        (false, Verdict::Inconclusive | Verdict::Unsteady | Verdict::Saturated) => {
            TestCase::new(name, skipped(found))
        }
        (false, Verdict::Better | Verdict::Worse | Verdict::Same) => {
            let mut case = TestCase::new(name, TestCaseStatus::success());
            case.set_system_out(found);
            case
        }
    }
}

fn skipped(message: String) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(message);
    status
}

fn failure(message: String) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    status.set_message(message);
    status
}

#[cfg(test)]
mod tests {
    use report::{Comparison, metric::Metric};

    use super::*;

    /// The XML of a verdict.
    fn xml(verdict: Verdict, fails: bool) -> String {
        let comparison = Comparison {
            cell: "json+none+new".to_owned(),
            reference: "json+none+old".to_owned(),
            metric: Metric::RelayCpu,
            ratio: 1.06,
            interval: Some((1.04, 1.08)),
            rounds: 12,
            p: 0.001,
            corrected: true,
            family: None,
            aa_interval: None,
            verdict,
        };
        let mut suite = TestSuite::new("mixed-day");
        suite.add_test_case(compared(&Judged { comparison, fails }));
        let mut report = Report::new("compare run");
        report.add_test_suite(suite);
        report.to_string().unwrap()
    }

    #[test]
    fn a_verdict_that_fails_nothing_says_what_was_found() {
        let found = "relay CPU of json+none+new is ×1.06 [1.04, 1.08] of json+none+old";
        for verdict in [Verdict::Better, Verdict::Worse, Verdict::Same] {
            let passed = xml(verdict, false);
            let says = format!("<system-out>{found}: {verdict}</system-out>");
            assert!(passed.contains(&says) && passed.contains("failures=\"0\""), "{passed}");
        }
        for verdict in [Verdict::Inconclusive, Verdict::Unsteady, Verdict::Saturated] {
            let undecided = xml(verdict, false);
            assert!(undecided.contains(&format!("<skipped message=\"{found}: {verdict}\"")), "{undecided}");
        }
        // Certain, and yet its interval may reach into the band.
        for verdict in [Verdict::Worse, Verdict::Inconclusive] {
            let failed = xml(verdict, true);
            assert!(failed.contains(&format!("<failure message=\"{found}\"")), "{failed}");
            assert!(!failed.contains("<system-out>"), "{failed}");
        }
    }
}
