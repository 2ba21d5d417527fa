//! A page: one file that makes no request, reads without JavaScript and is interactive with it.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use sha2::{Digest, Sha256};

use crate::{
    figures::{self, escape},
    pages::part::{Part, What},
    tables::table::Table,
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

/// The command, the title and the warnings of a page.
pub(crate) fn first(command: &str, title: &str, warnings: &[String]) -> String {
    let mut html =
        format!("<p class=\"first\"><code>{}</code></p>\n<h1>{}</h1>\n", escape(command), escape(title));
    for warning in warnings {
        html += &format!("<p class=\"warning\">{}</p>\n", escape(warning));
    }
    html
}

/// Parts of a report as HTML.
pub(crate) fn drawn<'a>(parts: impl IntoIterator<Item = &'a Part>) -> String {
    parts.into_iter().map(one).collect()
}

fn one(part: &Part) -> String {
    match &part.what {
        What::Heading(level, heading) => format!("<h{level}>{}</h{level}>\n", plain(heading)),
        What::Sentence(sentence) => format!("<p>{}</p>\n", plain(sentence)),
        What::List(items) => {
            let items: String = items.iter().map(|item| format!("<li>{}</li>\n", plain(item))).collect();
            format!("<ul>\n{items}</ul>\n")
        }
        What::Table { table, ids } => table_html(table, ids),
        What::Drawn(html) => html.clone(),
    }
}

/// Text without the marks of Markdown.
fn plain(text: &str) -> String {
    escape(&text.replace('`', "").replace("**", ""))
}

/// A table; `ids` name the cells behind its rows, by which rows and marks are shown together.
fn table_html(table: &Table, ids: &[String]) -> String {
    let class = |column: usize| if column < table.names { " class=\"name\"" } else { "" };
    let of_words = if table.names == table.headings.len() { " words" } else { "" };
    let heading =
        |(column, heading): (usize, &String)| format!("<th{}>{}</th>", class(column), plain(heading));
    let headings: String = table.headings.iter().enumerate().map(heading).collect();
    let mut html =
        format!("<div class=\"scroll{of_words}\"><table>\n<thead><tr>{headings}</tr></thead>\n<tbody>\n");
    let mut ids = ids.iter().map(String::as_str);
    for row in &table.rows {
        let field = |(column, field): (usize, &String)| format!("<td{}>{}</td>", class(column), plain(field));
        let fields: String = row.iter().enumerate().map(field).collect();
        html += &format!("<tr data-cell=\"{}\">{fields}</tr>\n", escape(ids.next().unwrap_or_default()));
    }
    html + "</tbody></table></div>\n"
}
