//! Paragraphs, list items and tables of a document, with their numbers and the comments about
//! these.

use std::{fmt, iter::Enumerate, str::Lines};

use crate::number::{self, Number, is_unit};

const FENCE: &str = "```";
const COMMENT: &str = "<!--";
const NUMBERS: &str = "<!-- numbers:";
const CLOSE: &str = "-->";

/// Signs of numbers in code marks.
const SIGNS: &str = "%×÷±~≈<>≤≥=()[]–−-+";

/// What other tests keep, what this one makes, and what a bench printed, with its command: rows of
/// tables from here to the other line.
const KEPT: [(&str, &str); 4] = [
    ("<!-- table:", "<!-- end of table -->"),
    ("<!-- kept by:", "<!-- end of kept -->"),
    ("<!-- made:", "<!-- end of made -->"),
    ("<!-- measured by:", "<!-- end of measured -->"),
];

/// The tables of a document that a test or a bench makes.
pub(crate) fn tables(document: &str) -> String {
    let made = KEPT[1..].iter().flat_map(|(begin, end)| {
        let tables = document.split(begin).skip(1);
        // Without the command of the comment: a number of the prose has to stand in the table.
        tables.filter_map(move |behind| behind.split(end).next()?.split_once(" -->").map(|(_, table)| table))
    });
    made.collect()
}

/// A paragraph, a list item, a heading or a table.
#[derive(Debug, PartialEq)]
pub(crate) struct Block {
    /// Its first line, from 1.
    pub(crate) line: usize,
    /// Numbers that are no part of code, of a link's target or of a text that was not measured.
    pub(crate) numbers: Vec<Number>,
    /// Where they come from, as the comment says.
    pub(crate) terms: String,
}

/// What hides numbers of a document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The line where the hidden text begins, from 1.
    line: usize,
    says: String,
}

impl Fault {
    fn new(place: usize, says: &str) -> Fault {
        Fault { line: place + 1, says: says.to_owned() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.says)
    }
}

/// The blocks of a document that have numbers or a comment about them.
///
/// # Errors
/// When a fence, a comment, a table between comments or a code mark is not closed.
pub(crate) fn blocks(document: &str, not_measured: &[&str]) -> Result<Vec<Block>, Fault> {
    let (mut blocks, mut open, mut item) = (Vec::new(), Open::default(), 0);
    let mut lines = document.lines().enumerate();
    while let Some((place, line)) = lines.next() {
        let trimmed = line.trim();
        if trimmed.starts_with(FENCE) {
            open.close(&mut blocks, not_measured)?;
            skip_code(&mut lines, place)?;
        } else if let Some((_, end)) = KEPT.iter().find(|(begin, _)| trimmed.starts_with(begin)) {
            open.close(&mut blocks, not_measured)?;
            comment(&mut lines, place, trimmed)?;
            skip_rows(&mut lines, place, end, &mut open)?;
            open.close(&mut blocks, not_measured)?;
        } else if trimmed.starts_with(COMMENT) {
            let comment = comment(&mut lines, place, trimmed)?;
            if let Some(terms) = comment.strip_prefix(NUMBERS) {
                open.terms.push_str(terms);
                open.terms.push(';');
            }
        } else {
            // A number inside a sentence may begin a line, too.
            let begins = |number| number == 1 && open.text.is_empty() || item > 0 && number == item + 1;
            let listed = numbered(trimmed).filter(|(number, _)| begins(*number));
            let (number, trimmed) = listed.unwrap_or((item, trimmed));
            let heading = trimmed.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim_start());
            if number != item || trimmed.is_empty() || trimmed.starts_with("- ") || heading.is_some() {
                open.close(&mut blocks, not_measured)?;
            }
            item = number;
            if let Some(heading) = heading {
                open.add(place, numbered(heading).map_or(heading, |(_, behind)| behind))?;
                open.close(&mut blocks, not_measured)?;
                item = 0;
            } else {
                open.add(place, trimmed)?;
            }
        }
    }
    open.close(&mut blocks, not_measured)?;
    Ok(blocks)
}

/// Skips code whose fence began at a place.
fn skip_code(lines: &mut Enumerate<Lines>, began: usize) -> Result<(), Fault> {
    let fence = lines.map(|(_, line)| line.trim()).find(|line| line.starts_with(FENCE));
    // What opens another fence closes none.
    let is_closed = fence.is_some_and(|line| line == FENCE);
    is_closed.then_some(()).ok_or_else(|| Fault::new(began, "close this fence by a line of ``` alone"))
}

/// Reads a comment that began at a place, and gives it without its end.
fn comment(lines: &mut Enumerate<Lines>, began: usize, first: &str) -> Result<String, Fault> {
    let mut comment = first.to_owned();
    while !comment.contains(CLOSE) {
        let line = lines.next().map(|(_, line)| line.trim()).filter(|line| !line.contains(COMMENT));
        let line = line.ok_or_else(|| Fault::new(began, "close this comment by -->"))?;
        comment.push(' ');
        comment.push_str(line);
    }
    let end = comment.strip_suffix(CLOSE).filter(|comment| !comment.contains(CLOSE));
    end.map(str::to_owned).ok_or_else(|| Fault::new(began, "begin a new line behind the --> of this comment"))
}

/// Skips rows up to the comment that ends them; other lines are read.
fn skip_rows(lines: &mut Enumerate<Lines>, began: usize, end: &str, open: &mut Open) -> Result<(), Fault> {
    for (place, line) in lines {
        let line = line.trim();
        if line == end {
            return Ok(());
        }
        if line.contains(COMMENT) {
            break;
        }
        if !line.starts_with('|') {
            open.add(place, line)?;
        }
    }
    Err(Fault::new(began, &format!("close this table by a line of {end} alone, before any other comment")))
}

/// The number of an item of a list, and what stands behind it.
fn numbered(line: &str) -> Option<(u32, &str)> {
    let (number, behind) = line.split_once(". ")?;
    Some((number.parse().ok()?, behind))
}

/// The block that is being read.
#[derive(Default)]
struct Open {
    line: usize,
    text: String,
    terms: String,
}

impl Open {
    fn add(&mut self, place: usize, text: &str) -> Result<(), Fault> {
        if self.text.is_empty() {
            self.line = place + 1;
        }
        if !text.is_empty() {
            self.text.push_str(text);
            self.text.push(' ');
        }
        // Code does not span rows.
        if text.starts_with('|') { closed(text, place) } else { Ok(()) }
    }

    fn close(&mut self, blocks: &mut Vec<Block>, not_measured: &[&str]) -> Result<(), Fault> {
        let Open { line, text, terms } = std::mem::take(self);
        closed(&text, line.saturating_sub(1))?;
        let numbers = number::numbers(&measured(&said(&text), not_measured));
        if !numbers.is_empty() || !terms.is_empty() {
            blocks.push(Block { line, numbers, terms });
        }
        Ok(())
    }
}

/// That each code mark of a text is closed.
fn closed(text: &str, place: usize) -> Result<(), Fault> {
    let is_closed = text.matches('`').count().is_multiple_of(2);
    is_closed.then_some(()).ok_or_else(|| Fault::new(place, "a code mark (`) from here on has no other end"))
}

/// A text without code and targets of links.
fn said(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    let mut plain = String::new();
    for (place, part) in parts.iter().enumerate() {
        let is_code = place % 2 == 1;
        match parts.get(place + 1) {
            Some(behind) if is_code && is_measured(part, behind) => plain.push_str(&format!(" {part} ")),
            Some(_) if is_code => plain.push('`'),
            _ => plain.push_str(part),
        }
    }
    let mut said = String::new();
    for (place, part) in plain.split("](").enumerate() {
        let target = if place == 0 { None } else { part.split_once(')') };
        said.push_str(target.map_or(part, |(_, behind)| behind));
        said.push(']');
    }
    said
}

/// Whether code is a measurement: it begins with a number that has a fraction, thousands, a sign
/// or a unit. Other whole numbers are constants, such as an exit code, a status or a kind.
fn is_measured(code: &str, behind: &str) -> bool {
    let mut words =
        code.split(|c: char| c.is_whitespace() || SIGNS.contains(c)).filter(|word| !word.is_empty());
    let is_number = |word: &str| word.chars().all(|c| c.is_ascii_digit() || c == '.' || c == ',');
    let unit_behind = behind.split_whitespace().next().is_some_and(|word| {
        word.starts_with('%') || is_unit(word.trim_end_matches(|c: char| c.is_ascii_punctuation()))
    });
    words.next().is_some_and(is_number)
        && (unit_behind || words.any(is_unit) || code.contains(['.', ',', '%', '×', '±']))
}

/// A text without what was not measured.
fn measured(text: &str, not_measured: &[&str]) -> String {
    let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in not_measured {
        let is_part = |before: &str| before.ends_with(|c: char| c.is_ascii_digit() || ".,".contains(c));
        let mut kept = String::new();
        while let Some((before, behind)) = text.split_once(words) {
            kept.push_str(before);
            kept.push_str(if is_part(before) { words } else { "…" });
            text = behind.to_owned();
        }
        text = kept + &text;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_their_numbers_and_terms() {
        let text = "# 32. About 3\n\nIt takes 5 [or 6](a7.md)\nof `8`, at the 95 % that 0.95 % are.\n\
            <!-- numbers: a / b;\n  / c -->\n\n```\n9\n```\n- one 10\n  <!-- numbers: d -->\n- two\n\
            <!-- a remark 11 -->\n<!-- table: x -->\n| 12 |\nsaid of 20\n<!-- end of table -->\n\
            | 13 | 14 |\n\n1. one of\n30. And\n2. of 31\n";
        let shown: Vec<(usize, Vec<String>, String)> = blocks(text, &["95 %"])
            .unwrap()
            .into_iter()
            .map(|block| {
                let said = block.numbers.into_iter().map(|number| number.said).collect();
                (block.line, said, block.terms.split_whitespace().collect::<Vec<_>>().join(" "))
            })
            .collect();
        let block = |line: usize, numbers: &[&str], terms: &str| {
            (line, numbers.iter().map(|number| (*number).to_owned()).collect(), terms.to_owned())
        };
        assert_eq!(
            shown,
            [
                block(1, &["3"], ""),
                block(3, &["5", "6", "0.95 %"], "a / b; / c ;"),
                block(11, &["10"], "d ;"),
                block(17, &["20"], ""),
                block(19, &["13", "14"], ""),
                block(21, &["30"], ""),
                block(23, &["31"], ""),
            ]
        );
    }

    #[test]
    fn what_hides_numbers_is_named_with_its_line() {
        let fault = |text: &str| blocks(text, &[]).unwrap_err().to_string();
        for text in ["one\n```\nIt takes 0.49.\n", "one\n```\ncode\n\nIt takes 0.49.\n```sh\ncode\n```\n"] {
            assert_eq!(fault(text), "2: close this fence by a line of ``` alone", "{text}");
        }
        for (begin, end) in KEPT {
            let says = format!("3: close this table by a line of {end} alone, before any other comment");
            let begin = format!("one\n\n{begin} x -->\n| 1 |\n");
            for hidden in ["| 0.49 |\n", "<!-- made: y -->\n| 2 |\n<!-- end of made -->\n"] {
                assert_eq!(fault(&format!("{begin}{hidden}")), says, "{hidden}");
            }
            assert_eq!(fault(&format!("{begin}{end} It takes 0.49.\n")), says);
            assert_eq!(blocks(&format!("{begin}{end}\n"), &[]), Ok(Vec::new()));
        }
        for begin in ["<!-- a remark", "<!-- numbers: a", "<!-- made: x"] {
            let close = "1: close this comment by -->";
            assert_eq!(fault(&format!("{begin}\nIt takes 0.49.\n")), close);
            assert_eq!(fault(&format!("{begin}\nIt takes 0.49.\n<!-- another -->\n")), close);
            let new_line = "1: begin a new line behind the --> of this comment";
            assert_eq!(fault(&format!("{begin} --> It takes 0.49.\n")), new_line);
        }
        let mark = "a code mark (`) from here on has no other end";
        assert_eq!(fault("`one`\n\nIt `takes 0.49\nof it.\n\n- `two`\n"), format!("3: {mark}"));
        assert_eq!(fault("- `one\n- takes 0.49\n- two`\n"), format!("1: {mark}"));
        assert_eq!(fault("| one |\n| --- |\n| `a |\n| 0.49` |\n"), format!("3: {mark}"));
    }

    #[test]
    fn a_measured_number_is_one_in_code_marks_too() {
        let read = |text: &str| -> Vec<String> {
            let blocks = blocks(text, &[]).unwrap();
            blocks.into_iter().flat_map(|block| block.numbers).map(|number| number.said).collect()
        };
        for (text, said) in [
            ("It takes `0.49` of it.", &["0.49"][..]),
            ("It takes ×`0.49`.", &["0.49"]),
            ("It takes `×2`.", &["2"]),
            ("It takes `57 %`.", &["57 %"]),
            ("It takes `57` % of it.", &["57 %"]),
            ("It takes `36` ms.", &["36"]),
            ("It takes `36 ms`.", &["36"]),
            ("It sends `36,127` events.", &["36,127"]),
            ("It is `0.95 [0.91, 1.00]`.", &["0.95", "0.91", "1.00"]),
            ("| `json` | `0.49` |", &["0.49"]),
            ("It takes `0.49 of JSON's CPU`.", &["0.49"]),
            ("It takes 36ms, 3x as much.", &["36", "3"]),
            ("[it takes 0.49](unclosed", &["0.49"]),
            ("The link ](takes 0.49", &["0.49"]),
        ] {
            assert_eq!(read(text), said, "{text}");
        }
        for code in [
            "cargo test -- 0.49",
            "--load 0.1",
            "load = [0.1, 1]",
            "deflate:level=2",
            "lose=5%",
            "10.80.0.0/12",
            "libdeflater = \"1.26\"",
            "1.95.0",
            "4e0b23a",
            "note-stream-64",
            "_p99",
            "1013",
            "403 Forbidden",
            "2-5",
            "1 << 48",
        ] {
            assert_eq!(read(&format!("Written `{code}` as it is.")), Vec::<String>::new(), "{code}");
        }
    }
}
