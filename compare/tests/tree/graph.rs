//! Circles in a graph of imports.

use std::collections::{BTreeMap, BTreeSet};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_circle_is_found_with_its_files() {
        let mut graph = Graph::default();
        for (from, to) in [("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")] {
            graph.add(from, to, &format!("{from}/Cargo.toml"));
        }
        assert_eq!(graph.circles(), ["circle: b -> c (b/Cargo.toml); c -> b (c/Cargo.toml)"]);
    }
}
