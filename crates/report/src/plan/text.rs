//! A plan for people: its tables, and the assumptions below them.

use std::collections::BTreeMap;

use super::{Demand, MOST_TIMES, Needs, Plan, PriceBook, Provider, Scale};
use crate::{
    number,
    pages::text::fold_within,
    result::ResultFile,
    tables::table::{Table, or_nothing},
};

/// Columns of sentences where no terminal says.
const WIDTH: usize = 120;

impl Plan {
    /// Tables of every load and size, for a terminal of so many columns.
    pub fn terminal(&self, room: Option<usize>) -> String {
        let mut text = String::new();
        let mut load = None;
        for scale in &self.scales {
            if load != Some(&scale.load) {
                text += &format!("{}\n\n", scale.load);
                load = Some(&scale.load);
            }
            text += &format!("{}\n", scale.heading());
            text += &scale.table(&self.prices).text(room);
            if let Some(line) = scale.extrapolated() {
                fold_within(&mut text, &line, room.unwrap_or(WIDTH));
            }
            text.push('\n');
        }
        text += "Assumptions\n";
        for assumption in &self.assumptions {
            fold_within(&mut text, &format!("- {assumption}"), room.unwrap_or(WIDTH));
        }
        text
    }
}

impl Scale {
    fn heading(&self) -> String {
        let count = |value: f64| number::grouped(&format!("{value:.0}"));
        format!(
            "{}: {} connections, {} deliveries/s, {} publishes/s",
            self.name,
            count(self.connections),
            number::scaled(self.deliveries_per_s),
            number::scaled(self.publishes_per_s)
        )
    }

    fn table(&self, prices: &PriceBook) -> Table {
        let amounts = prices.providers.iter().map(|one| format!("{} {}/month", one.name, prices.currency));
        let headings: Vec<String> = ["cell", "binds"].map(str::to_owned).into_iter().chain(amounts).collect();
        let more = ["cores", "memory GiB", "Mbit/s out", "TB/month out", "Mbit/s in"];
        let headings = headings.into_iter().chain(more.map(str::to_owned)).collect();
        Table { names: 2, headings, rows: self.cells.iter().map(Needs::row).collect() }
    }

    /// What marked cells are beyond, and how far.
    fn extrapolated(&self) -> Option<String> {
        // Of each rate what is furthest beyond in any cell; what was not measured is beyond all.
        let mut all: BTreeMap<&str, f64> = BTreeMap::new();
        for beyond in self.cells.iter().flat_map(|needs| &needs.extrapolated) {
            let furthest = all.entry(beyond.what).or_default();
            *furthest = furthest.max(beyond.times.unwrap_or(f64::INFINITY));
        }
        let line = |(what, times): (&&str, &f64)| match times.is_finite() {
            true => format!("{what} {} times", number::three(*times)),
            false => format!("{what} not measured"),
        };
        let all: Vec<String> = all.iter().map(line).collect();
        (!all.is_empty()).then(|| format!("* extrapolated beyond what was measured: {}.", all.join(", ")))
    }
}

impl Needs {
    fn row(&self) -> Vec<String> {
        let binding = |cost: &super::Cost| or_nothing(cost.binding.map(|binding| binding.to_string()));
        let mut binding: Vec<String> = self.costs.iter().map(binding).collect();
        binding.dedup();
        // What most of an amount is for.
        let amount = |cost: &super::Cost| {
            let share = cost.traffic_per_month / cost.per_month().max(f64::MIN_POSITIVE);
            let mostly = if share > 0.5 { " (traffic)" } else { "" };
            number::scaled(cost.per_month()) + mostly
        };
        let gib = self.memory_bytes.map(|bytes| number::three(bytes / f64::from(1 << 30)));
        let needs = [
            or_nothing(self.cores.map(number::three)),
            or_nothing(gib),
            number::three(self.out_mbit_per_s),
            number::three(self.out_tb_per_month),
            number::three(self.in_mbit_per_s),
        ];
        let mark = if self.extrapolated.is_empty() { "" } else { " *" };
        let names = [format!("{}{mark}", self.cell), binding.join(" / ")].into_iter();
        names.chain(self.costs.iter().map(amount)).chain(needs).collect()
    }
}

/// Every assumption of a plan, a sentence or two each.
pub(super) fn assumptions(result: &ResultFile, demand: &Demand, prices: &PriceBook) -> Vec<String> {
    let cpu = result.host.cpu.as_deref().unwrap_or("an unknown processor");
    let cores = match demand.relay_cores {
        Some(used) => format!(
            "Cores: your {} × the relay CPU of a delivery in the cell ÷ in {}. The ratio is that of the result's relay on \
             {cpu}. Work of yours that no format changes counts as if it changed.",
            number::three(used),
            demand.speaks.as_deref().unwrap_or("JSON without compression")
        ),
        None => format!(
            "Cores: deliveries × the relay CPU of one, publishes included, of the result's relay on {cpu}, which is not \
             yours. --relay-cores-used N takes yours."
        ),
    };
    let mut all = vec![
        demand.source.clone(),
        "At 10^5 and 10^6 connections all rates grow as connections do.".to_owned(),
        cores,
        "A vCPU counts as one such core. Cores are busy ones: nothing is kept free, and peaks are not means.".to_owned(),
        "Memory: the relay before its first connection, and for each connection what it grew by, or its compressors where \
         these are more. Stored events and caches are not in it."
            .to_owned(),
        "Traffic: bytes of WebSocket as measured; TLS 1.3 adds 22 bytes for each 16 KiB of a message, TCP and IPv4 52 for \
         each 1,448 bytes, and 52 for each second packet the other way. Every message is sent by itself, of mean size."
            .to_owned(),
        format!(
            "A month has {:.0} hours. A TB is 10^12 bytes. Binds: the resource that takes most machines; an amount is for \
             whole machines and outgoing traffic. Extrapolated: beyond {MOST_TIMES} times what the result measured.",
            super::HOURS_OF_MONTH
        ),
        format!("Prices of {} in {}, lists without tax, of machines and traffic alone.", prices.date, prices.currency),
    ];
    all.extend(prices.providers.iter().map(|provider| provider_line(provider, &prices.currency)));
    if let Some(why) = result.incomplete() {
        all.push(format!("The result is incomplete: {why}."));
    }
    all
}

fn provider_line(provider: &Provider, currency: &str) -> String {
    let Provider { name, machine, vcpus, memory_gib, per_month, .. } = provider;
    let network = provider
        .network_mbit_per_s
        .map_or_else(|| "network unknown".to_owned(), |mbit| format!("{mbit} Mbit/s to the internet"));
    let included = match (provider.included_tb_per_machine, provider.free_tb) {
        (0.0, free) => format!("{free} TB a month free, then by the GB"),
        (included, _) => format!("{included} TB a month included"),
    };
    format!(
        "{name} {machine}: {per_month} {currency}, {vcpus} vCPUs, {memory_gib} GiB, {network}; {included}. Sources: {}.",
        provider.sources.join("; ")
    )
}
