//! `summary.md` and the terminal's output: a report as text.

use super::{
    model::Report,
    part::{Medium, What},
    provenance::line,
    text::{LEFT_OUT, fold_within},
};
use crate::result::ResultFile;

/// Columns of a narrow terminal.
const WIDTH: usize = 120;

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

/// The same for a terminal of so many columns.
pub fn terminal_of(result: &ResultFile, wide: bool, room: Option<usize>) -> String {
    Report::from_result(result).terminal(wide, room)
}

impl Report<'_> {
    /// `summary.md`. Its first line is the command that made the result.
    pub fn summary(&self) -> String {
        let mut text = format!("`{}`\n\n# {}\n", self.command, self.title);
        for (i, warning) in self.warnings.iter().enumerate() {
            line(&mut text, format_args!("{}> **{warning}**", if i == 0 { "\n" } else { ">\n" }));
        }
        line(&mut text, format_args!("\n{}", self.headline));
        for part in self.parts(Medium::Summary) {
            text.push('\n');
            match &part.what {
                What::Heading(level, heading) => {
                    line(&mut text, format_args!("{} {heading}", "#".repeat(*level)));
                }
                What::Sentence(sentence) => line(&mut text, format_args!("{sentence}")),
                What::List(items) => items.iter().for_each(|item| line(&mut text, format_args!("- {item}"))),
                What::Table { table, .. } => text.push_str(&table.markdown()),
                What::Drawn(_) => {}
            }
        }
        text
    }

    /// For a terminal: warnings, the headline, the answers, tables and verdicts. Unless `wide`,
    /// tables have fewer columns and marks instead of words. In a terminal of so many columns no
    /// row of a table wraps, and what it has no room for is named.
    pub fn terminal(&self, wide: bool, room: Option<usize>) -> String {
        let width = room.map_or(WIDTH, |room| room.clamp(LEAST_WIDTH, WIDTH));
        let fold = |text: &mut String, paragraph: &str| fold_within(text, &paragraph.replace('`', ""), width);
        let mut text = String::new();
        self.warnings.iter().chain([&self.headline]).for_each(|paragraph| fold(&mut text, paragraph));
        for part in self.parts(if wide { Medium::WideTerminal } else { Medium::Terminal }) {
            match &part.what {
                What::Heading(_, heading) => {
                    text.push('\n');
                    fold(&mut text, heading);
                }
                What::Sentence(sentence) => fold(&mut text, sentence),
                What::List(items) => items.iter().for_each(|item| fold(&mut text, item)),
                What::Table { table, .. } => text.push_str(&table.text(room)),
                What::Drawn(_) => {}
            }
        }
        if text.contains(LEFT_OUT) {
            let rest =
                "summary.md in the folder of the result has all columns; so has this output in a pipe.";
            fold(&mut text, rest);
        }
        text
    }
}
