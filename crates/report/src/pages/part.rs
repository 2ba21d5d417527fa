//! Parts of a report: headings, sentences and tables, and the renderings of each.
use serde::Serialize;

use crate::{result::RESULT_FILE, tables::table::Table};

/// A rendering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    Terminal,
    /// With `--wide`.
    WideTerminal,
    /// `summary.md` and the page.
    Summary,
    /// Lines of a narrow terminal in another document.
    Lines,
}

pub(crate) type Media = &'static [Medium];

pub(crate) const EVERYWHERE: Media = &[Medium::Terminal, Medium::WideTerminal, Medium::Summary];
pub(crate) const ON_TERMINALS: Media = &[Medium::Terminal, Medium::WideTerminal];
pub(crate) const IN_FILES: Media = &[Medium::Summary];
/// What other documents quote, too.
pub(crate) const QUOTED: Media = &[Medium::Terminal, Medium::WideTerminal, Medium::Summary, Medium::Lines];
pub(crate) const QUOTED_OF_TERMINALS: Media = &[Medium::Terminal, Medium::WideTerminal, Medium::Lines];

/// A part of a report.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) on: Media,
    pub(crate) what: What,
}

/// The content of a part. Text may have Markdown's `code` and **bold**.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    /// A heading of this level, from 2.
    Heading(usize, String),
    Sentence(String),
    List(Vec<String>),
    Table(Table),
}

impl Part {
    fn everywhere(what: What) -> Part {
        Part { on: EVERYWHERE, what }
    }

    pub(crate) fn heading(level: usize, text: impl Into<String>) -> Part {
        Part::everywhere(What::Heading(level, text.into()))
    }

    pub(crate) fn sentence(text: impl Into<String>) -> Part {
        Part::everywhere(What::Sentence(text.into()))
    }

    pub(crate) fn list(items: Vec<String>) -> Part {
        Part::everywhere(What::List(items))
    }

    /// Items in Markdown.
    pub(crate) fn items(markdown: &str) -> Part {
        let item = |line: &str| line.strip_prefix("- ").unwrap_or(line).to_owned();
        Part::list(markdown.lines().map(item).collect())
    }

    pub(crate) fn table(table: Table) -> Part {
        Part::everywhere(What::Table(table))
    }

    /// The part in these renderings alone.
    pub(crate) fn only(self, on: Media) -> Part {
        Part { on, ..self }
    }
}

/// How many left-out blocks are listed; the result file has all of them.
const LISTED_BLOCKS: usize = 20;

/// The blocks that do not count, under a heading; nothing where all do.
pub(crate) fn left_out(mut blocks: Vec<String>, on: Media) -> Vec<Part> {
    if blocks.is_empty() {
        return Vec::new();
    }
    let more = blocks.split_off(blocks.len().min(LISTED_BLOCKS)).len();
    blocks.extend((more > 0).then(|| format!("and {more} more, see {RESULT_FILE}")));
    vec![Part::heading(2, "Blocks left out").only(on), Part::list(blocks).only(on)]
}
