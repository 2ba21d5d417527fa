//! The limits of clients: what docs/faults.md says was seen.

use std::process::Command;

#[test]
fn too_few_descriptors_for_the_plan_are_named_before_it_begins() {
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 100 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_client-sim")])
        .args(["--scenario", "note-stream", "--set", "subscribe.connections=200"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("201 connections need 265 descriptors") && said.contains("may open 100 here"),
        "{said}"
    );
}
