//! What may be said of cells beside each other.

pub(crate) mod answer;
pub(crate) mod comparison;
pub(crate) mod dispersion;
pub(crate) mod family;
pub(crate) mod gate;
pub(crate) mod likeness;
mod sums;
