//! Tests that `scenarios/README.md` explains every key of a scenario and no other.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use crate::scenario::{FanIn, LiveFilter, Phase, Publish, Reconcile, Request, Scenario, Step, Subscribe};

const README: &str = include_str!("../../../../../scenarios/README.md");

/// The names in backticks of the first cells of the table under a heading.
fn documented(heading: &str) -> BTreeSet<String> {
    let start = README.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no heading {heading}"));
    let section = &README[start + heading.len() + 2..];
    let section = &section[..section.find("\n#").unwrap_or(section.len())];
    let first_cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    first_cells
        .flat_map(|cell| cell.split('`').step_by(2))
        .filter(|name| !name.trim_matches([',', ' ']).is_empty())
        .map(str::to_owned)
        .collect()
}

/// The keys that a type takes, as its deserializer lists them for a key that it does not know.
fn taken<T: DeserializeOwned>() -> BTreeSet<String> {
    let Err(error) = toml::from_str::<T>("no-such-key = 1") else { panic!("took an unknown key") };
    let text = error.message();
    let list = text.split("expected one of ").nth(1).unwrap_or_else(|| panic!("no list in: {text}"));
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_key_is_explained_and_every_explained_key_is_taken() {
    for (heading, taken) in [
        ("### The file", taken::<Scenario>()),
        ("### `[[phase]]`", taken::<Phase>()),
        ("### `[[request]]`", taken::<Request>()),
        ("### `[[request.step]]`", taken::<Step>()),
        ("### `[[publish]]`", taken::<Publish>()),
        ("### `[[subscribe]]`", taken::<Subscribe>()),
        ("### `[[subscribe.filter]]`", taken::<LiveFilter>()),
        ("### `[[fan_in]]`", taken::<FanIn>()),
        ("### `[[reconcile]]`", taken::<Reconcile>()),
    ] {
        assert_eq!(documented(heading), taken, "{heading} of scenarios/README.md");
    }
}
