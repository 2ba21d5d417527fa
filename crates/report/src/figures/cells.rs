//! How a cell looks in every figure: its format decides the colour, its packing the shape.

use std::fmt::Write as _;

use cell::Factor;

use super::svg::{PALETTE, escape};
use crate::view::{CellView, LoadView};

/// The formats of a load in order; a format's place decides its colour.
pub(super) fn formats<'a>(load: &LoadView<'a>) -> Vec<&'a str> {
    distinct(load, |view| view.cell.cell.format.as_str())
}

/// How messages of a load are packed, in order: the compressions, each with and without batches
/// where both were measured. The place decides a cell's shape.
pub(crate) fn packings(load: &LoadView<'_>) -> Vec<String> {
    distinct(load, |view| packing(load, view))
}

pub(super) fn packing(load: &LoadView<'_>, view: &CellView<'_>) -> String {
    let cell = &view.cell.cell;
    match cell.batching.as_str() {
        batching if batching != "none" && load.varies(Factor::Batching) => {
            format!("{}, batches {batching}", cell.compression)
        }
        _ => cell.compression.clone(),
    }
}

pub(super) fn place_of(load: &LoadView<'_>, view: &CellView<'_>) -> usize {
    let packing = packing(load, view);
    packings(load).iter().position(|one| *one == packing).unwrap_or(0)
}

pub(super) fn distinct<'a, T: PartialEq>(load: &LoadView<'a>, of: impl Fn(&CellView<'a>) -> T) -> Vec<T> {
    let mut names = Vec::new();
    for name in load.cells.iter().map(of) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

pub(super) fn colour(load: &LoadView<'_>, format: &str) -> &'static str {
    let place = formats(load).iter().position(|name| *name == format).unwrap_or(0);
    PALETTE[place % PALETTE.len()]
}

/// A colour and what it stands for, as HTML.
pub(super) fn swatch(colour: &str, name: &str) -> String {
    format!("<span><b style=\"color:{colour}\">■</b> {}</span> ", escape(name))
}

/// The meaning of colours and shapes, as HTML.
pub(crate) fn legend(load: &LoadView<'_>) -> String {
    let mut html = "<p class=\"legend\">".to_owned();
    for format in formats(load) {
        html += &swatch(colour(load, format), format);
    }
    for (place, packing) in packings(load).into_iter().enumerate() {
        let shape = ["●", "▲", "✕", "＋"][place % 4];
        write!(html, "<span>{shape} {}</span> ", escape(&packing))
            .expect("writing to a string does not fail");
    }
    html + "</p>"
}
