//! What a run of several relays found, as JUnit's XML: CI services show it beside other tests.

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
    for judged in judged {
        let one = &judged.comparison;
        let name = format!("{} of {} against {}", one.metric.short(), one.cell, one.reference);
        let status = match (judged.fails, one.verdict) {
            (true, _) => failure(judged.to_string()),
            (false, Verdict::Inconclusive | Verdict::Unsteady | Verdict::Saturated) => {
                let mut skipped = TestCaseStatus::skipped();
                skipped.set_message(format!("{judged}: {}", one.verdict));
                skipped
            }
            (false, Verdict::Better | Verdict::Worse | Verdict::Same) => TestCaseStatus::success(),
        };
        suite.add_test_case(TestCase::new(name, status));
    }
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
                let mut skipped = TestCaseStatus::skipped();
                skipped.set_message("no block was played to its end");
                skipped
            }
            None => TestCaseStatus::success(),
        };
        suite.add_test_case(TestCase::new(format!("ledger of {}", cell.id), status));
    }
    let mut report = Report::new("compare run");
    report.add_test_suite(suite);
    report
}

fn failure(message: String) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    status.set_message(message);
    status
}
