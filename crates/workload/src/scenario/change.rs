//! Changes to a scenario from the command line: `--set`, `--seconds`, `--rate`, `--load`.

use anyhow::{Context, bail, ensure};
use cell::Cell;
use toml::{Table, Value};

use super::{Arrival, LiveFilter, Replay, Scenario};

/// Applies `key=value` to the text's tables. The key is a path of names with dots; a member of a
/// list is named by its number from 0 or by its `name`, and the number may be left out where the
/// list has one member.
///
/// # Errors
/// Names the part of the key that does not exist, and lists the keys beside it.
pub(super) fn set(scenario: &mut Table, assignment: &str) -> anyhow::Result<()> {
    let (path, value) = assignment
        .split_once('=')
        .with_context(|| format!("--set {assignment}: expected key=value, such as seconds=5"))?;
    let keys: Vec<&str> = path.trim().split('.').collect();
    let (last, parents) = keys.split_last().context("a split gives one part at least")?;
    let mut table = scenario;
    let mut parents = parents.iter().peekable();
    while let Some(key) = parents.next() {
        let names: Vec<String> = table.keys().cloned().collect();
        let Some(child) = table.get_mut(*key) else {
            bail!("--set {path}: there is no {key:?} here; there are: {}", names.join(" "));
        };
        table = match child {
            Value::Table(table) => table,
            Value::Array(list) => {
                let chosen = parents.peek().and_then(|next| member(list, next));
                if chosen.is_some() {
                    parents.next();
                }
                let count = list.len();
                let index = match chosen {
                    Some(index) => index,
                    None if count == 1 => 0,
                    None => bail!(
                        "--set {path}: {key} has {count} members; say which, as in {key}.0 or by its name"
                    ),
                };
                list[index].as_table_mut().with_context(|| format!("--set {path}: {key} holds no tables"))?
            }
            _ => bail!("--set {path}: {key} is a value and holds no other"),
        };
    }
    table.insert((*last).to_owned(), value_of(value.trim()));
    Ok(())
}

fn member(list: &[Value], key: &str) -> Option<usize> {
    let by_number = key.parse().ok().filter(|index| *index < list.len());
    by_number.or_else(|| list.iter().position(|v| v.get("name").and_then(Value::as_str) == Some(key)))
}

/// Parses a TOML value; text that is none becomes a string.
fn value_of(text: &str) -> Value {
    format!("value = {text}")
        .parse::<Table>()
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

impl Scenario {
    /// Sets the seconds of the run. Phases, spreads, stays and closed rounds change in proportion;
    /// rates and the period of bursts stay.
    ///
    /// # Errors
    /// When `seconds` is not above 0 and at most 3600.
    pub fn set_seconds(&mut self, seconds: f64) -> anyhow::Result<()> {
        ensure!(seconds > 0.0 && seconds <= 3_600.0, "--seconds must be above 0 and at most 3600");
        if let Some(replay) = &mut self.replay {
            replay.cut_s = Some(seconds);
            self.fit();
            return Ok(());
        }
        let factor = seconds / self.seconds;
        self.seconds = seconds;
        for phase in &mut self.phase {
            phase.seconds *= factor;
        }
        for (_, arrival, _) in self.arriving() {
            match arrival {
                Arrival::Closed { rounds, .. } => *rounds = scaled(*rounds as f64, factor),
                Arrival::Spread { over_ms } => *over_ms = scaled(*over_ms as f64, factor) as u64,
                Arrival::Burst { .. } | Arrival::Constant { .. } | Arrival::Poisson { .. } => {}
            }
        }
        for stay_ms in self.request.iter_mut().filter_map(|request| request.stay_ms.as_mut()) {
            *stay_ms = scaled(*stay_ms as f64, factor) as u64;
        }
        Ok(())
    }

    /// Sets the rate of every publishing population that has one.
    ///
    /// # Errors
    /// When the rate is not above 0, or no population publishes at a rate.
    pub fn set_publish_rate(&mut self, rate: f64) -> anyhow::Result<()> {
        ensure!(rate > 0.0 && rate.is_finite(), "a rate must be above 0");
        let mut found = false;
        for publish in &mut self.publish {
            if let Arrival::Constant { rate_per_s } | Arrival::Poisson { rate_per_s } = &mut publish.arrival {
                *rate_per_s = rate;
                found = true;
            }
        }
        ensure!(found, "scenario {} publishes nothing at a rate", self.name);
        Ok(())
    }

    /// Sets what a cell says of the scenario: the rate, and the load after it.
    ///
    /// # Errors
    /// As [`Scenario::set_publish_rate`].
    pub fn set_cell(&mut self, cell: &Cell) -> anyhow::Result<()> {
        if let Some(rate) = cell.rate_per_s {
            self.set_publish_rate(rate).context("--rate")?;
        }
        self.set_load(cell.load);
        cell.saturate.map_or(Ok(()), |whom| self.set_saturated(whom, cell))
    }

    /// Sets the seconds of a recording: its own at its load, or fewer, and a day at most.
    pub(super) fn fit(&mut self) {
        /// A recording of one instant takes some time, too.
        const LEAST_S: f64 = 0.001;
        const MOST_S: f64 = 86_400.0;
        if let Some(Replay { recorded, cut_s }) = &self.replay {
            // Just beyond the last line, which is played, too.
            let lasts_s = recorded.length.as_secs_f64() / self.load + LEAST_S;
            self.seconds = lasts_s.min(cut_s.unwrap_or(MOST_S));
        }
    }

    /// Multiplies clients and rates, so that each client keeps its pace. Subscribers that take from
    /// anyone keep their number: each then receives so many times as much. A recording keeps its
    /// clients and is played so many times as fast.
    pub fn set_load(&mut self, load: f64) {
        self.load *= load;
        self.fit();
        for (clients, arrival, _) in self.arriving() {
            *clients = scaled(*clients as f64, load);
            // Clients share a rate.
            if let Arrival::Constant { rate_per_s } | Arrival::Poisson { rate_per_s } = arrival {
                *rate_per_s *= load;
            }
        }
        for subscribe in &mut self.subscribe {
            if !subscribe.filter.iter().any(LiveFilter::takes_from_anyone) {
                subscribe.connections = scaled(subscribe.connections as f64, load);
            }
        }
    }
}

/// Multiplies and rounds, to 1 at least.
pub(crate) fn scaled(value: f64, factor: f64) -> usize {
    measure::whole((value * factor).round().max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "seconds = 1\n[[publish]]\nname = \"a\"\nconnections = 1\n[[publish]]\nname = \"b\"\n\
                        connections = 2\n[[request]]\nconnections = 3\narrival = { shape = \"burst\", period_ms = 1 }";

    fn with(assignment: &str) -> anyhow::Result<Table> {
        let mut table = TEXT.parse().unwrap();
        set(&mut table, assignment).map(|()| table)
    }

    #[test]
    fn a_member_is_named_by_number_by_name_or_not_at_all_when_it_is_alone() {
        assert_eq!(with("seconds = 2.5").unwrap()["seconds"], Value::Float(2.5));
        assert_eq!(with("publish.1.connections=7").unwrap()["publish"][1]["connections"], Value::Integer(7));
        assert_eq!(with("publish.b.connections=7").unwrap()["publish"][1]["connections"], Value::Integer(7));
        let burst = with("request.arrival.period_ms=9").unwrap();
        assert_eq!(burst["request"][0]["arrival"]["period_ms"], Value::Integer(9));
        let text = with("request.arrival={ shape = \"closed\", rounds = 2 }").unwrap();
        assert_eq!(text["request"][0]["arrival"]["rounds"], Value::Integer(2));
        assert_eq!(with("question=Why?").unwrap()["question"], Value::String("Why?".to_owned()));
    }

    #[test]
    fn a_key_that_leads_nowhere_is_answered_with_what_is_there() {
        for (assignment, expected) in [
            ("seconds", "expected key=value"),
            ("publish.connections=1", "publish has 2 members; say which, as in publish.0 or by its name"),
            ("nothing.here=1", "there is no \"nothing\" here; there are: publish request seconds"),
            ("seconds.x=1", "seconds is a value"),
        ] {
            let text = with(assignment).unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
        }
    }
}
