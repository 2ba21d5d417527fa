//! `summary.md`, the terminal's output and the lines that are quoted of it: a report as text.
use crate::{
    pages::{
        model::Report,
        part::{Medium, Part, What},
        provenance,
        text::{LEFT_OUT, fold_within},
    },
    result::ResultFile,
};

/// Columns of a narrow terminal.
pub(crate) const WIDTH: usize = 120;

/// Sentences are not folded to less.
const LEAST_WIDTH: usize = 40;

/// The summary in Markdown.
pub fn summary(result: &ResultFile) -> String {
    Report::from_result(result).summary()
}

/// The report for a terminal, or for what is none.
pub fn terminal(result: &ResultFile, wide: bool) -> String {
    terminal_of(result, wide, None)
}

/// As [`terminal`], for a terminal of `room` columns.
pub fn terminal_of(result: &ResultFile, wide: bool, room: Option<usize>) -> String {
    Report::from_result(result).terminal(wide, room)
}

impl Report<'_> {
    /// `summary.md`. Its first line is the command that made the result.
    pub fn summary(&self) -> String {
        let mut text = format!("`{}`\n\n# {}\n", provenance::command(self.result), self.title);
        for (i, warning) in self.warnings.iter().enumerate() {
            text += &format!("{}> **{warning}**\n", if i == 0 { "\n" } else { ">\n" });
        }
        text += &format!("\n{}\n", self.headline);
        for part in self.parts(Medium::Summary) {
            text.push('\n');
            match &part.what {
                What::Heading(level, heading) => text += &format!("{} {heading}\n", "#".repeat(*level)),
                What::Sentence(sentence) => text += &format!("{sentence}\n"),
                What::List(items) => items.iter().for_each(|item| text += &format!("- {item}\n")),
                What::Table(table) => text.push_str(&table.markdown()),
            }
        }
        text
    }

    /// For a terminal: warnings, the headline, the answers, tables and verdicts. In a terminal of this
    /// width no row of a table wraps, and unless `wide` none is longer than 120 columns. Columns without
    /// room are named.
    pub fn terminal(&self, wide: bool, room: Option<usize>) -> String {
        let width = room.map_or(WIDTH, |room| room.clamp(LEAST_WIDTH, WIDTH));
        let room = if wide { room } else { Some(room.map_or(WIDTH, |room| room.min(WIDTH))) };
        let mut text = String::new();
        self.warnings.iter().chain([&self.headline]).for_each(|paragraph| fold(&mut text, paragraph, width));
        let medium = if wide { Medium::WideTerminal } else { Medium::Terminal };
        draw(&mut text, self.parts(medium), room, width);
        if text.contains(LEFT_OUT) {
            fold(&mut text, "summary.md in the folder of the result has all columns.", width);
        }
        text
    }

    /// The lines that another document quotes, as a terminal shows them.
    pub(crate) fn lines(&self) -> String {
        let (mut text, mut ledger) = (String::new(), String::new());
        draw(&mut text, self.parts(Medium::Lines), Some(WIDTH), WIDTH);
        // Tables at a limit are quoted alone.
        if !self.is_at_limit() && !text.is_empty() {
            fold(&mut ledger, &self.headline, WIDTH);
        }
        ledger + text.trim_start()
    }
}

/// Writes parts for a terminal, without figures: tables for one of so many columns, text in lines of a
/// width.
pub(crate) fn draw<'a>(
    text: &mut String,
    parts: impl IntoIterator<Item = &'a Part>,
    room: Option<usize>,
    width: usize,
) {
    for part in parts {
        match &part.what {
            What::Heading(_, heading) => {
                text.push('\n');
                fold(text, heading, width);
            }
            What::Sentence(sentence) => fold(text, sentence, width),
            What::List(items) => items.iter().for_each(|item| fold(text, item, width)),
            What::Table(table) => text.push_str(&table.text(room)),
        }
    }
}

/// Writes a paragraph without the marks of code.
fn fold(text: &mut String, paragraph: &str, width: usize) {
    fold_within(text, &paragraph.replace('`', ""), width);
}
