//! Which module of a crate imports which: a scanner of `crate::`, `super::` and `self::` paths.
//!
//! It follows re-exports to the module that defines an item, and leaves out test code. Paths
//! through a parent to its child, or back, are no edge, except that an item of `lib.rs` itself
//! makes `lib.rs` a node.

use std::collections::{BTreeMap, BTreeSet};

/// The node for what `lib.rs` defines itself.
const ROOT: &str = "lib.rs";

/// Edges between siblings, each with the files that make it.
#[derive(Default)]
pub(crate) struct Graph {
    edges: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

impl Graph {
    pub(crate) fn add(&mut self, from: &str, to: &str, file: &str) {
        if from != to {
            let targets = self.edges.entry(from.to_owned()).or_default();
            targets.entry(to.to_owned()).or_default().insert(file.to_owned());
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.edges.len()
    }

    /// One sentence for each set of nodes that reach each other, with the edges among them.
    pub(crate) fn circles(&self) -> Vec<String> {
        let reach: BTreeMap<&str, BTreeSet<&str>> =
            self.edges.keys().map(|node| (node.as_str(), self.reachable(node))).collect();
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for (node, reached) in &reach {
            if !reached.contains(node) || seen.contains(node) {
                continue;
            }
            let mutual = |other: &&&str| reach.get(**other).is_some_and(|back| back.contains(node));
            let members: BTreeSet<&str> = reached.iter().filter(mutual).copied().collect();
            seen.extend(members.iter().copied());
            let mut edges = Vec::new();
            for from in &members {
                for (to, files) in self.edges[*from].iter().filter(|(to, _)| members.contains(to.as_str())) {
                    let files: Vec<&str> = files.iter().map(String::as_str).collect();
                    edges.push(format!("{from} -> {to} ({})", files.join(", ")));
                }
            }
            circles.push(format!("circle: {}", edges.join("; ")));
        }
        circles
    }

    fn reachable(&self, from: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(node) = open.pop() {
            for target in self.edges.get(node).into_iter().flat_map(BTreeMap::keys) {
                if reached.insert(target.as_str()) {
                    open.push(target);
                }
            }
        }
        reached
    }
}

/// A module: where it stands, what it names and what it defines.
struct Module {
    file: String,
    tokens: Vec<String>,
    /// Names that `use` brings in, with the whole path.
    imports: Vec<(String, Vec<String>)>,
    /// Whole paths of glob imports.
    globs: Vec<Vec<String>>,
    defined: BTreeSet<String>,
}

/// The modules of one crate by their paths; the root has the empty path.
pub(crate) struct Crate {
    modules: BTreeMap<Vec<String>, Module>,
}

impl Crate {
    /// Reads the sources of a library by their paths below `src`. Programs (`main.rs`, `bin/`) are
    /// left out.
    pub(crate) fn read(sources: &BTreeMap<String, String>) -> Crate {
        let mut modules = BTreeMap::new();
        let mut only_tests = Vec::new();
        for (file, text) in sources {
            if file == "main.rs" || file.starts_with("bin/") {
                continue;
            }
            let mut path: Vec<String> = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
            if path.last().is_some_and(|last| last == "mod") || file == "lib.rs" {
                path.pop();
            }
            let (tokens, tests) = without_tests(&tokens(text));
            only_tests.extend(tests.into_iter().map(|name| [path.clone(), vec![name]].concat()));
            let defined = definitions(&tokens);
            let mut module =
                Module { file: file.clone(), tokens, imports: Vec::new(), globs: Vec::new(), defined };
            for (name, target) in use_trees(&module.tokens) {
                match name.as_str() {
                    "*" => module.globs.push(target),
                    _ => module.imports.push((name, target)),
                }
            }
            modules.insert(path, module);
        }
        modules.retain(|path, _| !only_tests.iter().any(|tests| path.starts_with(tests)));
        Crate { modules }
    }

    /// The graph among the children of each module that has any, by its path with `/`.
    pub(crate) fn graphs(&self) -> BTreeMap<String, Graph> {
        let mut graphs = BTreeMap::from([(String::new(), Graph::default())]);
        for (from, module) in &self.modules {
            for path in self.paths_in(from, module) {
                let Some(to) = self.resolve(from, &path, 0) else { continue };
                let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                let (from_node, to_node) = match (from.get(common), to.get(common)) {
                    (Some(a), Some(b)) => (a.as_str(), b.as_str()),
                    (Some(a), None) if common == 0 => (a.as_str(), ROOT),
                    (None, Some(b)) if common == 0 => (ROOT, b.as_str()),
                    _ => continue,
                };
                let graph = graphs.entry(from[..common].join("/")).or_default();
                graph.add(from_node, to_node, &module.file);
            }
        }
        graphs
    }

    /// Every path that a module names, but what the root only passes on.
    fn paths_in(&self, at: &[String], module: &Module) -> Vec<Vec<String>> {
        let mut paths = Vec::new();
        let tokens = &module.tokens;
        let mut i = 0;
        while i < tokens.len() {
            // A `pub use` defines where an item is found; who imports it is judged by where it is
            // defined.
            if tokens[i] == "pub" && tokens[i + 1..].iter().take(5).any(|token| token == "use") {
                let to_use = tokens[i + 1..].iter().position(|token| token == "use").unwrap_or(0);
                if tokens[i + 1..i + 1 + to_use]
                    .iter()
                    .all(|t| ["(", ")", "crate", "super", "in"].contains(&t.as_str()))
                {
                    i += tokens[i..].iter().position(|token| token == ";").unwrap_or(1);
                    continue;
                }
            }
            let starts = i == 0 || (tokens[i - 1] != "::" && tokens[i - 1] != ".");
            let named = ["crate", "super", "self"].contains(&tokens[i].as_str());
            let child = at.is_empty() && self.modules.contains_key(std::slice::from_ref(&tokens[i]));
            if starts && (named || child) && tokens.get(i + 1).is_some_and(|next| next == "::") {
                let mut found = Vec::new();
                tree(tokens, i, &mut Vec::new(), &mut found);
                paths.extend(found.into_iter().map(|(_, path)| path));
            }
            i += 1;
        }
        paths
    }

    /// The module that defines what a path names, seen from a module. `None`: of another crate, or
    /// not found.
    fn resolve(&self, from: &[String], path: &[String], depth: usize) -> Option<Vec<String>> {
        let mut at = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "super" | "self" => from.to_vec(),
            name if self.modules.contains_key(&[from, &[name.to_owned()]].concat()) => from.to_vec(),
            _ => return None,
        };
        for (i, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" | "self" => continue,
                "super" => {
                    at.pop();
                    continue;
                }
                "*" => return Some(at),
                _ => {}
            }
            let child = [at.as_slice(), std::slice::from_ref(name)].concat();
            if self.modules.contains_key(&child) {
                at = child;
                continue;
            }
            let module = self.modules.get(&at)?;
            if module.defined.contains(name) || depth > 8 {
                return Some(at);
            }
            let rest = &path[i + 1..];
            if let Some((_, target)) = module.imports.iter().find(|(import, _)| import == name) {
                return self.resolve(&at, &[target, rest].concat(), depth + 1);
            }
            for glob in &module.globs {
                let target = [&glob[..glob.len() - 1], &path[i..]].concat();
                let of = self.resolve(&at, glob, depth + 1);
                if of.is_some_and(|of| self.modules[&of].defined.contains(name)) {
                    return self.resolve(&at, &target, depth + 1);
                }
            }
            return Some(at);
        }
        Some(at)
    }
}

/// The names that `use` declarations bring in, each with its path; globs have the name `*`.
fn use_trees(tokens: &[String]) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for i in 0..tokens.len() {
        if tokens[i] == "use" {
            tree(tokens, i + 1, &mut Vec::new(), &mut found);
        }
    }
    found
}

/// Reads a use tree, or a path of an expression, and returns the index behind it.
fn tree(
    tokens: &[String],
    mut i: usize,
    path: &mut Vec<String>,
    found: &mut Vec<(String, Vec<String>)>,
) -> usize {
    let before = path.len();
    while let Some(token) = tokens.get(i) {
        if token == "{" {
            i += 1;
            while tokens.get(i).is_some_and(|token| token != "}") {
                i = tree(tokens, i, path, found);
                i += usize::from(tokens.get(i).is_some_and(|token| token == ","));
            }
            path.truncate(before);
            return i + 1;
        }
        if token != "*" && !is_name(token) {
            // A turbofish, or the end of a file that is no Rust: step over it.
            i += 1;
            break;
        }
        path.push(token.clone());
        i += 1;
        if tokens.get(i).is_none_or(|next| next != "::") {
            break;
        }
        i += 1;
    }
    let mut name = path.last().cloned().unwrap_or_default();
    if name == "self" && path.len() > 1 {
        path.pop();
        name = path.last().cloned().unwrap_or_default();
    }
    if tokens.get(i).is_some_and(|token| token == "as") {
        name = tokens.get(i + 1).cloned().unwrap_or_default();
        i += 2;
    }
    found.push((name, path.clone()));
    path.truncate(before);
    i
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn definitions(tokens: &[String]) -> BTreeSet<String> {
    let keywords =
        ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "mod", "macro_rules"];
    let mut defined = BTreeSet::new();
    for pair in tokens.windows(3) {
        if keywords.contains(&pair[0].as_str()) {
            let name = if ["!", "mut"].contains(&pair[1].as_str()) { &pair[2] } else { &pair[1] };
            defined.insert(name.clone());
        }
    }
    defined
}

/// Takes out what `#[cfg(test)]` stands before, and returns the modules that it declares in files
/// of their own.
fn without_tests(tokens: &[String]) -> (Vec<String>, Vec<String>) {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut kept, mut modules) = (Vec::new(), Vec::new());
    let mut i = 0;
    while i < tokens.len() {
        if !tokens[i..].iter().map(String::as_str).take(MARK.len()).eq(MARK) {
            kept.push(tokens[i].clone());
            i += 1;
            continue;
        }
        let mut depth = 0;
        while i < tokens.len() {
            match tokens[i].as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            if tokens[i] == "mod" && tokens.get(i + 2).is_some_and(|end| end == ";") {
                modules.push(tokens[i + 1].clone());
            }
            i += 1;
            if depth == 0 && ["}", ";"].contains(&tokens[i - 1].as_str()) {
                break;
            }
        }
    }
    (kept, modules)
}

/// Names and signs of a source; comments, literals and lifetimes are left out.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut tokens = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        let rest = &chars[i..];
        if rest.starts_with(&['/', '/']) {
            i += rest.iter().position(|c| *c == '\n').unwrap_or(rest.len());
        } else if rest.starts_with(&['/', '*']) {
            i += rest.windows(2).position(|two| two == ['*', '/']).map_or(rest.len(), |end| end + 2);
        } else if let Some(length) = raw_string(rest) {
            i += length;
        } else if at(i) == '"' {
            i += 1;
            while i < chars.len() && at(i) != '"' {
                i += if at(i) == '\\' { 2 } else { 1 };
            }
            i += 1;
        } else if at(i) == '\'' {
            // A character, or else a lifetime, of which only the quote goes.
            i += match (at(i + 1), at(i + 2)) {
                ('\\', _) => 3 + rest[3..].iter().position(|c| *c == '\'').unwrap_or(0) + 1,
                (_, '\'') => 3,
                _ => 1,
            };
        } else if at(i).is_alphanumeric() || at(i) == '_' {
            let length = rest.iter().take_while(|c| c.is_alphanumeric() || **c == '_').count();
            tokens.push(rest[..length].iter().collect());
            i += length;
        } else if rest.starts_with(&[':', ':']) {
            tokens.push("::".to_owned());
            i += 2;
        } else {
            if !at(i).is_whitespace() {
                tokens.push(at(i).to_string());
            }
            i += 1;
        }
    }
    tokens
}

/// The length of a raw string at the beginning, with its quotes.
fn raw_string(text: &[char]) -> Option<usize> {
    let prefix = text.iter().take_while(|c| ['b', 'r'].contains(c)).count();
    if !text[..prefix].contains(&'r') {
        return None;
    }
    let hashes = text[prefix..].iter().take_while(|c| **c == '#').count();
    let open = prefix + hashes + 1;
    if text.get(open - 1) != Some(&'"') {
        return None;
    }
    let close: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let end = text[open..].windows(close.len()).position(|window| window == close)?;
    Some(open + end + close.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(sources: &[(&str, &str)]) -> Vec<String> {
        let sources = sources.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
        Crate::read(&sources).graphs().values().flat_map(Graph::circles).collect()
    }

    #[test]
    fn a_planted_circle_is_found_with_its_files() {
        let found = circles(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::{b::{self, B}, c};"),
            ("b/mod.rs", "mod inner;"),
            ("b/inner.rs", "fn f() { crate::c::g::<u8>(); }"),
            ("c.rs", "use super::a::A;"),
        ]);
        assert_eq!(found, ["circle: a -> b (a.rs); a -> c (a.rs); b -> c (b/inner.rs); c -> a (c.rs)"]);
    }

    #[test]
    fn what_is_re_exported_is_imported_from_where_it_is_defined() {
        let lib = ("lib.rs", "mod a; mod b; pub use a::{A as Alpha}; pub use b::*;");
        let b = ("b.rs", "pub struct B; use crate::Alpha;");
        assert_eq!(circles(&[lib, b, ("a.rs", "pub struct A;")]), Vec::<String>::new());
        let found = circles(&[lib, b, ("a.rs", "pub struct A(crate::B);")]);
        assert_eq!(found, ["circle: a -> b (a.rs); b -> a (b.rs)"]);
    }

    #[test]
    fn siblings_inside_a_folder_and_items_of_the_root_count() {
        let found = circles(&[
            ("lib.rs", "mod a; pub fn run() { a::x::go() } pub struct Root;"),
            ("a/mod.rs", "mod x; mod y;"),
            ("a/x.rs", "use super::y::Y; use crate::Root;"),
            ("a/y.rs", "use crate::a::x;"),
        ]);
        assert_eq!(
            found,
            [
                "circle: a -> lib.rs (a/x.rs); lib.rs -> a (lib.rs)",
                "circle: x -> y (a/x.rs); y -> x (a/y.rs)"
            ]
        );
    }

    #[test]
    fn comments_literals_tests_and_parents_are_no_imports() {
        let found = circles(&[
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod testing;"),
            (
                "a.rs",
                r##"//! [`crate::b::B`] /* crate::b */
                use crate::b::B; const S: &str = r#"use crate::b"#; const C: [char; 2] = ['"', '\''];"##,
            ),
            (
                "b.rs",
                "const S: &str = \"use crate::a; \\\" use crate::a\"; fn f<'a>(x: &'a u8) {} \
                 #[cfg(test)] mod tests { use super::*; use crate::a::A; fn f() {} } #[cfg(test)] use crate::a;",
            ),
            ("testing.rs", "use crate::a::A;"),
            ("main.rs", "use crate::a::A;"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }
}
