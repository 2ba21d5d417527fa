//! Help and documents: `-h` fills one screen, and the programs take the commands that they show.

use std::process::Command;

/// Lines and columns of a screen, which `-h` may fill.
const LINES: usize = 50;
const COLUMNS: usize = 100;

const PROGRAMS: [&str; 3] = ["compare", "client-sim", "relay-sim"];

const FROM_SOURCE: &str = "cargo run --release -p ";

const DOCUMENTS: [&str; 6] = [
    include_str!("../../../README.md"),
    include_str!("../../../docs/commands.md"),
    include_str!("../../../docs/gateway.md"),
    include_str!("../../../docs/guides/measure-my-relay.md"),
    include_str!("../../../docs/guides/is-my-change-slower.md"),
    include_str!("../../../docs/guides/defend-a-number.md"),
];

/// Output of compare in the role of a program, to standard output or to standard error.
fn said(program: &str, words: &[&str]) -> (bool, String) {
    let role: &[&str] = match program {
        "client-sim" => &["role:client"],
        "relay-sim" => &["role:relay"],
        _ => &[],
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    let output = command.args(role).args(words).env("COLUMNS", COLUMNS.to_string()).output().unwrap();
    let is_fine = output.status.success();
    (is_fine, String::from_utf8(if is_fine { output.stdout } else { output.stderr }).unwrap())
}

fn help<'a>(program: &str, command: &[&'a str], flag: &'a str) -> String {
    let (is_fine, text) = said(program, &[command, &[flag]].concat());
    assert!(is_fine && text.contains("Usage:"), "{program} {command:?}: {text}");
    text
}

/// The lines of help under a heading.
fn section<'a>(help: &'a str, heading: &str) -> Vec<&'a str> {
    let lines = help.lines().skip_while(|line| *line != heading).skip(1);
    lines.take_while(|line| line.is_empty() || line.starts_with(' ')).collect()
}

/// The words of a call as a shell splits it.
pub(crate) fn words(call: &str) -> Vec<&str> {
    let parts = call.split('\'').enumerate();
    parts
        .flat_map(|(place, part)| if place % 2 == 1 { vec![part] } else { part.split_whitespace().collect() })
        .collect()
}

/// The programs' commands, the programs themselves among them.
fn calls() -> Vec<(&'static str, String)> {
    let commands = |program: &'static str| {
        let help = help(program, &[], "-h");
        let listed =
            section(&help, "Commands:").into_iter().filter_map(|line| line.split_whitespace().next());
        let names: Vec<String> = listed.filter(|name| *name != "help").map(str::to_owned).collect();
        std::iter::once(String::new()).chain(names).map(move |name| (program, name))
    };
    let calls: Vec<_> = PROGRAMS.into_iter().flat_map(commands).collect();
    assert!(calls.len() > 14, "{calls:?}: the commands are not found");
    calls
}

/// Asserts that a program knows the command, flags and values of a call, up to `--`: they are read
/// from left to right before `--help` is answered.
fn takes(program: &str, call: &str) {
    let words = words(call.split(" -- ").next().unwrap_or(call));
    let (is_fine, said) = said(program, &[&words[..], &["--help"]].concat());
    assert!(is_fine, "{program} {call}: {said}");
}

#[test]
fn short_help_fills_one_screen_at_most() {
    for (program, command) in calls() {
        let text = help(program, &words(&command), "-h");
        let lines = text.lines().count();
        assert!(lines <= LINES, "{program} {command} -h has {lines} lines: hide_short_help\n{text}");
    }
}

#[test]
fn examples_are_what_the_programs_take() {
    let mut tried = 0;
    for (program, command) in calls() {
        let text = help(program, &words(&command), "--help");
        for line in section(&text, "Examples:") {
            let Some((_, call)) = line.split_once(&format!("{program} ")) else { continue };
            takes(program, call.split(['|', '#']).next().unwrap_or(call));
            tried += 1;
        }
    }
    assert!(tried > 25, "{tried} examples: they are not found");
    let (is_fine, _) = said("client-sim", &["--scenario", "note-stream", "--no-such-flag", "--help"]);
    assert!(!is_fine, "help must not hide a flag that is none");
}

#[test]
fn the_programs_take_the_commands_of_the_documents() {
    let mut tried = 0;
    for document in DOCUMENTS {
        let code: String = document.split("```").skip(1).step_by(2).collect();
        // Each call in one line, with a process number and quotes of one kind.
        let code = code.replace("\\\n", " ").replace("$relay", "1").replace('"', "'");
        let prefix = if document.contains(FROM_SOURCE) { FROM_SOURCE } else { "" };
        for line in code.lines().filter_map(|line| line.strip_prefix(prefix)) {
            let call = line.split(" 2>").next().and_then(|line| line.split_once(' '));
            let Some((program, call)) = call.filter(|(program, _)| PROGRAMS.contains(program)) else {
                continue;
            };
            let call = call.trim_start().strip_prefix("-- ").unwrap_or(call);
            // The ellipsis stands for flags of an earlier call.
            takes(program, call.split('#').next().unwrap_or(call).replace(" … ", " ").trim());
            tried += 1;
        }
    }
    assert!(tried > 18, "{tried} commands are tried: they are not found");
}
