//! What came out, as JSON and as tables.

use std::{env, fmt::Write as _, fs};

use serde::Serialize;

use crate::{
    client::BATCH,
    contenders::{Contender, Group, OURS},
};

/// One round of a contender.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Measured {
    pub messages_per_s: f64,
    /// CPU time of the server.
    pub cpu_us_per_message: f64,
    /// Bytes of echoes, frame headers included.
    pub wire_bytes_per_message: f64,
}

#[derive(Debug, Serialize)]
pub struct Row {
    pub contender: Contender,
    pub rounds: Vec<Measured>,
    pub memory_bytes_per_connection: Option<u64>,
    /// Why there are no figures, or no more.
    pub failed: Option<String>,
}

impl Row {
    pub fn new(contender: Contender) -> Row {
        Row { contender, rounds: Vec::new(), memory_bytes_per_connection: None, failed: None }
    }
}

#[derive(Debug, Serialize)]
pub struct Report {
    /// Arguments of `run`.
    arguments: Vec<String>,
    processor: String,
    cores: usize,
    load_before: String,
    load_after: String,
    messages: usize,
    bytes_per_message: f64,
    batch: usize,
    connections: u16,
    pub rows: Vec<Row>,
}

impl Report {
    pub fn new(messages: &[String], connections: u16) -> Report {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let bytes: usize = messages.iter().map(String::len).sum();
        Report {
            arguments: given(),
            processor: model.map_or("unknown processor", |(_, model)| model).to_owned(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            load_before: load(),
            load_after: String::new(),
            messages: messages.len(),
            bytes_per_message: bytes as f64 / messages.len() as f64,
            batch: BATCH,
            connections,
            rows: Vec::new(),
        }
    }

    /// Notes how busy the machine was until the end.
    pub fn end(&mut self) {
        self.load_after = load();
    }

    pub fn markdown(&self) -> String {
        let rounds = self.rows.iter().map(|row| row.rounds.len()).max().unwrap_or(0);
        let mut out = format!(
            "<!-- crates/tungstenite-deflate/compare-crates/run {} -->\n\n# Beside other crates\n\n\
             {} with {} cores, load average {} before and {} after.\n\
             {} interleaved rounds; in each {} connections play {} relay's EVENT messages of {:.0} bytes\n\
             on average, {} at a time. Medians, in brackets the quartiles; × is to {OURS}\n\
             with its default buffer in the same round.\n",
            self.arguments.join(" "),
            self.processor,
            self.cores,
            self.load_before,
            self.load_after,
            rounds,
            self.connections,
            self.messages,
            self.bytes_per_message,
            self.batch,
        );
        let mut groups: Vec<_> = self.rows.iter().map(|row| row.contender.group).collect();
        groups.dedup();
        groups.into_iter().for_each(|group| self.push_table(group, &mut out));
        out
    }

    fn push_table(&self, group: Group, out: &mut String) {
        let rows: Vec<_> = self.rows.iter().filter(|row| row.contender.group == group).collect();
        let ours = rows.iter().find(|row| row.contender.name == OURS);
        let ours = ours.map(|row| row.rounds.as_slice()).unwrap_or_default();
        *out += &format!(
            "\n**{}**\n\n| crate | CPU µs/message | CPU × | messages/s | messages/s × | echo, wire B | memory/connection | |\n\
             | --- | --: | --: | --: | --: | --: | --: | --- |\n",
            group.title()
        );
        for Row { contender, rounds, memory_bytes_per_connection, failed } in rows {
            let cell = |get: fn(&Measured) -> f64, digits: usize| {
                with_quartiles(rounds.iter().map(get).collect(), digits)
            };
            let ratio = |get: fn(&Measured) -> f64| {
                with_quartiles(rounds.iter().zip(ours).map(|(row, ours)| get(row) / get(ours)).collect(), 2)
            };
            let memory = memory_bytes_per_connection.map(|bytes| format!("{:.1} KiB", bytes as f64 / 1024.0));
            let remark = failed.as_ref().map_or(contender.remark.clone(), |why| format!("failed: {why}"));
            writeln!(
                out,
                "| {} {} | {} | {} | {} | {} | {} | {} | {remark} |",
                contender.name,
                contender.version,
                cell(|round| round.cpu_us_per_message, 1),
                ratio(|round| round.cpu_us_per_message),
                cell(|round| round.messages_per_s, 0),
                ratio(|round| round.messages_per_s),
                median(rounds.iter().map(|round| round.wire_bytes_per_message).collect())
                    .map_or(String::new(), |bytes| format!("{bytes:.0}")),
                memory.unwrap_or_default(),
            )
            .expect("writing to a String");
        }
    }
}

/// The arguments that a person gave to `run`, without those that only name files.
fn given() -> Vec<String> {
    let mut arguments = Vec::new();
    let mut all = env::args().skip(1);
    while let Some(argument) = all.next() {
        if ["--events", "--also", "--markdown", "--json"].contains(&argument.as_str()) {
            all.next();
        } else {
            arguments.push(argument);
        }
    }
    arguments
}

fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or("unknown").to_owned()
}

fn median(values: Vec<f64>) -> Option<f64> {
    quantile(values, 0.5)
}

fn with_quartiles(values: Vec<f64>, digits: usize) -> String {
    let at = |share| quantile(values.clone(), share);
    let (Some(low), Some(middle), Some(high)) = (at(0.25), at(0.5), at(0.75)) else { return String::new() };
    format!("{middle:.digits$} [{low:.digits$}–{high:.digits$}]")
}

/// The value below which this share of the others lies, between two where it falls there.
fn quantile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let place = share * values.len().checked_sub(1)? as f64;
    let (low, high) = (values[place.floor() as usize], values[place.ceil() as usize]);
    Some(low + (high - low) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_values() {
        assert_eq!(quantile(vec![], 0.5), None);
        assert_eq!(quantile(vec![4.0], 0.25), Some(4.0));
        assert_eq!(quantile(vec![3.0, 1.0], 0.5), Some(2.0));
        assert_eq!(quantile(vec![5.0, 1.0, 2.0, 3.0, 4.0], 0.25), Some(2.0));
    }
}
