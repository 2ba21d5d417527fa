//! Texts that only `compare browser` has. Its tables are as in every run.

use crate::{
    number,
    result::{Block, Browser, ResultFile},
    view::LoadView,
};

impl LoadView<'_> {
    /// Whether pages in a browser played the load.
    pub(crate) fn is_of_pages(&self) -> bool {
        self.result.config.browser.is_some()
    }
}

/// The run and how much of it counts, in a sentence.
pub(crate) fn headline(result: &ResultFile, browser: &Browser) -> String {
    let blocks = || result.cells.iter().flat_map(|cell| &cell.blocks);
    format!(
        "Pages in {}, headless: {} blocks with steps of {} ms in {}, {} left out.",
        browser.product,
        blocks().count(),
        browser.step_ms,
        number::rounds(result.config.rounds),
        blocks().filter(|block: &&Block| block.usable().is_none()).count(),
    )
}

/// What the rows are of, in a sentence.
pub(crate) const ROWS: &str = "A row is a format and what decodes it: a package of npm; tuned, a reader by hand; wasm, \
    this repository's codecs in WebAssembly; head, a reader of the id alone. json:bytes decodes UTF-8 first; table-hex \
    makes hex by script; fzstd undoes the zstd layer first, by script.";

/// List items: how figures came about, and what columns are.
pub(crate) fn reading(correction: &str) -> String {
    format!(
        "- Each block is a page in a browser started for it. Main: CPU of the renderer's main thread. Client: all threads of \
         the renderer, and the browser's network process. First 100: wall time of a page that has decoded nothing. Heap does \
         not rank rows: it lacks array buffers and WebAssembly.\n\
         - × is a block divided by its nearest anchors, JSON.parse of text, as the Hodges–Lehmann estimate over rounds. \
         Verdicts compare a row with JSON under the same compression: better and worse lie wholly beyond ±2 %, same within, \
         by Wilcoxon's signed-rank test ({correction}).\n\
         - docs/browsers.md has the rest. Never pool these with native clients, nor CPU time with wall time.\n"
    )
}

/// The browser and what was in its page, in one line: what two runs must have in common.
pub(crate) fn conditions(browser: &Browser) -> String {
    let libraries: Vec<String> =
        browser.libraries.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let sets: Vec<String> = browser.events.iter().map(|(set, events)| format!("{events} {set}")).collect();
    format!(
        "{} {}, flags {}, toHex {}, a clock in steps of {} µs, steps of {} ms, {}, {} events",
        browser.client,
        browser.product,
        browser.flags.join(" "),
        browser.has_to_hex,
        number::three(browser.clock_ns as f64 / 1e3),
        browser.step_ms,
        libraries.join(", "),
        sets.join(", "),
    )
}
