//! Paragraphs, list items and tables of a document, with their numbers and the comments about
//! these.

use crate::number::{self, Number};

const NUMBERS: &str = "<!-- numbers:";
const CLOSE: &str = "-->";

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

/// The blocks of a document that have numbers or a comment about them.
pub(crate) fn blocks(document: &str, not_measured: &[&str]) -> Vec<Block> {
    let (mut blocks, mut open, mut item) = (Vec::new(), Open::default(), 0);
    let mut lines = document.lines().enumerate();
    while let Some((place, line)) = lines.next() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            open.close(&mut blocks, not_measured);
            lines.by_ref().find(|(_, line)| line.trim_start().starts_with("```"));
        } else if let Some((_, end)) = KEPT.iter().find(|(begin, _)| trimmed.starts_with(begin)) {
            open.close(&mut blocks, not_measured);
            let kept = lines.by_ref().take_while(|(_, line)| !line.trim_start().starts_with(end));
            let mut is_comment = !trimmed.contains(CLOSE);
            for (place, line) in kept {
                // Rows alone are kept.
                if !is_comment && !line.trim_start().starts_with('|') {
                    open.add(place + 1, line.trim_start());
                }
                is_comment &= !line.contains(CLOSE);
            }
            open.close(&mut blocks, not_measured);
        } else if trimmed.starts_with("<!--") {
            let mut comment = trimmed.to_owned();
            while !comment.contains(CLOSE) {
                let Some((_, line)) = lines.next() else { break };
                comment.push(' ');
                comment.push_str(line.trim());
            }
            if let Some(terms) = comment.strip_prefix(NUMBERS) {
                open.terms.push_str(terms.split(CLOSE).next().unwrap_or(terms));
                open.terms.push(';');
            }
        } else {
            // A number inside a sentence may begin a line, too.
            let begins = |number| number == 1 && open.text.is_empty() || item > 0 && number == item + 1;
            let listed = numbered(trimmed).filter(|(number, _)| begins(*number));
            let (number, trimmed) = listed.unwrap_or((item, trimmed));
            let heading = trimmed.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim_start());
            if number != item || trimmed.is_empty() || trimmed.starts_with("- ") || heading.is_some() {
                open.close(&mut blocks, not_measured);
            }
            item = number;
            if let Some(heading) = heading {
                open.add(place + 1, numbered(heading).map_or(heading, |(_, behind)| behind));
                open.close(&mut blocks, not_measured);
                item = 0;
            } else {
                open.add(place + 1, trimmed);
            }
        }
    }
    open.close(&mut blocks, not_measured);
    blocks
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
    fn add(&mut self, line: usize, text: &str) {
        if self.text.is_empty() {
            self.line = line;
        }
        if !text.is_empty() {
            self.text.push_str(text);
            self.text.push(' ');
        }
    }

    fn close(&mut self, blocks: &mut Vec<Block>, not_measured: &[&str]) {
        let Open { line, text, terms } = std::mem::take(self);
        let numbers = number::numbers(&measured(&said(&text), not_measured));
        if !numbers.is_empty() || !terms.is_empty() {
            blocks.push(Block { line, numbers, terms });
        }
    }
}

/// A text without code and targets of links.
fn said(text: &str) -> String {
    let without_code: Vec<&str> = text.split('`').step_by(2).collect();
    let mut said = String::new();
    for (place, part) in without_code.join("`").split("](").enumerate() {
        let behind = if place == 0 { part } else { part.split_once(')').map_or("", |(_, behind)| behind) };
        said.push_str(behind);
        said.push(']');
    }
    said
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
}
