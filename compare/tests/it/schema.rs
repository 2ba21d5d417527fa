//! The layout of `result.json` is published; a change of the types shows as a change of the committed schema.

use std::{path::Path, process::Command};

use crate::{
    common::{check_snapshot, result},
    report::{CELLS, measured, troubled},
};
use compare::ResultFile;

const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/result-v1.schema.json");

#[test]
fn the_committed_schema_is_the_one_of_the_types() {
    let text = serde_json::to_string_pretty(&ResultFile::json_schema()).unwrap() + "\n";
    check_snapshot(Path::new(SCHEMA), &text);
}

#[test]
fn results_follow_the_schema() {
    let usable = Command::new("python3").args(["-c", "import jsonschema"]).output();
    if !usable.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: needs Python with jsonschema (pip install jsonschema)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let validate = "import json, sys, jsonschema
schema, result = (json.load(open(file)) for file in sys.argv[1:])
jsonschema.Draft202012Validator.check_schema(schema)
jsonschema.validate(result, schema)";
    let validated = |file: &Path| {
        let output = Command::new("python3").args(["-c", validate, SCHEMA]).arg(file).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let file = folder.path().join(compare::RESULT_FILE);
    for result in [result("standard", 6, &CELLS, measured), troubled()] {
        result.write(folder.path()).unwrap();
        let (valid, why) = validated(&file);
        assert!(valid, "{why}");
    }
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"rounds\"", "\"turns\"")).unwrap();
    assert!(!validated(&file).0, "a file without its rounds passed");
}
