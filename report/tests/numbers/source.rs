//! What a comment about numbers names: fields of tables, figures, and texts of the tree.

use std::{cell::RefCell, collections::BTreeMap, fs, path::PathBuf, rc::Rc};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{
    PUBLISHED,
    number::{self, Number},
    prose,
};

/// Behind the name of a result: its figures, where its tables do not have them.
const DERIVED: &str = " derived";

/// Documents that a program makes as a whole; of others only tables are sources that a test or a
/// bench makes.
pub(crate) const MADE: [&str; 2] = ["docs/instructions.md", "docs/codec-report.md"];

/// The tree, each source of which is read once.
pub(crate) struct Sources {
    root: PathBuf,
    texts: RefCell<BTreeMap<String, Rc<str>>>,
}

/// One source of one number, or of a few.
#[derive(Debug, Clone, Default, PartialEq)]
struct Term {
    source: String,
    /// Rows, apart from each other.
    rows: Vec<String>,
    column: String,
    pick: Pick,
    /// Whether the field is that to the right of the heading's.
    right: bool,
    /// Conversions in their order.
    steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Pick {
    #[default]
    First,
    Second,
    All,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Times(f64),
    /// A number, another row, or in brackets another heading.
    Over(String),
}

impl Sources {
    pub(crate) fn new(root: PathBuf) -> Sources {
        Sources { root, texts: RefCell::default() }
    }

    /// The numbers that a comment names, in its order.
    ///
    /// # Errors
    /// When a source is missing, or has none at this place.
    pub(crate) fn numbers(&self, terms: &str) -> Result<Vec<Number>> {
        let (mut found, mut last) = (Vec::new(), Term::default());
        let mut names = BTreeMap::new();
        for words in outside_quotes(terms, ';').iter().filter(|words| !words.trim().is_empty()) {
            if let Some((name, source)) = words.split_once(" := ") {
                names.insert(name.trim().to_owned(), source.split_whitespace().collect::<Vec<_>>().join(" "));
                continue;
            }
            let mut term = Term::read(words, &last).with_context(|| format!("cannot read {words:?}"))?;
            if let Some(source) = names.get(&term.source) {
                term.source.clone_from(source);
            }
            let of = self.of_term(&term).with_context(|| words.trim().to_owned());
            found.extend(of.map_err(|error| anyhow::anyhow!("{error:#}"))?);
            last = term;
        }
        Ok(found)
    }

    fn of_term(&self, term: &Term) -> Result<Vec<Number>> {
        if let Some(quoted) = term.column.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            let quoted = quoted.split_whitespace().collect::<Vec<_>>().join(" ");
            let text = self.text(&term.source)?;
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            ensure!(text.contains(&quoted), "{} does not say that", term.source);
            let is_code = self.is_code(&term.source);
            let found = if is_code { number::of_code(&quoted) } else { number::numbers(&quoted) };
            ensure!(!found.is_empty(), "no number in {quoted:?}");
            return Ok(found.into_iter().map(|number| convert(number, term)).collect());
        }
        let of_row = |row: &String| -> Result<Vec<Number>> {
            let mut numbers = self.field(term, row)?;
            for step in &term.steps {
                if let Step::Over(other) = step
                    && other.parse::<f64>().is_err()
                {
                    let heading = other.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                    let other = match heading {
                        Some(column) => {
                            self.field(&Term { column: column.to_owned(), ..term.clone() }, row)?
                        }
                        None => self.field(term, other)?,
                    };
                    numbers = numbers.iter().zip(&other).map(|(one, other)| one.over(other)).collect();
                }
            }
            let picked = match term.pick {
                Pick::First => numbers.get(..1),
                Pick::Second => numbers.get(1..2),
                Pick::All => Some(numbers.as_slice()),
            };
            let picked = picked.context("the field has fewer numbers")?;
            Ok(picked.iter().map(|number| convert(number.clone(), term)).collect())
        };
        let mut all: Vec<Vec<Number>> = term.rows.iter().map(of_row).collect::<Result<_>>()?;
        if all.len() == 1 {
            return Ok(all.remove(0));
        }
        let mut ends: Vec<Number> = all.into_iter().flatten().collect();
        ends.sort_by(|one, other| one.middle().total_cmp(&other.middle()));
        let (first, last) = ends.first().zip(ends.last()).context("no row")?;
        Ok(vec![first.clone(), last.clone()])
    }

    /// The numbers of a field.
    fn field(&self, term: &Term, row: &str) -> Result<Vec<Number>> {
        if let Some(result) = term.source.strip_suffix(DERIVED) {
            return Ok(vec![self.figure(result, row, &term.column)?]);
        }
        let text = self.text(&term.source)?;
        let numbers = number::numbers(&field(&text, row, &term.column, usize::from(term.right))?);
        ensure!(!numbers.is_empty(), "no number in this field");
        Ok(numbers)
    }

    /// A figure of a cell by the names that lead to it, such as `utilisation.relay`.
    fn figure(&self, result: &str, cell: &str, path: &str) -> Result<Number> {
        let derived: Value = serde_json::from_str(&self.text(&format!("{result}{DERIVED}"))?)?;
        let cells = derived["cells"].as_array().context("no cells")?;
        let found = cells.iter().find(|one| one["id"] == cell);
        let found = found.with_context(|| format!("{result} has no cell {cell}"))?;
        let value = path.split('.').try_fold(found, |value, name| value.get(name));
        Ok(Number::exactly(value.and_then(Value::as_f64).with_context(|| format!("no figure {path}"))?))
    }

    /// Whether a source is code, a setting or data: its numbers are not rounded.
    fn is_code(&self, source: &str) -> bool {
        let whole = source.split(" # ").next().unwrap_or(source);
        !whole.ends_with(".md") && self.root.join(whole).is_file()
    }

    /// What a source says.
    fn text(&self, source: &str) -> Result<Rc<str>> {
        if let Some(text) = self.texts.borrow().get(source) {
            return Ok(text.clone());
        }
        let text: Rc<str> = self.made(source)?.into();
        self.texts.borrow_mut().insert(source.to_owned(), text.clone());
        Ok(text)
    }

    fn made(&self, source: &str) -> Result<String> {
        if let Some((whole, section)) = source.split_once(" # ") {
            return below(&self.text(whole)?, section);
        }
        let name = source.strip_suffix(DERIVED).unwrap_or(source);
        let folder = self.root.join("results/published").join(name);
        if folder.is_dir() && !name.is_empty() {
            if source == name {
                return Ok(fs::read_to_string(folder.join("summary.md"))?);
            }
            let published = PUBLISHED.get(name).context("it has no data")?;
            return Ok(serde_json::to_string(&published.derived)?);
        }
        let file = self.root.join(source);
        ensure!(file.is_file(), "{source} is neither a published result nor a file");
        let text = fs::read_to_string(&file)?;
        if !source.ends_with(".md") || MADE.contains(&source) {
            return Ok(text);
        }
        Ok(prose::tables(&text))
    }
}

impl Term {
    /// Reads `SOURCE / ROWS / COLUMN`; what is empty is that of the term before.
    fn read(words: &str, last: &Term) -> Result<Term> {
        let mut parts = vec![Vec::new()];
        for word in outside_quotes(words, ' ') {
            match word.trim() {
                "" => {}
                "/" => parts.push(Vec::new()),
                word => parts.last_mut().context("no part")?.push(word.to_owned()),
            }
        }
        let (source, rows, mut column) = match parts.as_slice() {
            [source, column] => (source.join(" "), String::new(), column.clone()),
            [source, rows, column] => (source.join(" "), rows.join(" "), column.clone()),
            _ => bail!("expected SOURCE / ROW / HEADING, or SOURCE / \"text\""),
        };
        let mut term = Term { source: last.source.clone(), rows: last.rows.clone(), ..Term::default() };
        if !source.is_empty() {
            term.source = source;
        }
        if !rows.is_empty() {
            term.rows = rows.split(" & ").map(str::to_owned).collect();
        }
        // A heading may begin with the sign.
        let sign = |words: &[String]| {
            words.iter().skip(1).position(|word| ["×", "÷"].contains(&word.as_str())).map(|place| place + 1)
        };
        while let Some(place) = sign(&column) {
            let mut step = column.split_off(place);
            let rest = sign(&step).map_or_else(Vec::new, |place| step.split_off(place));
            column.extend(rest);
            let value = step[1..].join(" ");
            term.steps.push(match step[0].as_str() {
                "×" => Step::Times(value.parse()?),
                _ => Step::Over(value),
            });
        }
        while let Some(last) = column.pop() {
            match last.as_str() {
                "[]" => term.pick = Pick::All,
                "[2]" => term.pick = Pick::Second,
                "[>]" => term.right = true,
                _ => {
                    column.push(last);
                    break;
                }
            }
        }
        term.column = column.join(" ");
        Ok(term)
    }
}

fn convert(number: Number, term: &Term) -> Number {
    term.steps.iter().fold(number, |number, step| match step {
        Step::Times(factor) => number.times(*factor),
        Step::Over(divisor) => divisor.parse::<f64>().map_or(number.clone(), |by| number.times(1.0 / by)),
    })
}

/// The parts of a text between a sign, where that is not within quotes.
fn outside_quotes(text: &str, sign: char) -> Vec<String> {
    let (mut parts, mut is_quoted) = (vec![String::new()], false);
    for c in text.chars() {
        is_quoted ^= c == '"';
        match parts.last_mut() {
            Some(part) if c != sign || is_quoted => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    parts
}

/// What stands below a heading, up to the next one of its level.
pub(crate) fn below(text: &str, section: &str) -> Result<String> {
    let mut lines = text.lines();
    let is_heading = |line: &&str| line.trim_start_matches('#').trim() == section && line.starts_with('#');
    let heading = lines.find(is_heading).with_context(|| format!("no heading {section:?}"))?;
    let level = heading.len() - heading.trim_start_matches('#').len();
    let ends =
        |line: &&str| line.starts_with('#') && line.len() - line.trim_start_matches('#').len() <= level;
    Ok(lines.take_while(|line| !ends(line)).collect::<Vec<_>>().join("\n"))
}

/// The field of the first table that has both such a row and such a heading, or one that is so many
/// columns to the right of it.
fn field(text: &str, row: &str, column: &str, right: usize) -> Result<String> {
    for table in tables(text) {
        let [headings, rows @ ..] = table.as_slice() else { continue };
        let exact = headings.iter().position(|heading| heading == column);
        let begins = || headings.iter().position(|heading| heading.starts_with(column));
        let Some(place) = exact.or_else(begins) else { continue };
        let is_row = |fields: &&Vec<String>| (1..=fields.len()).any(|names| fields[..names].join(" ") == row);
        let found: Vec<&Vec<String>> = rows.iter().filter(is_row).collect();
        match found.as_slice() {
            [] => {}
            [one] => return one.get(place + right).cloned().context("the row is too short"),
            _ => bail!("several rows begin with {row:?}"),
        }
    }
    bail!("no table has a row {row:?} under a heading {column:?}")
}

/// The tables of a document: rows of fields, the headings first.
fn tables(text: &str) -> Vec<Vec<Vec<String>>> {
    let mut tables = vec![Vec::new()];
    for line in text.lines() {
        match line.trim().strip_prefix('|').and_then(|row| row.strip_suffix('|')) {
            Some(row) if row.chars().all(|c| "-:| ".contains(c)) => {}
            Some(row) => {
                let fields = row.split('|').map(|field| field.trim().replace(['`', '*'], "")).collect();
                if let Some(table) = tables.last_mut() {
                    table.push(fields);
                }
            }
            None => tables.push(Vec::new()),
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# One\n| a | b | x (1) |\n| --- | --- | ---: |\n| json | none | 1.5 ×1.00 |\n\
        | json | `zstd` | **×0.50** [0.45, 0.55] |\n\n## Two\n| a | y |\n| --- | --- |\n| json | 7 |\n# Three\n";

    #[test]
    fn a_field_is_found_by_row_and_heading() {
        assert_eq!(field(TEXT, "json none", "x", 0).unwrap(), "1.5 ×1.00");
        assert_eq!(field(TEXT, "json zstd", "x (1)", 0).unwrap(), "×0.50 [0.45, 0.55]");
        assert_eq!(field(TEXT, "json", "y", 0).unwrap(), "7");
        assert_eq!(field(TEXT, "json zstd", "b", 1).unwrap(), "×0.50 [0.45, 0.55]");
        assert!(field(TEXT, "json", "x", 0).unwrap_err().to_string().contains("several rows"));
        assert!(field(TEXT, "json zstd", "z", 0).is_err());
        assert!(field(&below(TEXT, "Two").unwrap(), "json none", "x", 0).is_err());
        assert!(below(TEXT, "Four").is_err());
    }

    #[test]
    fn terms_are_read_after_each_other() {
        let first =
            Term::read("a # b / json none & json zstd / wire B/event [>] [2] × 8 ÷ 100", &Term::default());
        let first = first.unwrap();
        assert_eq!((first.source.as_str(), first.column.as_str()), ("a # b", "wire B/event"));
        assert_eq!(first.rows, ["json none", "json zstd"]);
        assert_eq!((first.pick, first.right, first.steps.len()), (Pick::Second, true, 2));
        let second = Term::read(" / / p10 /s []", &first).unwrap();
        assert_eq!((&second.source, &second.rows), (&first.source, &first.rows));
        assert_eq!((second.pick, second.column.as_str()), (Pick::All, "p10 /s"));
        let third = Term::read("/ \"a; / b\"", &second).unwrap();
        assert_eq!((third.source.as_str(), third.column.as_str()), ("a # b", "\"a; / b\""));
        assert!(Term::read("a", &first).is_err());
    }
}
