//! The report's figures: static SVG that reads without JavaScript, each mark with its numbers as a
//! title.
//!
//! Figures of a page are as wide as a phone's screen, so that a page lays out one or several beside
//! each other and no text shrinks; pictures stand by themselves, too. Ink and paper are classes,
//! which follow light and dark.

mod bars;
mod cells;
mod costs;
mod curves;
mod labels;
mod picture;
mod rates;
mod svg;
mod throughput;
mod time;

pub use bars::{Bar, Bars, bars};
pub(super) use cells::{legend, packings};
pub(super) use costs::forest;
pub(super) use curves::against_load;
pub(super) use picture::picture;
pub(super) use rates::search_curve;
pub(super) use svg::{STYLE, escape};
pub(super) use throughput::{course, latency_course, percentiles, throughput};
pub(super) use time::time_series;
