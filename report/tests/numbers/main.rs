//! Every number of these documents has a source in the tree. A comment below a paragraph, a list
//! item or a table names the source of each of its numbers, in their order:
//!
//! ```text
//! zstd sends 0.57 of the bytes for 1.89 [1.82, 1.96] of the relay's CPU, in 16 rounds.
//! <!-- numbers: mixed-day-load-4 / json zstd / wire bytes; / / relay CPU []; / "in 16 rounds" -->
//! ```
//!
//! - `RESULT / ROW / HEADING`: the first number of a field of the summary of a published result,
//!   which another test makes anew from its data. ROW is the beginning of a row, HEADING of a
//!   heading. What is left empty is that of the number before.
//! - `RESULT # SECTION / …`: only below the heading SECTION. `FILE / …`: of a file of the tree.
//!   `RESULT derived / CELL / a.b`: of its `derived.json`.
//! - `NAME := SOURCE`: a name for what follows in the comment.
//! - `ROW & ROW / HEADING`: two numbers, the smallest and the largest.
//! - `HEADING []`: every number of the field; `[2]`: the second; `[>]`: of the field to the right.
//!   `× 8`, `÷ 1000`, `÷ ROW` and `÷ [HEADING]` convert it.
//! - `SOURCE / "text"`: the numbers of a text that the source has; of code they are exact, and
//!   products and shifts are computed (`1 << 11`).
//!
//! Tables between `<!-- made: NAME -->` and `<!-- end of made -->` are made here ([`made`]), those
//! behind `<!-- measured by: COMMAND -->` by a bench, those behind `<!-- kept by: TEST -->` by
//! another test: they are sources of the prose beside them.
//!
//! Code that begins with a number is a number, too: `0.49`, `57 %`. Not so a whole number without a
//! sign or a unit, which is a constant: an exit code, a status, a kind. A fence, a comment, a table
//! between comments or a code mark that is not closed is an error.
//!
//! A number agrees when both round to the same digits. Words count, such as `half`, `twice` and
//! `a tenth less`, within a tenth. What is no measurement is in [`NOT_MEASURED`].

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod made;
mod number;
mod prose;
mod source;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use prose::Block;
use report::{Derived, ResultFile};
use source::Sources;

/// Documents beside the pages of `docs`, all of which are.
const BESIDE_DOCS: [&str; 4] = ["README.md", "results/README.md", "scenarios/README.md", "data/README.md"];

/// How the heading of a plan ends on a page of decisions: what it expects has no source.
const PLANS: [&str; 2] = ["planned before it is run", "written before the run"];

/// Texts of which no number was measured: definitions, names, and rules of the instrument.
const NOT_MEASURED: &[&str] = &[
    // Intervals.
    "95 % interval",
    "95 % confidence",
    // Loads, settings and links of scenarios.
    "load 1",
    "load 4",
    "load 6",
    "load 8",
    "loads 4 and 6",
    "at four times",
    "at six times",
    "at eight times",
    "level 2, window 12",
    "9/1.5 Mbit/s and 60 ms",
    "1 to 100 Mbit/s",
    "up to 100 Mbit/s",
    // Settings and versions of other programs.
    "levels above 4",
    "level 9",
    "level 3",
    "Level 3",
    "Level 1",
    "level 6",
    "level 2",
    "level 1",
    "level 8",
    "window 15",
    "12 bits",
    "15 bits",
    "1 → 8",
    "1 → 500",
    "at most 266 events",
    // What others say.
    "a gain of 20 %",
    // What is asked.
    "What 10,000 connected",
    "what 10,000 connected",
    "Each of 10,000 clients",
    "nobody connected 10,000",
];

/// A published result, and what follows from it.
struct Published {
    result: ResultFile,
    derived: Derived,
}

/// Every published result by its folder; read once, because it takes most of the time of these
/// tests.
static PUBLISHED: LazyLock<BTreeMap<String, Published>> = LazyLock::new(|| {
    let folders = fs::read_dir(root().join("results/published")).unwrap().map(|entry| entry.unwrap().path());
    let published = |folder: PathBuf| {
        let result = ResultFile::read(&folder).unwrap();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        (name, Published { derived: Derived::from_result(&result), result })
    };
    folders.filter(|folder| folder.is_dir()).map(published).collect()
});

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The documents whose numbers have sources.
fn documents() -> Vec<String> {
    let (mut documents, mut folders) = (BESIDE_DOCS.map(str::to_owned).to_vec(), vec![PathBuf::from("docs")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            let name = path.to_string_lossy().into_owned();
            if root().join(&path).is_dir() {
                folders.push(path);
            } else if name.ends_with(".md") && !source::MADE.contains(&&*name) {
                documents.push(name);
            }
        }
    }
    documents.sort();
    documents
}

/// A document without its plans; what stays keeps its lines.
fn read(document: &str) -> String {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let mut is_plan = false;
    let kept = text.lines().map(|line| {
        if line.starts_with('#') {
            is_plan = document.starts_with("docs/decisions/") && PLANS.iter().any(|end| line.ends_with(end));
        }
        if is_plan { "" } else { line }
    });
    kept.collect::<Vec<_>>().join("\n")
}

/// What is wrong with a document, a line for each number.
fn faults(document: &str, text: &str, sources: &Sources) -> Vec<String> {
    match prose::blocks(text, NOT_MEASURED) {
        Ok(blocks) => blocks.iter().flat_map(|block| faults_of(document, block, sources)).collect(),
        Err(fault) => vec![format!("{document}:{fault}")],
    }
}

fn faults_of(document: &str, block: &Block, sources: &Sources) -> Vec<String> {
    let at = format!("{document}:{}", block.line);
    let shown = |numbers: &[number::Number]| {
        numbers.iter().map(|number| number.said.as_str()).collect::<Vec<_>>().join(" | ")
    };
    let found = match sources.numbers(&block.terms) {
        Ok(found) => found,
        Err(error) => return vec![format!("{at}: {error}")],
    };
    if found.len() != block.numbers.len() {
        let (says, has) = (shown(&block.numbers), shown(&found));
        return vec![format!(
            "{at}: {} numbers, {} with a source\n  text:    {says}\n  sources: {has}",
            block.numbers.len(),
            found.len()
        )];
    }
    let differing = block.numbers.iter().zip(&found).filter(|(said, found)| !said.agrees(found));
    differing
        .map(|(said, found)| format!("{at}: says {:?}, its source {:?}", said.said, found.said))
        .collect()
}

#[test]
fn every_number_of_the_documents_is_that_of_its_source() {
    let sources = Sources::new(root());
    let mut wrong = Vec::new();
    for document in documents() {
        wrong.extend(faults(&document, &read(&document), &sources));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn published_summaries_are_those_of_their_results() {
    assert!(PUBLISHED.len() > 5, "{} results", PUBLISHED.len());
    let listed = source::below(&read("results/README.md"), "Published").unwrap();
    for (name, Published { result, .. }) in &*PUBLISHED {
        assert!(listed.contains(&format!("(published/{name}/summary.md)")), "{name} is not listed");
        let committed = root().join("results/published").join(name).join("summary.md");
        let committed = fs::read_to_string(committed).unwrap();
        let is_made = committed == report::summary(result);
        assert!(is_made, "run: cargo run -p compare -- report results/published/{name}");
    }
}

#[test]
fn tables_over_several_results_are_made_of_their_data() {
    made::check(&root(), "results/README.md");
}

#[test]
fn a_wrong_digit_is_found_wherever_it_stands() {
    let sources = Sources::new(root());
    let mut planted = 0;
    for document in documents() {
        for block in prose::blocks(&read(&document), NOT_MEASURED).unwrap() {
            for (number, source) in block.numbers.iter().zip(sources.numbers(&block.terms).unwrap()) {
                // Words have no digit.
                let Some(digit) = number.said.rfind(|c: char| c.is_ascii_digit()) else { continue };
                // Not the next digit, since both neighbours of 3.55 round to it.
                let wrong = (number.said.as_bytes()[digit] - b'0' + 3) % 10;
                let spoilt = format!("{}{wrong}{}", &number.said[..digit], &number.said[digit + 1..]);
                let read = number::numbers(&format!("It is {spoilt}."));
                let passes = read.iter().any(|read| read.agrees(&source));
                assert!(read.len() == 1 && !passes, "{document}: {spoilt} passes for {}", number.said);
                planted += 1;
            }
        }
    }
    assert!(planted > 1_000, "{planted} digits");
    let text = "zstd sends 0.58 of the bytes.\n<!-- numbers: mixed-day-load-4 / json zstd / wire bytes -->\n";
    let found = faults("x.md", text, &sources);
    assert_eq!(found, ["x.md:1: says \"0.58\", its source \"0.57\""]);
    let found = faults("x.md", &text.replace("0.58", "`0.58`"), &sources);
    assert_eq!(found, ["x.md:1: says \"0.58\", its source \"0.57\""]);
    let found = faults("x.md", &text.replace("zstd", "`zstd"), &sources);
    assert_eq!(found, ["x.md:1: a code mark (`) from here on has no other end"]);
}

#[test]
fn a_number_without_a_source_and_a_source_without_a_number_are_found() {
    let sources = Sources::new(root());
    let fault = |text: &str| faults("x.md", text, &sources).join("\n");
    assert!(fault("It takes 1.5 times as much.\n").contains("1 numbers, 0 with a source"));
    assert!(fault("It takes twice as much.\n").contains("text:    twice"));
    let comment = "<!-- numbers: mixed-day-load-4 / json zstd / wire bytes -->";
    assert!(fault(&format!("It takes more.\n{comment}\n")).contains("0 numbers, 1 with a source"));
    for (term, says) in [
        ("mixed-day-load-9 / json zstd / wire bytes", "neither a published result nor a file"),
        ("mixed-day-load-4 / json gzip / wire bytes", "no table has"),
        ("mixed-day-load-4 / json / wire bytes", "several rows"),
        ("mixed-day-load-4 / \"in 17 rounds\"", "does not say"),
        ("CONTRIBUTING.md / \"\"", "no number"),
    ] {
        let found = fault(&format!("It takes 0.57.\n<!-- numbers: {term} -->\n"));
        assert!(found.contains(says), "{term}: {found}");
    }
}
