//! A page: one file that makes no request, reads without JavaScript and is interactive with it.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use sha2::{Digest, Sha256};

use super::{
    figures::{self, escape},
    table::Table,
};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The whole file. The policy allows one script by its hash, so a script injected through a record
/// does not run.
pub(crate) fn page(title: &str, body: &str) -> String {
    let hash = BASE64.encode(Sha256::digest(SCRIPT));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'sha256-{hash}'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n\
         <style>{STYLE}{}</style>\n</head>\n<body>\n{body}<script>{SCRIPT}</script>\n</body>\n</html>\n",
        escape(title),
        figures::STYLE
    )
}

/// Adds to the text of a page.
pub(crate) fn add(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("writing to a string does not fail");
}

/// A figure with its caption.
pub(crate) fn figure(caption: &str, svg: &str) -> String {
    format!("<figure><figcaption>{}</figcaption>{svg}</figure>\n", escape(caption))
}

/// Markdown list items as HTML.
pub(crate) fn list(heading: &str, items: &str) -> String {
    let items: String =
        items.lines().map(|item| format!("<li>{}</li>\n", escape(item.trim_start_matches("- ")))).collect();
    format!("<h2>{heading}</h2>\n<ul>\n{items}</ul>\n")
}

/// A table; `ids` name the cells behind its rows, by which rows and marks are shown together.
pub(crate) fn table_html(table: &Table, ids: &[&str]) -> String {
    let class = |column: usize| if column < table.names { " class=\"name\"" } else { "" };
    let mut html = "<div class=\"scroll\"><table>\n<thead><tr>".to_owned();
    for (column, heading) in table.headings.iter().enumerate() {
        add(&mut html, format_args!("<th{}>{}</th>", class(column), escape(heading)));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for (row, id) in table.rows.iter().zip(ids) {
        add(&mut html, format_args!("<tr data-cell=\"{}\">", escape(id)));
        for (column, field) in row.iter().enumerate() {
            add(&mut html, format_args!("<td{}>{}</td>", class(column), escape(field)));
        }
        html.push_str("</tr>\n");
    }
    html + "</tbody></table></div>\n"
}
