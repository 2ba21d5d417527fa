//! Faults of a text: a path or a link that leads nowhere.

use std::path::Path;

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

/// Links of a document to files of the tree that are not there, each with its place.
pub(crate) fn dead_links(root: &Path, file: &str, text: &str) -> Vec<String> {
    let folder = root.join(file).parent().unwrap_or(root).to_owned();
    let is_dead = |target: &str| {
        let path = target.split('#').next().unwrap_or_default();
        !target.contains("://") && !target.starts_with("mailto:") && !folder.join(path).exists()
    };
    let is_document = file.ends_with(".md");
    let targets = |line: &str| {
        let outside: String = line.split('`').step_by(2).collect();
        let behind =
            outside.split("](").skip(1).map(|rest| rest.split([')', ' ']).next().unwrap_or_default());
        behind.map(str::to_owned).collect::<Vec<_>>()
    };
    places(file, text, |line| is_document && targets(line).iter().any(|target| is_dead(target)))
}

fn places(file: &str, text: &str, mut wrong: impl FnMut(&str) -> bool) -> Vec<String> {
    let lines = text.lines().enumerate();
    lines.filter(|(_, line)| wrong(line)).map(|(i, line)| format!("{file}:{}: {line}", i + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leads_nowhere_is_found() {
        let root = crate::root();
        let text = "`docs/gone.md`\n`docs/glossary.md` `crates/wire/src/NAME.rs` `docs/a b.md` `json/zstd`\n";
        assert_eq!(dead_paths(&root, "docs/a.md", text), ["docs/a.md:1: `docs/gone.md`"]);
        assert_eq!(dead_paths(&root, "crates/wire/a.md", text), Vec::<String>::new());
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let links = |targets: &[&str]| -> String {
            targets.iter().map(|target| format!("see [`it`]({target}).\n")).collect()
        };
        let fine = links(&["glossary.md", "../README.md#x", "#here", "https://a.example/b", "decisions"]);
        assert_eq!(dead_links(&crate::root(), "docs/a.md", &fine), Vec::<String>::new());
        let dead = dead_links(&crate::root(), "docs/a.md", &links(&["glossary.md", "gone.md#x"]));
        assert_eq!(dead, ["docs/a.md:2: see [`it`](gone.md#x)."]);
        assert_eq!(
            dead_links(&crate::root(), "crates/wire/src/lib.rs", &links(&["gone"])),
            Vec::<String>::new()
        );
    }
}
