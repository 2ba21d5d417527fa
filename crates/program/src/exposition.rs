//! Metrics as text that Prometheus reads.

use std::fmt::Display;

/// Metrics in OpenMetrics 1.0.0, or in Prometheus's text format 0.0.4, where a counter's comments name
/// it as its samples do, and which has no units and no end.
#[derive(Debug)]
pub struct Exposition {
    prefix: &'static str,
    open_metrics: bool,
    text: String,
}

impl Exposition {
    /// An empty one; `prefix` stands before each name.
    pub fn new(prefix: &'static str, open_metrics: bool) -> Exposition {
        Exposition { prefix, open_metrics, text: String::new() }
    }

    /// What was added, as one text.
    pub fn whole(self) -> String {
        self.text + if self.open_metrics { "# EOF\n" } else { "" }
    }

    /// Adds metrics of one name without prefix and `_total`, of a `counter` or a `gauge`: values behind
    /// their labels, which may be none. A name that ends in `_seconds` has this unit.
    pub fn add<V: Display>(
        &mut self,
        (name, kind, help): (&str, &str, &str),
        samples: impl IntoIterator<Item = (String, V)>,
    ) {
        let total = if kind == "counter" { "_total" } else { "" };
        let name = format!("{}_{name}", self.prefix);
        let family = format!("{name}{}", if self.open_metrics { "" } else { total });
        self.text += &format!("# HELP {family} {help}.\n# TYPE {family} {kind}\n");
        if self.open_metrics && name.ends_with("_seconds") {
            self.text += &format!("# UNIT {family} seconds\n");
        }
        for (labels, value) in samples {
            self.text += &format!("{name}{total}{labels} {value}\n");
        }
    }
}
