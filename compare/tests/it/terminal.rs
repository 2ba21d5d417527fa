//! Output for a terminal: nothing wider than it, and no control characters that it has no use for.

use std::process::{Command, Stdio};

use crate::{
    common::result,
    report::{CELLS, measured, troubled},
    search,
};

#[test]
fn the_output_fits_a_terminal_of_any_width_and_says_where_the_rest_stands() {
    let all = [
        result("standard", 12, &CELLS, measured),
        troubled(),
        search::sustaining([900, 3_000]),
        search::break_even(1.0),
    ];
    for (n, result) in all.iter().enumerate() {
        for (room, wide) in [(60, false), (80, false), (100, true)] {
            let text = report::terminal_of(result, wide, Some(room));
            for line in text.lines() {
                assert!(line.chars().count() <= room, "{n}, {room} columns: {line}");
            }
            let is_cut = text.contains(&format!("No room in {room} columns for: "));
            assert_eq!(is_cut, text.contains("has all columns"), "{text}");
            assert!(is_cut || n > 1, "{text}");
        }
        assert_eq!(report::terminal_of(result, false, Some(200)), report::terminal(result, false));
    }
}

fn compare(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command.args(args).env_remove("COLUMNS").stdin(Stdio::null());
    command
}

#[test]
fn what_is_no_terminal_has_all_columns_unless_it_states_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let result = troubled();
    result.write(folder.path()).unwrap();
    let report = |columns: Option<&str>| {
        let mut command = compare(&["report", folder.path().to_str().unwrap()]);
        let output = command.envs(columns.map(|columns| ("COLUMNS", columns))).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let whole = report::terminal(&result, false);
    assert_eq!(report(None), whole);
    assert_eq!(report(Some("70")), report::terminal_of(&result, false, Some(70)));
    for nonsense in ["0", "", "wide", "-1"] {
        assert_eq!(report(Some(nonsense)), whole);
    }
}

/// Output of a command in a shell to a terminal.
fn shown(script: &str, environment: (&str, &str)) -> String {
    let mut terminal = Command::new("script");
    for name in ["COLUMNS", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
        terminal.env_remove(name);
    }
    let (name, value) = environment;
    terminal.env("TERM", "xterm").env(name, value).args(["-qec", script, "/dev/null"]);
    let output = terminal.stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
#[ignore = "needs script of util-linux"]
fn a_terminal_shows_tables_of_its_width_and_a_dumb_one_no_escapes() {
    let folder = tempfile::tempdir().unwrap();
    troubled().write(folder.path()).unwrap();
    let (program, place) = (env!("CARGO_BIN_EXE_compare"), folder.path().display());
    let text = shown(&format!("stty cols 66 rows 24; {program} report {place}"), ("TERM", "xterm"));
    assert!(text.contains("No room in 66 columns for: "), "{text}");
    assert!(text.lines().all(|line| line.trim_end().chars().count() <= 66), "{text}");
    let run = "--scenario note-stream --formats json --compressions none --seconds 1 --rounds 1";
    let run = format!("{program} run {run} --out {place} -- --rate 50");
    for (name, value, rewrites) in [("TERM", "xterm", true), ("TERM", "dumb", false)] {
        let text = shown(&run, (name, value));
        assert!(text.contains("wire bytes"), "{text}");
        assert_eq!(text.contains('\u{1b}'), rewrites, "{name}={value}: {text:?}");
    }
}
