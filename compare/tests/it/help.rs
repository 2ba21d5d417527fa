//! The help of every program: `-h` fills one screen, flags stand in groups, each group has an
//! example that the program takes.

use std::process::Command;

/// Lines and columns of a screen, which `-h` may fill.
const LINES: usize = 50;
const COLUMNS: usize = 100;

/// Flags that are read at a glance and need no groups.
const FEW: usize = 10;

/// The part under a heading.
struct Section<'a> {
    heading: &'a str,
    lines: Vec<&'a str>,
}

/// Output of compare in the role of a program, to standard output or to standard error.
pub(crate) fn said(program: &str, words: &[&str]) -> (bool, String) {
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

fn sections(help: &str) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for line in help.lines() {
        match line.strip_suffix(':').filter(|heading| !heading.starts_with(' ')) {
            Some(heading) => sections.push(Section { heading, lines: Vec::new() }),
            None => sections.iter_mut().next_back().into_iter().for_each(|last| last.lines.push(line)),
        }
    }
    sections
}

/// The flags of a section; what they do is indented further than their names.
fn flags<'a>(section: &Section<'a>) -> Vec<&'a str> {
    let is_named =
        |line: &&&str| line.len() - line.trim_start().len() <= 6 && line.trim_start().starts_with('-');
    let long = section
        .lines
        .iter()
        .filter(is_named)
        .filter_map(|line| line.split([' ', ',', '=', '[']).find(|word| word.starts_with("--")));
    long.filter(|flag| !["--help", "--version"].contains(flag)).collect()
}

/// The labels and words of the examples, up to a pipe or a comment.
fn examples<'a>(program: &str, sections: &[Section<'a>]) -> Vec<(&'a str, Vec<&'a str>)> {
    let lines = sections.iter().filter(|section| section.heading == "Examples").flat_map(|all| &all.lines);
    let calls = lines.filter_map(|line| line.split_once(&format!("{program} ")));
    calls.map(|(label, call)| (label.trim(), words(call.split(['|', '#']).next().unwrap_or(call)))).collect()
}

/// The words of a call as a shell splits it.
pub(crate) fn words(call: &str) -> Vec<&str> {
    let parts = call.split('\'').enumerate();
    parts
        .flat_map(|(place, part)| if place % 2 == 1 { vec![part] } else { part.split_whitespace().collect() })
        .collect()
}

/// The programs' commands, the program itself among them.
fn commands(program: &str) -> Vec<String> {
    let help = help(program, &[], "-h");
    let listed = sections(&help);
    let listed = listed.iter().filter(|section| section.heading == "Commands").flat_map(|all| &all.lines);
    let names = listed.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    std::iter::once(String::new()).chain(names.map(str::to_owned)).collect()
}

fn calls() -> Vec<(&'static str, String)> {
    let programs = ["compare", "client-sim", "relay-sim"];
    let calls: Vec<_> = programs
        .into_iter()
        .flat_map(|program| commands(program).into_iter().map(move |command| (program, command)))
        .collect();
    assert!(calls.len() > 14, "{calls:?}: the commands are not found");
    calls
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
fn flags_stand_in_groups_and_each_group_has_an_example() {
    let mut grouped = 0;
    for (program, command) in calls() {
        for flag in ["-h", "--help"] {
            let text = help(program, &words(&command), flag);
            let sections = sections(&text);
            let all: usize = sections.iter().map(|section| flags(section).len()).sum();
            if all <= FEW {
                continue;
            }
            grouped += 1;
            let examples = examples(program, &sections);
            for section in sections.iter().filter(|section| !flags(section).is_empty()) {
                let (flags, heading) = (flags(section), section.heading);
                assert_ne!(heading, "Options", "{program} {command} {flag}: {flags:?} need a help_heading");
                let shown = |(label, words): &&(&str, Vec<&str>)| {
                    *label == heading && words.iter().any(|word| flags.contains(word))
                };
                assert!(
                    examples.iter().any(|example| shown(&example)),
                    "{program} {command} {flag}: {heading} has no example among {examples:?}"
                );
            }
        }
    }
    assert!(grouped > 8, "{grouped} helps have groups: flags are not found");
}

#[test]
fn examples_are_what_the_programs_take() {
    let mut tried = 0;
    for (program, command) in calls() {
        let text = help(program, &words(&command), "--help");
        for (_, words) in examples(program, &sections(&text)) {
            // Flags and values are read from left to right before `--help` is answered.
            let (is_fine, said) = said(program, &[&words[..], &["--help"]].concat());
            assert!(is_fine, "{program} {words:?}: {said}");
            tried += 1;
        }
    }
    assert!(tried > 25, "{tried} examples: they are not found");
    let (is_fine, _) = said("client-sim", &["--scenario", "note-stream", "--no-such-flag", "--help"]);
    assert!(!is_fine, "help must not hide a flag that is none");
}
