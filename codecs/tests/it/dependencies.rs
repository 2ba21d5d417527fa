//! Architecture: this crate turns bytes into messages and knows no runtime and no socket.

use std::process::Command;

#[test]
fn codecs_depends_on_no_runtime() {
    let output = Command::new(env!("CARGO"))
        .args("tree --offline --locked --package codecs --edges normal --prefix none".split(' '))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
    let crates: Vec<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(crates.contains(&"ciborium") && crates.contains(&"serde_json"), "not this crate's tree:\n{tree}");
    for runtime in ["tokio", "mio", "async-std", "smol", "socket2", "hyper", "tungstenite", "futures"] {
        assert!(!crates.contains(&runtime), "codecs depends on {runtime}:\n{tree}");
    }
}
