//! The page: one file that makes no request, of one result or of several. Its template is made of
//! web/site.

use anyhow::{Context, Result};

use crate::{pages::model::Report, result::ResultFile};

const TEMPLATE: &str = include_str!("../generated/page.html");

/// Results of one page, each as it was when it was added.
#[derive(Debug, Default)]
pub struct Site {
    results: Vec<String>,
}

impl Site {
    /// Takes a result with the name of its folder.
    ///
    /// # Errors
    /// When its data cannot be written as JSON.
    pub fn add(&mut self, name: &str, result: &ResultFile) -> Result<()> {
        let explored = Report::from_result(result).explored(name);
        self.results.push(explored.with_context(|| format!("{name} cannot be written as JSON"))?);
        Ok(())
    }

    /// How many results it has.
    pub fn len(&self) -> usize {
        self.results.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// The page under a title.
    ///
    /// # Errors
    /// When the template has no place for data.
    pub fn html(&self, title: &str) -> Result<String> {
        page(title, &self.results.join(","))
    }
}

/// The template with results in it.
fn page(title: &str, results: &str) -> Result<String> {
    let no_place = "the template of the page has no place for data: npm run build in web/site";
    let (head, rest) = TEMPLATE.split_once("<title>{title}</title>").context(no_place)?;
    let (body, script) = rest.split_once("id=\"data\">{data}<").context(no_place)?;
    Ok(format!("{head}<title>{}</title>{body}id=\"data\">[{results}]<{script}", escape(title)))
}

/// Text for HTML; titles come from files that anyone may have written.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Report<'_> {
    /// `report.html`: the page of this result alone.
    ///
    /// # Errors
    /// When its data cannot be written as JSON.
    pub fn html(&self) -> Result<String> {
        self.page("this result")
    }

    /// The page of one result under a name.
    pub(crate) fn page(&self, name: &str) -> Result<String> {
        page(&self.title, &self.explored(name)?)
    }
}
