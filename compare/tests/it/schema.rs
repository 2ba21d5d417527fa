//! The layouts of `result.json` and `derived.json` are published; a change of the types shows as a
//! change of a committed schema.

use std::{path::Path, process::Command};

use crate::{
    browser,
    common::result,
    report::{CELLS, measured, troubled},
    search,
};
use expect_test::expect_file;
use report::{DERIVED_FILE, Derived, ResultFile};

const RESULT_SCHEMA: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/report/schema/result-v2.schema.json");
const DERIVED_SCHEMA: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/report/schema/derived-v3.schema.json");

#[test]
fn the_committed_schemas_are_those_of_the_types() {
    let text = |schema| serde_json::to_string_pretty(&schema).unwrap() + "\n";
    expect_file![RESULT_SCHEMA].assert_eq(&text(ResultFile::json_schema()));
    expect_file![DERIVED_SCHEMA].assert_eq(&text(Derived::json_schema()));
}

#[test]
#[ignore = "needs python3 with jsonschema"]
fn files_follow_the_schemas() {
    let folder = tempfile::tempdir().unwrap();
    let validate = "import json, sys, jsonschema
schema, file = (json.load(open(file)) for file in sys.argv[1:])
jsonschema.Draft202012Validator.check_schema(schema)
jsonschema.validate(file, schema)";
    let validated = |schema: &str, file: &Path| {
        let output = Command::new("python3").args(["-c", validate, schema]).arg(file).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let file = folder.path().join(report::RESULT_FILE);
    for result in
        [result("standard", 6, &CELLS, measured), troubled(), search::break_even(1.0), browser::result()]
    {
        result.write(folder.path()).unwrap();
        Derived::from_result(&result).write(folder.path()).unwrap();
        let derived = folder.path().join(DERIVED_FILE);
        for (valid, why) in [validated(RESULT_SCHEMA, &file), validated(DERIVED_SCHEMA, &derived)] {
            assert!(valid, "{why}");
        }
        assert!(!validated(DERIVED_SCHEMA, &file).0, "a result passed for what follows from it");
    }
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"rounds\"", "\"turns\"")).unwrap();
    assert!(!validated(RESULT_SCHEMA, &file).0, "a file without its rounds passed");
}
