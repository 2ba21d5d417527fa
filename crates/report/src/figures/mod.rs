//! Bytes against CPU as a picture that stands by itself: static SVG, each mark with its numbers as a
//! title. Ink and paper are classes, which follow light and dark.

mod labels;
mod picture;
mod svg;

pub(super) use picture::picture;
pub(super) use svg::escape;
