//! The value of the saturation factor.

use measure::NOT_SATURATED;

/// The process that a run brings to its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saturate {
    /// The relay: readers decode every 64th delivery and count the others.
    Relay,
    /// The clients: readers decode every delivery.
    Clients,
}

impl Saturate {
    pub(crate) const NAMES: [&str; 3] = [NOT_SATURATED, "relay", "clients"];

    /// Its name.
    pub fn name(self) -> &'static str {
        Saturate::NAMES[self as usize + 1]
    }

    pub(crate) fn read(text: &str) -> Result<Option<Saturate>, String> {
        [None, Some(Saturate::Relay), Some(Saturate::Clients)]
            .into_iter()
            .zip(Saturate::NAMES)
            .find_map(|(saturate, name)| (name == text).then_some(saturate))
            .ok_or_else(|| format!("expected {}", Saturate::NAMES.join(", ")))
    }
}
