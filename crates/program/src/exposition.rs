//! Metrics as text that Prometheus reads.

use std::fmt::Display;

/// Metrics in Prometheus's text format 0.0.4.
#[derive(Debug)]
pub struct Exposition {
    /// Stands before each name.
    pub prefix: &'static str,
    /// What was added.
    pub text: String,
}

impl Exposition {
    /// The media type of this text.
    pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// Adds metrics of one name without prefix and `_total`, of a `counter` or a `gauge`: values behind
    /// their labels, which may be none.
    pub fn add<V: Display>(
        &mut self,
        (name, kind, help): (&str, &str, &str),
        samples: impl IntoIterator<Item = (String, V)>,
    ) {
        let total = if kind == "counter" { "_total" } else { "" };
        let name = format!("{}_{name}{total}", self.prefix);
        self.text += &format!("# HELP {name} {help}.\n# TYPE {name} {kind}\n");
        for (labels, value) in samples {
            self.text += &format!("{name}{labels} {value}\n");
        }
    }
}
