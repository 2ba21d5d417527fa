//! `report.html`: one file that makes no request, reads without JavaScript and is interactive with
//! it.

use anyhow::Result;
use serde_json::json;

use super::{
    answer::answer,
    break_even, browser,
    comparison::Comparison,
    derived::Derived,
    figures::{self, escape},
    likeness::{code_line, compression_line},
    limits,
    page::{add, figure, list, page, table_html},
    provenance, reading,
    slos::{slo_table, slos},
    summary,
    table::Form,
    view::{LoadView, views},
};
use crate::{
    merged::Metric,
    result::{BreakEven, Browser, ResultFile, Role, Search},
};

/// The page.
///
/// # Errors
/// When the data of the page cannot be written as JSON.
pub fn html(result: &ResultFile) -> Result<String> {
    let loads = views(result);
    let mut body = String::new();
    add(
        &mut body,
        format_args!("<p class=\"first\"><code>{}</code></p>\n", escape(&provenance::command(result))),
    );
    add(&mut body, format_args!("<h1>{}</h1>\n", escape(&summary::title(result))));
    for warning in summary::warnings(result, &loads) {
        add(&mut body, format_args!("<p class=\"warning\">{}</p>\n", escape(&warning)));
    }
    add(&mut body, format_args!("<p>{}</p>\n", escape(&summary::headline(result))));
    if let Some(search) = &result.search {
        limits_section(&mut body, search);
    }
    if let Some(found) = &result.break_even {
        break_even_section(&mut body, found);
    }
    if let Some(found) = &result.browser {
        browser_section(&mut body, found);
    }
    for load in &loads {
        section(&mut body, load);
    }
    for drawn in figures::against_load(&loads) {
        let (heading, legend) = (escape(&drawn.heading), drawn.legend);
        add(&mut body, format_args!("<h2>{heading}</h2>\n{legend}\n<div class=\"figures\">\n"));
        drawn.figures.iter().for_each(|(caption, svg)| body.push_str(&figure(caption, svg)));
        body.push_str("</div>\n");
    }
    demands_and_tests(&mut body, result, &loads);
    body.push_str(&list("How to read this", &reading::reading(result, &loads)));
    body.push_str(&list("What was measured", &provenance::provenance(result)));
    let reproduce = format!(
        "git checkout {}\ncargo run --release -p compare -- {}",
        result.git.as_ref().map_or("COMMIT", |git| git.commit.as_str()),
        provenance::arguments(result)
    );
    add(&mut body, format_args!("<h2>How to reproduce</h2>\n<pre>{}</pre>\n", escape(&reproduce)));
    add(
        &mut body,
        format_args!("<script type=\"application/json\" id=\"data\">{}</script>\n", data(result)?),
    );
    Ok(page(&summary::title(result), &body))
}

fn demands_and_tests(body: &mut String, result: &ResultFile, loads: &[LoadView<'_>]) {
    let slos = slos(result, loads);
    if let Some(table) = slo_table(&slos) {
        body.push_str("<h2>What was demanded</h2>\n");
        let ids: Vec<&str> = slos.iter().map(|one| one.cell.as_str()).collect();
        body.push_str(&table_html(&table, &ids).replace("**", ""));
    }
    let tested = escape(&provenance::tested(result).replace('`', ""));
    add(body, format_args!("<h2>The instrument's own tests</h2>\n<p>{tested}</p>\n"));
    if let Some(tests) = provenance::selftest_table(result) {
        let ids: Vec<&str> = tests.rows.iter().map(|_| "").collect();
        add(body, format_args!("<div class=\"tests\">{}</div>\n", table_html(&tests, &ids)));
    }
}

/// Capacities, p99 against rate, and the figure of both.
fn limits_section(body: &mut String, search: &Search) {
    let ids: Vec<&str> = search.cells.iter().map(|cell| cell.cell.as_str()).collect();
    body.push_str("<h2>The highest sustainable rate</h2>\n");
    body.push_str(&table_html(&limits::capacities(search), &ids));
    for remark in limits::remarks(search) {
        add(body, format_args!("<p>{}</p>\n", escape(&remark)));
    }
    if let Some((svg, legend)) = figures::search_curve(search) {
        let caption = "p99 against rate (● highest pass, ✕ lowest miss)";
        add(body, format_args!("{legend}<div class=\"figures\">{}</div>\n", figure(caption, &svg)));
    }
    if let Some(curve) = limits::curve(&search.cells) {
        body.push_str("<h3>p99 at shares of the lowest capacity</h3>\n");
        body.push_str(&table_html(&curve, &ids));
    }
}

/// Times against bandwidth, and both tables.
fn break_even_section(body: &mut String, found: &BreakEven) {
    body.push_str("<h2>Break-even bandwidths</h2>\n<ul>\n");
    for finding in break_even::findings(found).into_iter().chain(break_even::remark(found)) {
        add(body, format_args!("<li>{}</li>\n", escape(&finding)));
    }
    body.push_str("</ul>\n");
    if let Some(svg) = figures::time_against_bandwidth(found) {
        body.push_str(&figure("Time against bandwidth (a ring is a break-even, with its interval)", &svg));
    }
    let tables = [break_even::times(found), break_even::ratios(found)];
    for (caption, table) in break_even::captions(found).iter().zip(tables) {
        add(body, format_args!("<h3>{}</h3>\n", escape(caption)));
        let ids: Vec<&str> = table.rows.iter().map(|row| row[1].as_str()).collect();
        body.push_str(&table_html(&table, &ids));
    }
    let left_out = break_even::left_out(found);
    if !left_out.is_empty() {
        body.push_str(&list("Blocks left out", &left_out.join("\n")));
    }
}

/// A table for each part, and its verdicts.
fn browser_section(body: &mut String, found: &Browser) {
    let item = |text: &String| format!("<li>{}</li>\n", escape(text));
    let items: String = browser::findings(found).iter().map(item).collect();
    add(body, format_args!("<ul>\n{items}</ul>\n"));
    for (heading, table) in browser::tables(found) {
        add(body, format_args!("<h2>{}</h2>\n", escape(&heading)));
        let ids: Vec<&str> = table.rows.iter().map(|row| row[0].as_str()).collect();
        body.push_str(&table_html(&table, &ids));
    }
    let left_out = browser::left_out(found);
    if !left_out.is_empty() {
        body.push_str(&list("Blocks left out", &left_out.join("\n")));
    }
}

fn section(body: &mut String, load: &LoadView<'_>) {
    let comparisons = load.comparisons();
    add(body, format_args!("<h2>{}</h2>\n<ul>\n", escape(&load.name())));
    for part in answer(load, &comparisons) {
        add(body, format_args!("<li>{}</li>\n", escape(&part)));
    }
    body.push_str("</ul>\n");
    if let Some(svg) = figures::picture(load) {
        body.push_str(&figure("Bytes and CPU of each cell beside JSON (lower left is better)", &svg));
    }
    body.push_str("<h3>Verdicts</h3>\n<ul>\n");
    for line in verdict_lines(load, &comparisons) {
        add(body, format_args!("<li>{line}</li>\n"));
    }
    body.push_str("</ul>\n");
    let control = summary::control_line(load, &comparisons);
    let families = load.family_line();
    let others = [control, summary::steady_line(load), summary::saturated_line(load)];
    for sentence in families.into_iter().chain(others) {
        add(body, format_args!("<p>{}</p>\n", escape(&sentence)));
    }
    body.push_str("<h3>Ratios to the reference, with 95 % intervals</h3>\n");
    body.push_str(&table_html(&load.verdicts(&comparisons, Form::Full), &load.row_ids(true)));
    for sentence in std::iter::once(code_line(load)).chain(compression_line(load)) {
        add(body, format_args!("<p>{}</p>\n", escape(&sentence)));
    }
    body.push_str("<h3>What it cost</h3>\n");
    body.push_str(&table_html(&load.costs(), &load.row_ids(false)));
    add(body, format_args!("<p>p50, p99, p99.9: {}, {}.</p>\n", load.latency.0, load.latency.1));
    for sentence in [Some(load.warmth_line()), load.starts_line()].into_iter().flatten() {
        add(body, format_args!("<p>{}</p>\n", escape(&sentence)));
    }
    if let Some(sessions) = load.sessions() {
        body.push_str("<h3>Sessions, from the instant each was due by plan</h3>\n");
        body.push_str(&table_html(&sessions, &load.row_ids(false)));
    }
    if let Some((links, note)) = load.links() {
        body.push_str("<h3>Links</h3>\n");
        body.push_str(&table_html(&links, &load.row_ids(false)));
        add(body, format_args!("<p>{}</p>\n", escape(&note)));
    }
    if let Some((apart, ids)) = load.links_apart() {
        body.push_str("<h3>Links apart</h3>\n");
        body.push_str(&table_html(&apart, &ids));
    }
    if let Some(apart) = load.apart() {
        body.push_str("<h3>CPU, handshakes and first deliveries apart</h3>\n");
        body.push_str(&table_html(&apart, &load.row_ids(false)));
    }
    if let Some((checks, ids)) = load.beside_checks() {
        body.push_str("<h3>What a format saves a client beside the client's own checks</h3>\n");
        body.push_str(&table_html(&checks, &ids));
    }
    if let Some((populations, ids)) = load.populations() {
        body.push_str("<h3>Populations</h3>\n");
        body.push_str(&table_html(&populations, &ids));
    }
    if let Some((agents, note)) = load.agents_apart() {
        body.push_str("<h3>Agents that differ from the others</h3>\n");
        body.push_str(&table_html(&agents, &vec![""; agents.rows.len()]));
        add(body, format_args!("<p>{}</p>\n", escape(&note)));
    }
    if let Some(allocations) = load.allocations() {
        body.push_str("<h3>Allocations</h3>\n");
        body.push_str(&table_html(&allocations, &load.row_ids(false)));
    }
    if let Some((instructions, note)) = load.instructions() {
        let ids: Vec<&str> = instructions.rows.iter().map(|row| row[0].as_str()).collect();
        body.push_str("<h3>Instructions</h3>\n");
        body.push_str(&table_html(&instructions, &ids));
        add(body, format_args!("<p>{note}</p>\n"));
    }
    body.push_str(&figures::legend(load));
    body.push_str("<div class=\"figures\">\n");
    let who = [(Metric::RelayCpu, "relay"), (Metric::ClientCpu, "client")];
    for (cpu, who) in who.into_iter().filter(|_| !load.is_over_links()) {
        let caption = format!("Wire bytes against {who} CPU, frontier drawn (lower left is better)");
        body.push_str(&figure(&caption, &figures::pareto(load, cpu)));
    }
    if let Some(svg) = figures::time_series(load) {
        body.push_str(&figure("Every block over time, spans left out shaded", &svg));
    }
    let judged = load.judged().iter().copied();
    for metric in judged.filter(|metric| comparisons.iter().any(|c| c.metric == *metric)) {
        let caption = format!("{} against the reference (grey: ±2 %, thick: a verdict)", metric.short());
        body.push_str(&figure(&caption, &figures::forest(load, &comparisons, metric)));
    }
    over_percentiles_and_time(body, load);
    body.push_str("</div>\n");
}

/// Latency and throughput by share and second by second, a figure for each packing.
pub(crate) fn over_percentiles_and_time(body: &mut String, load: &LoadView<'_>) {
    type Draw = fn(&LoadView<'_>, &str) -> Option<String>;
    let all: [(&str, &str, Draw); 4] = [
        ("Latency by percentile", "", figures::percentiles),
        ("Latency p50 second by second", ", median over rounds", figures::latency_course),
        ("Envelope throughput by share of intervals", "", figures::throughput),
        ("Envelope throughput second by second", ", median over rounds", figures::course),
    ];
    for packing in figures::packings(load) {
        for (caption, of, draw) in all {
            let Some(svg) = draw(load, &packing) else { continue };
            // One run has no rounds, and nothing to tell apart.
            let caption = match load.cells.len() {
                1 => caption.to_owned(),
                _ => format!("{caption}{of}, {packing}"),
            };
            body.push_str(&figure(&caption, &svg));
        }
    }
}

/// A line for each format: its cell without compression, or the first it has.
fn verdict_lines(load: &LoadView<'_>, comparisons: &[Comparison]) -> Vec<String> {
    let mut seen = Vec::new();
    let mut lines = Vec::new();
    for view in load.cells.iter().filter(|view| view.cell.role == Role::Cell) {
        let of_cell: Vec<String> = (comparisons.iter().filter(|c| c.cell == view.cell.id))
            .map(|c| {
                format!(
                    "{} <span class=\"{}\">{}</span>",
                    c.metric.short(),
                    c.verdict,
                    escape(&c.to_string())
                )
            })
            .collect();
        if !seen.contains(&&view.cell.cell.format) && !of_cell.is_empty() {
            seen.push(&view.cell.cell.format);
            let reference = load.reference(view).map_or("", |reference| reference.cell.id.as_str());
            let id = &view.cell.id;
            lines.push(format!(
                "<b>{}</b> against {}: {}",
                escape(id),
                escape(reference),
                of_cell.join(", ")
            ));
        }
    }
    lines
}

/// Every number of the page, for programs.
fn data(result: &ResultFile) -> Result<String> {
    let data = json!({
        "git": result.git, "host": result.host, "config": result.config, "corpus": result.corpus,
        "derived": Derived::of(result),
    });
    // Inside a script element only "<" could begin something else; it stands in strings alone.
    Ok(serde_json::to_string(&data)?.replace('<', "\\u003c"))
}
