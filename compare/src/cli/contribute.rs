//! `compare contribute`: is a result one that others can check and make again?

use std::path::Path;

use anyhow::Result;
use measure::{Exit, SCHEMA_VERSION};
use program::{UsageError, print, report as say};

use super::write_reports;
use report::{
    Report,
    result::{MeasuredBy, Provenance, RESULT_FILE, ResultFile},
};

/// Where results of others lie.
const CONTRIBUTED: &str = "results/contributed";

/// Checks a result, writes into it who measured it, and prints the commands that add it.
pub(super) fn check(dir: &Path, by: MeasuredBy, paid_by: Option<String>) -> Result<Exit> {
    let mut result = ResultFile::read(dir).map_err(UsageError)?;
    let reasons = result.not_contributable();
    if !reasons.is_empty() {
        say(&format!("error: {} is not to be contributed:", dir.display()));
        reasons.iter().for_each(|reason| say(&format!("  {reason}")));
        return Ok(Exit::Invalid);
    }
    let folder = if dir.is_dir() { dir } else { dir.parent().unwrap_or(Path::new(".")) };
    result.provenance = Some(Provenance { by, paid_by });
    SCHEMA_VERSION.clone_into(&mut result.schema_version);
    result.write(folder)?;
    write_reports(&Report::from_result(&result), &result, folder)?;
    if let Some(left_out) = result.selftest.as_ref().map(|test| test.left_out()).filter(|out| !out.is_empty())
    {
        say(&format!("not tested: {}", left_out.join(", ")));
    }
    let name =
        folder.canonicalize().ok().and_then(|full| Some(full.file_name()?.to_string_lossy().into_owned()));
    let quoted =
        |path: String| shlex::try_quote(&path).map_or_else(|_| path.clone(), |quoted| quoted.into_owned());
    let to = quoted(format!("{CONTRIBUTED}/{}", name.unwrap_or_else(|| "result".to_owned())));
    let from = |file: &str| quoted(folder.join(file).display().to_string());
    say("Every sum holds. In a checkout of this repository:");
    print(&format!(
        "mkdir -p {to} && gzip -9nc {} >{to}/result.json.gz && cp {} {to} && git add {to}\n",
        from(RESULT_FILE),
        from("summary.md")
    ))?;
    Ok(Exit::Success)
}
