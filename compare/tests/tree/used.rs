//! Dependencies that a crate's code names.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

/// Libraries that are named otherwise than their packages.
const LIBRARIES: [(&str, &str); 1] = [("rustls-webpki", "webpki")];

/// The code of the crate in a folder: its Rust, the examples of its README, and what it takes in of
/// other crates (`#[path]`).
pub(crate) fn code_of<'a>(texts: &'a BTreeMap<String, String>, folder: &str) -> Vec<&'a str> {
    let is_own = |name: &str| name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    let is_code = |name: &str| name.ends_with(".rs") || name.ends_with("README.md");
    let own = || texts.iter().filter(|(name, _)| is_own(name) && is_code(name));
    let taken_in = own().flat_map(|(name, text)| {
        let paths = text.split("#[path = \"").skip(1).filter_map(|rest| rest.split('"').next());
        paths.filter_map(move |path| texts.get(&beside(name, path)))
    });
    own().map(|(_, text)| text.as_str()).chain(taken_in.map(String::as_str)).collect()
}

/// A path from the root of the tree, given from the folder of a file.
fn beside(file: &str, path: &str) -> String {
    let mut found = PathBuf::from(file);
    found.pop();
    for part in Path::new(path).components() {
        if part == Component::ParentDir {
            found.pop();
        } else {
            found.push(part);
        }
    }
    found.to_string_lossy().into_owned()
}

/// Whether code names the library of a package.
pub(crate) fn names(code: &[&str], package: &str) -> bool {
    let other = LIBRARIES.iter().find(|(name, _)| *name == package);
    let library = other.map_or_else(|| package.replace('-', "_"), |(_, library)| (*library).to_owned());
    code.iter().any(|text| {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("// "));
        lines
            .flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'))
            .any(|word| word == library)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_that_no_code_names_is_found() {
        let texts = [
            ("one/src/lib.rs", "use some_crate::Thing;\n// tokio would do\n"),
            ("one/tests/it/main.rs", "#[path = \"../../../other/tests/few.rs\"]\nmod few;\n"),
            ("one/README.md", "axum::serve(listener)"),
            ("one/notes.md", "serde"),
            ("other/tests/few.rs", "use tempfile::TempDir;"),
            ("one-more/src/lib.rs", "use anyhow::Result;"),
        ];
        let texts = BTreeMap::from(texts.map(|(name, text)| (name.to_owned(), text.to_owned())));
        let code = code_of(&texts, "one");
        for name in ["some-crate", "axum", "tempfile"] {
            assert!(names(&code, name), "{name}");
        }
        for name in ["tokio", "serde", "anyhow", "some"] {
            assert!(!names(&code, name), "{name}");
        }
    }
}
