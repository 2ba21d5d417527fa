//! The report's figures: static SVG that reads without JavaScript, each mark with its numbers as a
//! title.
//!
//! Every figure is as wide as a phone's screen, so that a page lays out one or several beside each
//! other and no text shrinks. Colours are the constants below; the page's style sheet replaces
//! those of ink and paper in dark mode.

mod bandwidths;
mod cells;
mod costs;
mod draw;
mod picture;
mod rates;
mod svg;
mod throughput;
mod time;

pub(super) use bandwidths::time_against_bandwidth;
pub(super) use cells::{legend, packings};
pub(super) use costs::{forest, pareto};
pub(super) use draw::escape;
pub(super) use picture::picture;
pub(super) use rates::{p99_against_rate, search_curve};
pub(super) use throughput::{course, throughput};
pub(super) use time::{percentiles, time_series};
