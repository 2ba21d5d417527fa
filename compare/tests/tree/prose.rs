//! What a text may not say: a source that no reader has, a path that leads nowhere or exists on one
//! machine, a test that is nowhere, a line beyond 100 columns.

use std::{collections::BTreeSet, path::Path};

/// Titles of unpublished notes, in lower case here so that this list does not cite them.
const UNPUBLISHED: [&str; 12] = [
    "measurement",
    "protocol",
    "transport",
    "scenarios",
    "corpus",
    "wire-formats",
    "peers",
    "links",
    "browsers",
    "scale-out",
    "house-style",
    "provenance",
];

/// The most columns of a line of prose.
const COLUMNS: usize = 100;

/// Citations of notes that are not published, each with its place.
pub(crate) fn phantoms(file: &str, text: &str) -> Vec<String> {
    places(file, text, |line| {
        let line = prose_of(file, line);
        words(&line).any(|word| {
            let title = word.trim_end_matches(".MD").trim_end_matches(".md");
            title.len() > 1
                && title.chars().all(|c| c.is_ascii_uppercase() || c == '-')
                && UNPUBLISHED.contains(&title.to_lowercase().as_str())
        })
    })
}

/// Paths that exist on one machine only, each with its place.
pub(crate) fn machine_paths(file: &str, text: &str) -> Vec<String> {
    // In two parts, so that these lines do not name them.
    let roots = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];
    places(file, text, |line| {
        roots.iter().any(|root| {
            line.match_indices(root).any(|(at, _)| {
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || ['_', '.', '-', '/'].contains(&c))
            })
        })
    })
}

/// Paths in backticks that begin in a folder of the tree and lead nowhere, each with its place.
/// `NAME` stands for a name of the reader's; `target` is made by builds.
pub(crate) fn dead_paths(root: &Path, file: &str, text: &str) -> Vec<String> {
    let is_dead = |path: &str| {
        let plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
        let first = path.split_once('/').map_or("", |(first, _)| first);
        let is_ours = !["", "target"].contains(&first) && root.join(first).is_dir();
        plain && is_ours && !path.contains("NAME") && !root.join(path).exists()
    };
    let is_told = file.ends_with(".md") && (file.starts_with("docs/") || !file.contains('/'));
    places(file, text, |line| is_told && line.split('`').skip(1).step_by(2).any(is_dead))
}

/// Tests that rows of a table name in their last column and that are no function, each with its
/// place.
pub(crate) fn dead_tests(functions: &BTreeSet<String>, file: &str, text: &str) -> Vec<String> {
    let is_dead = |name: &str| {
        let name = name.rsplit("::").next().unwrap_or(name);
        let is_test = name.contains('_') && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        is_test && !functions.contains(name)
    };
    places(file, text, |line| {
        let column = line.trim_end().strip_suffix('|').and_then(|row| row.rsplit('|').next());
        column.is_some_and(|column| column.split('`').skip(1).step_by(2).any(is_dead))
    })
}

/// Names of the functions of a source.
pub(crate) fn functions(source: &str) -> impl Iterator<Item = String> {
    let names = source.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
    names.map(str::to_owned)
}

/// Lines of Markdown prose and of Rust comments beyond [`COLUMNS`]. Tables, code, addresses and
/// rendered reports may be longer.
pub(crate) fn long_lines(file: &str, text: &str) -> Vec<String> {
    let rendered = file.starts_with("results/published/")
        || file == "docs/codec-report.md"
        || file.contains("/snapshots/");
    let is_rust = file.ends_with(".rs") && !text.contains("@generated");
    if !(file.ends_with(".md") || is_rust) || rendered {
        return Vec::new();
    }
    let mut in_code = false;
    places(file, text, |line| {
        if is_rust && !line.trim_start().starts_with("//") {
            in_code = false;
            return false;
        }
        let said = if is_rust { line.trim_start().trim_start_matches(['/', '!']) } else { line };
        let fence = said.trim_start().starts_with("```");
        in_code ^= fence;
        let code = in_code || fence || (!is_rust && line.starts_with("    "));
        let table = said.trim_start().starts_with('|');
        !code && !table && without_addresses(line).chars().count() > COLUMNS
    })
}

fn places(file: &str, text: &str, mut wrong: impl FnMut(&str) -> bool) -> Vec<String> {
    let lines = text.lines().enumerate();
    lines.filter(|(_, line)| wrong(line)).map(|(i, line)| format!("{file}:{}: {line}", i + 1)).collect()
}

/// The part of a line that people read: of Rust comments and strings, of TOML comments and values,
/// of a script comments, of Markdown everything.
fn prose_of(file: &str, line: &str) -> String {
    let extension = file.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension {
        "rs" | "toml" | "py" | "go" | "cjs" | "mjs" => {
            let comment = if ["toml", "py"].contains(&extension) { "#" } else { "//" };
            let (code, said) = line.split_once(comment).unwrap_or((line, ""));
            let strings: Vec<&str> = code.split('"').skip(1).step_by(2).collect();
            format!("{} {said}", strings.join(" "))
        }
        "md" | "txt" | "cddl" | "capnp" | "proto" | "fbs" | "html" => line.to_owned(),
        _ => line.split_once('#').map_or(String::new(), |(_, said)| said.to_owned()),
    }
}

/// Words of a line, but not of `code in backticks`, nor a variable that is given a value.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let outside = line.split('`').step_by(2);
    let parts = outside.flat_map(|part| part.split(|c: char| !(c.is_alphanumeric() || "-_.=".contains(c))));
    parts.filter(|part| !part.contains('=')).map(|word| word.trim_matches(['.', '-']))
}

/// A line without the targets of its links, which cannot be wrapped.
fn without_addresses(line: &str) -> String {
    let mut kept = String::new();
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once("](") {
        kept.push_str(before);
        kept.push(']');
        rest = behind.split_once(')').map_or("", |(_, rest)| rest);
    }
    kept.push_str(rest);
    let words = kept.split_inclusive(' ');
    words.filter(|word| !word.contains("://")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_phantom_is_found_where_people_read() {
        let title = "measurement".to_uppercase();
        for (file, line) in [
            ("a.rs", format!("/// {title} §12.")),
            ("a.rs", format!("let x = 1; // as {title} asks")),
            ("a.rs", format!("panic!(\"see {title}.md\");")),
            ("a.toml", format!("sources = [\"{title}: tested first\"]")),
            ("a.md", format!("{title} takes the median")),
            ("a.md", format!("({}: 2,000 clients)", "scale-out".to_uppercase())),
            ("run.sh", format!("x=1 # {title} 3")),
        ] {
            assert_eq!(phantoms(file, &format!("fine\n{line}\n")), [format!("{file}:2: {line}")]);
        }
        for (file, line) in [
            ("a.rs", format!("const {title}: u8 = 1;")),
            ("a.rs", format!("/// As in [`{title}`], RFC 6455 §4.1, NIP-01.")),
            ("run.sh", format!("{title}=1 # {title}=\"a b\" narrows it")),
            ("a.md", "The measurement of a protocol's transport.".to_owned()),
        ] {
            assert_eq!(phantoms(file, &line), Vec::<String>::new());
        }
    }

    #[test]
    fn a_planted_machine_path_is_found() {
        let path = |name: &str| format!("/{name}/x");
        let planted = format!("see {}\n`{}`\n", path("work"), path("root"));
        assert_eq!(machine_paths("a.md", &planted).len(), 2);
        let fine = format!("net{}, ../a{}, https://a.example{}", path("work"), path("work"), path("root"));
        assert_eq!(machine_paths("a.md", &fine), Vec::<String>::new());
    }

    #[test]
    fn a_path_that_leads_nowhere_is_found() {
        let root = crate::root();
        let text = "`docs/gone.md`\n`docs/glossary.md` `wire/src/NAME.rs` `docs/a b.md` `json/zstd`\n";
        assert_eq!(dead_paths(&root, "docs/a.md", text), ["docs/a.md:1: `docs/gone.md`"]);
        assert_eq!(dead_paths(&root, "wire/a.md", text), Vec::<String>::new());
    }

    #[test]
    fn a_test_that_is_nowhere_is_found() {
        let found: BTreeSet<String> = functions("fn it_works() {}\nasync fn is_of<T>(one: T) {}").collect();
        let text = "| a | it `it_works`, `a::is_of` |\n| a | it `is_gone`, `NAME run` |\n`not_told`\n";
        assert_eq!(dead_tests(&found, "a.md", text), ["a.md:2: | a | it `is_gone`, `NAME run` |"]);
    }

    #[test]
    fn only_prose_is_measured() {
        let long = "word ".repeat(21);
        let text = format!(
            "{long}\n| {long} |\n```\n{long}\n```\n    {long}\n[short](https://example.org/{})\n",
            "x".repeat(90)
        );
        assert_eq!(long_lines("a.md", &text), [format!("a.md:1: {long}")]);
        assert_eq!(long_lines("a.md", &"ü".repeat(100)), Vec::<String>::new());
        assert_eq!(long_lines("a.md", &"ü".repeat(101)).len(), 1);
        assert_eq!(long_lines("a.rs", &text), Vec::<String>::new());
        let rust = format!("let x; // {long}\n    /// {long}\n/// ```\n/// {long}\n/// ```\n// {long}\n");
        assert_eq!(long_lines("a.rs", &rust).len(), 2);
    }
}
