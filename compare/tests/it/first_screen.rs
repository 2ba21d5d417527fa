//! README's first screen: short, without a link, its picture that of a published result; and
//! commands of documents, which the programs take.

use std::{fs, path::Path};

use report::{Bar, Bars, Derived, ResultFile};
use serde_json::Value;

use super::help;

/// Lines and numbers before the first link to more.
const LINES: usize = 60;
const NUMBERS: usize = 12;

const README: &str = include_str!("../../../README.md");
const COMMANDS: &str = include_str!("../../../docs/commands.md");

const PROGRAMS: [&str; 3] = ["relay-sim", "client-sim", "compare"];

const GUIDES: [&str; 3] = [
    include_str!("../../../docs/guides/measure-my-relay.md"),
    include_str!("../../../docs/guides/is-my-change-slower.md"),
    include_str!("../../../docs/guides/defend-a-number.md"),
];

/// The picture of the first screen, from the root of the tree.
const PICTURE: &str = "docs/ordinary-day.svg";

/// Its result, and its rows: a cell and its name.
const PICTURED: &str = "mixed-day-load-4";
const ROWS: [(&str, &str); 6] = [
    ("json+none", "JSON"),
    ("dannypack+none", "DannyPack"),
    ("json+zstd-dict", "JSON, zstd-dict"),
    ("json+deflate-shared", "JSON, deflate-shared"),
    ("json+zstd", "JSON, zstd"),
    ("json+deflate:level=2:window_bits=12", "JSON, deflate level 2"),
];

/// The part before the first link; pictures are none. Comments are not shown.
fn first_screen() -> String {
    let mut parts = README.split("<!--");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    shown.extend(parts.filter_map(|part| part.split_once("-->\n")).map(|(_, behind)| behind));
    let is_picture = |place: usize| {
        let before = shown[..place].rfind('[').unwrap_or(0);
        shown[..before].ends_with('!')
    };
    let link = shown.match_indices("](").map(|(place, _)| place).find(|place| !is_picture(*place));
    let line = shown[..link.expect("README links to more")].rfind('\n').expect("a line before the link");
    shown.truncate(line);
    shown
}

/// The text and the code of a document, without the fences.
fn text_and_code(document: &str) -> (String, String) {
    let (mut text, mut code, mut is_code) = (String::new(), String::new(), false);
    for line in document.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
            continue;
        }
        let part = if is_code { &mut code } else { &mut text };
        part.push_str(line);
        part.push('\n');
    }
    (text, code)
}

/// The figures of a published result.
fn derived(result: &str) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let result = ResultFile::read(&root.join("results/published").join(result)).unwrap();
    serde_json::to_value(Derived::from_result(&result)).unwrap()
}

/// A ratio to JSON without compression, and whether it has a verdict.
fn ratio(derived: &Value, cell: &str, metric: &str) -> (f64, bool) {
    let comparisons = derived["comparisons"].as_array().unwrap();
    let found = comparisons.iter().find(|comparison| {
        comparison["cell"] == cell && comparison["metric"] == metric && comparison["reference"] == "json+none"
    });
    found.map_or((1.0, true), |found| (found["ratio"].as_f64().unwrap(), found["verdict"] != "inconclusive"))
}

fn picture(derived: &Value) -> String {
    let bars = |title, metric| {
        let row = |(cell, name)| {
            let (ratio, is_decided) = ratio(derived, cell, metric);
            Bar { name, ratio, is_decided }
        };
        Bars { title, rows: ROWS.into_iter().map(row).collect() }
    };
    report::bars(
        "Wire bytes and relay CPU of formats and compressions, divided by those of JSON",
        &[
            bars("Wire bytes ÷ JSON's", "wire_bytes"),
            bars("Relay CPU ÷ JSON's, relay a third busy", "relay_cpu"),
        ],
    )
}

#[test]
fn the_first_screen_is_short() {
    let screen = first_screen();
    let (text, code) = text_and_code(&screen);
    let lines = screen.lines().count();
    let is_number = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
    let numbers: Vec<&str> =
        text.split(|c: char| !c.is_alphanumeric() && c != '.').filter(is_number).collect();
    assert!(lines <= LINES, "{lines} lines");
    assert!(numbers.len() <= NUMBERS, "{} numbers: {numbers:?}", numbers.len());
    assert!(lines > 30 && numbers.len() > 5 && code.lines().count() > 8, "the first screen is not found");
    for who in ["relay operator", "relay author", "phone client", "web client", "mirror", "author of a NIP"] {
        assert!(text.lines().any(|line| line.starts_with('|') && line.contains(who)), "{who}");
    }
}

#[test]
fn the_picture_of_the_first_screen_is_that_of_a_published_result() {
    assert!(first_screen().contains(&format!("]({PICTURE})")), "{PICTURE} is not shown");
    let drawn = picture(&derived(PICTURED));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(PICTURE);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&file, &drawn).unwrap();
    }
    assert!(fs::read_to_string(&file).unwrap() == drawn, "run this test with UPDATE_SNAPSHOTS=1");
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
        let (_, code) = text_and_code(guide);
        let code = code.replace("\\\n", " ").replace("$relay", "1").replace('"', "'");
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
