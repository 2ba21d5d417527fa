//! Commands of documents, which the programs take.

use super::help;

const README: &str = include_str!("../../../README.md");
const COMMANDS: &str = include_str!("../../../docs/commands.md");

const PROGRAMS: [&str; 3] = ["relay-sim", "client-sim", "compare"];

const GUIDES: [&str; 3] = [
    include_str!("../../../docs/guides/measure-my-relay.md"),
    include_str!("../../../docs/guides/is-my-change-slower.md"),
    include_str!("../../../docs/guides/defend-a-number.md"),
];

/// The code of a document, without the fences.
fn code(document: &str) -> String {
    document
        .split("```")
        .skip(1)
        .step_by(2)
        .map(|block| block.split_once('\n').map_or("", |(_, code)| code))
        .collect()
}

#[test]
fn the_programs_take_the_commands_of_the_documents() {
    let calls: Vec<&str> = [README, COMMANDS]
        .into_iter()
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix("cargo run --release -p "))
        .collect();
    assert!(calls.len() > 10, "{calls:?}: the commands are not found");
    for call in calls {
        let (program, rest) = call.split_once(" -- ").unwrap_or((call, ""));
        takes(program.trim(), rest.split('#').next().unwrap_or(rest));
    }
}

#[test]
fn the_programs_take_the_commands_of_the_guides() {
    let mut tried = 0;
    for guide in GUIDES {
        // Each call in one line, with a process number and quotes of one kind.
        let code = code(guide).replace("\\\n", " ").replace("$relay", "1").replace('"', "'");
        let calls = code.lines().filter_map(|line| line.split(" 2>").next()?.split_once(' '));
        for (program, call) in calls.filter(|(program, _)| PROGRAMS.contains(program)) {
            // The ellipsis stands for flags of an earlier call.
            takes(program, call.split('#').next().unwrap_or(call).replace(" … ", " ").trim());
            tried += 1;
        }
    }
    assert!(tried > 8, "{tried} commands are tried: they are not found");
}

/// Asserts that a program knows the command, flags and values of a call, up to `--`.
fn takes(program: &str, call: &str) {
    let words = help::words(call.split(" -- ").next().unwrap_or(call));
    let (is_fine, said) = help::said(program, &[&words[..], &["--help"]].concat());
    assert!(is_fine, "{program} {call}: {said}");
}
