//! `report.html`: one file that makes no request, reads without JavaScript and is interactive with
//! it.

use anyhow::Result;
use serde_json::json;

use crate::{
    figures::escape,
    pages::{
        model::Report,
        page::{drawn, first, page},
        part::Medium,
        provenance,
    },
    result::ResultFile,
};

/// The page.
///
/// # Errors
/// When the data of the page cannot be written as JSON.
pub fn html(result: &ResultFile) -> Result<String> {
    Report::from_result(result).html()
}

impl Report<'_> {
    /// `report.html`.
    ///
    /// # Errors
    /// When the data of the page cannot be written as JSON.
    pub fn html(&self) -> Result<String> {
        let reproduce = format!(
            "git checkout {}\ncargo run --release -p compare -- {}",
            self.result.git.as_ref().map_or("COMMIT", |git| git.commit.as_str()),
            provenance::arguments(self.result)
        );
        let body = format!(
            "{}<p>{}</p>\n{}<h2>How to reproduce</h2>\n<pre>{}</pre>\n\
             <script type=\"application/json\" id=\"data\">{}</script>\n",
            first(&self.command, &self.title, &self.warnings),
            escape(&self.headline),
            drawn(self.parts(Medium::Page)),
            escape(&reproduce),
            self.data()?
        );
        Ok(page(&self.title, &body))
    }

    /// Every number of the page, for programs.
    fn data(&self) -> Result<String> {
        let ResultFile { git, host, config, corpus, .. } = self.result;
        let data = json!({
            "git": git, "host": host, "config": config, "corpus": corpus, "derived": self.derived,
        });
        // Inside a script element only "<" could begin something else; it stands in strings alone.
        Ok(serde_json::to_string(&data)?.replace('<', "\\u003c"))
    }
}
