//! From a result and the rates of an operator's relay to what each cell needs: memory, cores, traffic
//! and money.

mod prices;
mod text;

use anyhow::{Context, Result, bail, ensure};
use derive_more::Display;
use measure::NO_LINK;
use serde::Serialize;

pub use prices::{PriceBook, Provider, Tier};

use crate::{
    metric::Metric,
    result::{Block, ResultFile, Role},
    statistics::stats,
    view::{CellView, LoadView, views},
};

/// Connections that are planned for beside today's.
const SCALES: [(&str, f64); 2] = [("At 10^5 connections", 1e5), ("At 10^6 connections", 1e6)];

/// Beyond so many times what was measured, a figure is called extrapolated.
const MOST_TIMES: f64 = 2.0;

/// Hours of a month, as in the price book's sources.
const HOURS_OF_MONTH: f64 = 730.0;

/// Bytes that TLS 1.3 adds to a record of 16 KiB at most: header, content type and tag (RFC 8446 §5).
const SEAL: f64 = 22.0;
const MOST_SEALED: f64 = 16_384.0;

/// Bytes of TCP payload in a full packet of Ethernet, and of headers in each: 20 of IPv4, 20 of TCP, 12
/// of its timestamps (RFC 791, RFC 9293, RFC 7323).
const SEGMENT: f64 = 1_448.0;
const HEADERS: f64 = 52.0;

/// Acknowledgements of each packet (RFC 9293 §3.8.6.3).
const ACKS: f64 = 0.5;

/// Rates of an operator's relay.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Demand {
    /// Connections open at one time.
    pub connections: f64,
    /// Events sent to subscribers, stored and live.
    pub deliveries_per_s: f64,
    /// Events received.
    pub publishes_per_s: f64,
    /// Cores that the relay keeps busy, where that is known.
    pub relay_cores: Option<f64>,
    /// The cell that the relay speaks, by its name; JSON without compression where that is not said.
    pub speaks: Option<String>,
    /// Where the rates are from, in a sentence.
    pub source: String,
}

/// What binds a machine.
#[derive(Debug, Display, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[display(rename_all = "snake_case")]
pub enum Resource {
    /// CPU time.
    Cores,
    /// Resident memory.
    Memory,
    /// Bits to the internet.
    Network,
}

/// Needs of every cell of a result, with the assumptions that they follow from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// The command that made the result.
    pub command: Vec<String>,
    /// Today's rates.
    pub demand: Demand,
    /// Sentences without which no figure holds.
    pub assumptions: Vec<String>,
    /// The prices of all amounts.
    pub prices: PriceBook,
    /// Each load of the result, today and larger.
    pub scales: Vec<Scale>,
}

/// The cells of one load of the result at one size of the relay.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scale {
    /// The load whose costs are taken.
    pub load: String,
    /// `Today`, or the connections.
    pub name: String,
    /// Connections open at one time.
    pub connections: f64,
    /// Deliveries.
    pub deliveries_per_s: f64,
    /// Publishes.
    pub publishes_per_s: f64,
    /// One a cell, in the order of every table.
    pub cells: Vec<Needs>,
}

/// What one cell needs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Needs {
    /// The cell's name.
    pub cell: String,
    /// Cores that are busy; absent where no CPU time is evidence.
    pub cores: Option<f64>,
    /// Memory of relay and connections; absent where it was not read.
    pub memory_bytes: Option<f64>,
    /// Bits to clients, headers of TCP and TLS included.
    pub out_mbit_per_s: f64,
    /// Bits from clients.
    pub in_mbit_per_s: f64,
    /// Bytes to clients.
    pub out_tb_per_month: f64,
    /// What goes beyond twice what was measured; empty where nothing does.
    pub extrapolated: Vec<Beyond>,
    /// One a provider.
    pub costs: Vec<Cost>,
}

/// A rate beyond twice what was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Beyond {
    /// The rate.
    pub what: &'static str,
    /// How many times the measured one it is; absent where none was measured.
    pub times: Option<f64>,
}

/// Machines of one provider for one cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// The provider's name.
    pub provider: String,
    /// The resource that takes most machines, where any is known.
    pub binding: Option<Resource>,
    /// Machines that each known resource takes, in the order of their need.
    pub machines_by_resource: Vec<(Resource, f64)>,
    /// Machines to rent.
    pub machines: f64,
    /// Their price.
    pub machines_per_month: f64,
    /// The price of traffic.
    pub traffic_per_month: f64,
}

impl Cost {
    /// Both prices.
    pub fn per_month(&self) -> f64 {
        self.machines_per_month + self.traffic_per_month
    }
}

/// What a delivery, a publish and a connection were measured to take.
struct Measured {
    connections: f64,
    deliveries_per_s: f64,
    /// Deliveries for each publish, where the load publishes.
    per_publish: Option<f64>,
    cores_per_delivery: Option<f64>,
    /// Messages and bytes to clients for each delivery.
    to_clients: (f64, f64),
    /// Messages and bytes from clients for each publish, or for each delivery if nothing is published.
    from_clients: (f64, f64),
    memory_before: f64,
    memory_of_connection: Option<f64>,
}

impl Measured {
    /// `None` of a cell that delivered nothing.
    fn new(view: &CellView<'_>, latency: &str) -> Option<Measured> {
        let counted = &view.counted;
        let deliveries = Some(counted.counts.deliveries).filter(|count| *count > 0)? as f64;
        let published = Some(counted.counts.acked).filter(|count| *count > 0).map(|count| count as f64);
        let records = || view.cell.blocks.iter().filter_map(Block::counted);
        let median = |values: Vec<f64>| stats::median(&values);
        let (to_client, to_relay) = (counted.traffic.to_client, counted.traffic.to_relay);
        let each =
            |flow: measure::FlowRecord, by: f64| (flow.messages as f64 / by, flow.wire_bytes as f64 / by);
        let of_connection = records().filter_map(|record| {
            let grown = record.memory?.relay_bytes_per_connection()?;
            let states = record.compression_memory.and_then(|memory| memory.relay_bytes_per_connection);
            Some(grown.max(states.unwrap_or(0)) as f64)
        });
        let before = records().filter_map(|record| Some(record.memory?.relay_before_bytes? as f64));
        Some(Measured {
            connections: records().map(|record| record.connections).max().unwrap_or(0) as f64,
            deliveries_per_s: deliveries * 1e9 / counted.active_ns.max(1) as f64,
            per_publish: published.map(|published| deliveries / published),
            cores_per_delivery: view.value(Metric::RelayCpu, latency).map(|ns| ns / 1e9),
            to_clients: each(to_client, deliveries),
            from_clients: each(to_relay, published.unwrap_or(deliveries)),
            memory_before: median(before.collect()).unwrap_or(0.0),
            memory_of_connection: median(of_connection.collect()),
        })
    }

    /// What goes beyond twice what was measured at these rates.
    fn extrapolated(&self, scale: &Scale) -> Vec<Beyond> {
        let mut times = vec![
            ("connections", Some(scale.connections / self.connections.max(1.0))),
            ("deliveries/s", Some(scale.deliveries_per_s / self.deliveries_per_s)),
        ];
        if scale.publishes_per_s > 0.0 {
            let per_publish = scale.deliveries_per_s / scale.publishes_per_s;
            let times_measured = self.per_publish.map(|measured| per_publish / measured);
            times.push(("deliveries per publish", times_measured));
            times.extend(times_measured.map(|times| ("publishes per delivery", Some(1.0 / times))));
        }
        let is_beyond = |times: Option<f64>| times.is_none_or(|times| times > MOST_TIMES);
        let beyond = times.into_iter().filter(|(_, times)| is_beyond(*times));
        beyond.map(|(what, times)| Beyond { what, times }).collect()
    }

    /// What the cell needs at these rates, at so many cores a delivery.
    fn needs(&self, cell: &str, scale: &Scale, cores: Option<f64>, prices: &PriceBook) -> Needs {
        let times = |(messages, bytes): (f64, f64), rate: f64| on_wire(messages * rate, bytes * rate);
        let sends = if self.per_publish.is_some() { scale.publishes_per_s } else { scale.deliveries_per_s };
        let (out_bytes, out_packets) = times(self.to_clients, scale.deliveries_per_s);
        let (in_bytes, in_packets) = times(self.from_clients, sends);
        let out_bytes = out_bytes + in_packets * ACKS * HEADERS;
        let in_bytes = in_bytes + out_packets * ACKS * HEADERS;
        let memory_bytes =
            self.memory_of_connection.map(|each| self.memory_before + each * scale.connections);
        let mut needs = Needs {
            cell: cell.to_owned(),
            cores,
            memory_bytes,
            out_mbit_per_s: out_bytes * 8.0 / 1e6,
            in_mbit_per_s: in_bytes * 8.0 / 1e6,
            out_tb_per_month: out_bytes * HOURS_OF_MONTH * 3_600.0 / 1e12,
            extrapolated: self.extrapolated(scale),
            costs: Vec::new(),
        };
        needs.costs = prices.providers.iter().map(|provider| needs.cost(provider)).collect();
        needs
    }
}

/// Bytes and packets a second of so many messages and bytes of WebSocket, each message sealed and sent
/// by itself.
fn on_wire(messages: f64, bytes: f64) -> (f64, f64) {
    if messages <= 0.0 {
        return (0.0, 0.0);
    }
    let mean = bytes / messages;
    let sealed = mean + (mean / MOST_SEALED).ceil() * SEAL;
    let packets = (sealed / SEGMENT).ceil();
    (messages * (sealed + packets * HEADERS), messages * packets)
}

impl Needs {
    fn cost(&self, provider: &Provider) -> Cost {
        let gib = self.memory_bytes.map(|bytes| bytes / f64::from(1 << 30));
        let network =
            provider.network_mbit_per_s.map(|most| self.out_mbit_per_s.max(self.in_mbit_per_s) / most);
        let mut by_resource: Vec<(Resource, f64)> = [
            (Resource::Cores, self.cores.map(|cores| cores / provider.vcpus)),
            (Resource::Memory, gib.map(|gib| gib / provider.memory_gib)),
            (Resource::Network, network),
        ]
        .into_iter()
        .filter_map(|(resource, machines)| Some((resource, machines?)))
        .collect();
        by_resource.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let most = by_resource.first().map_or(0.0, |(_, machines)| *machines);
        let machines = most.ceil().max(1.0);
        Cost {
            provider: provider.name.clone(),
            binding: by_resource.first().map(|(resource, _)| *resource),
            machines_by_resource: by_resource,
            machines,
            machines_per_month: machines * provider.per_month,
            traffic_per_month: provider.traffic_price(self.out_tb_per_month, machines),
        }
    }
}

impl Plan {
    /// Plans every cell of a result with the relay's cost of a delivery.
    ///
    /// # Errors
    /// When no load has the relay's cost of a delivery, or the load lacks the cell that the relay speaks,
    /// or its CPU time.
    pub fn new(result: &ResultFile, demand: Demand, prices: PriceBook) -> Result<Plan> {
        let loads = views(result);
        let mut scales = Vec::new();
        for load in loads.iter().filter(|load| load.saturates() != "clients" && !load.is_of_pages()) {
            scales.extend(of_load(load, &demand, &prices)?);
        }
        ensure!(
            !scales.is_empty(),
            "the result has no load whose deliveries cost a relay what they cost it elsewhere: `compare run --scenario \
             mixed-day` measures one"
        );
        let assumptions = text::assumptions(result, &demand, &prices);
        Ok(Plan { command: result.command.clone(), demand, assumptions, prices, scales })
    }
}

/// One load, today and larger; nothing where it delivered nothing.
fn of_load(load: &LoadView<'_>, demand: &Demand, prices: &PriceBook) -> Result<Vec<Scale>> {
    let is_planned = |view: &&CellView<'_>| matches!(view.cell.role, Role::Anchor | Role::Cell);
    let measured = |view: &CellView<'_>| {
        let mut measured = Measured::new(view, load.latency.0)?;
        if view.cell.cell.link != NO_LINK {
            // Over links no CPU time is evidence.
            measured.cores_per_delivery = None;
        }
        Some((view.cell.id.clone(), measured))
    };
    let cells: Vec<(String, Measured)> = load.cells.iter().filter(is_planned).filter_map(measured).collect();
    if cells.is_empty() {
        return Ok(Vec::new());
    }
    // Cores of today for each core-second that a delivery takes.
    let cores_for_each = match demand.relay_cores {
        None => demand.deliveries_per_s,
        Some(used) => used / base(load, demand, &cells)?,
    };
    let today = std::iter::once(("Today", demand.connections));
    let scales = today.chain(SCALES).map(|(name, connections)| {
        let times = connections / demand.connections;
        let mut scale = Scale {
            load: load.name(),
            name: name.to_owned(),
            connections,
            deliveries_per_s: demand.deliveries_per_s * times,
            publishes_per_s: demand.publishes_per_s * times,
            cells: Vec::new(),
        };
        let needs = |(cell, measured): &(String, Measured)| {
            let cores = measured.cores_per_delivery.map(|each| each * cores_for_each * times);
            measured.needs(cell, &scale, cores, prices)
        };
        scale.cells = cells.iter().map(needs).collect();
        scale
    });
    Ok(scales.collect())
}

/// Core-seconds of a delivery in the cell that the relay speaks today.
fn base(load: &LoadView<'_>, demand: &Demand, cells: &[(String, Measured)]) -> Result<f64> {
    let anchor = || load.anchor().map(|view| view.cell.id.clone());
    let speaks = demand.speaks.clone().or_else(anchor).unwrap_or_default();
    let Some((_, found)) = cells.iter().find(|(cell, _)| *cell == speaks) else {
        let known: Vec<&str> = cells.iter().map(|(cell, _)| cell.as_str()).collect();
        bail!("{} has no cell {speaks:?}; --speaks takes one of {}", load.name(), known.join(" "));
    };
    let cpu = found.cores_per_delivery.filter(|cores| *cores > 0.0);
    cpu.with_context(|| {
        format!("no CPU time of {speaks} is known in {}: leave out --relay-cores-used", load.name())
    })
}
