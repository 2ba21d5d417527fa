//! What a coordinator sees of a run over agents, as metrics that Prometheus reads.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use agents::{Overview, RunState, Seen};
use measure::{LIVE_EDGES_NS, LiveLatency};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet, text},
    metrics::MetricType,
    registry::{Registry, Unit},
};
use tokio::sync::watch;

/// Longest request that is read: those of Prometheus have some 400 bytes.
const REQUEST_BYTES: usize = 8 << 10;

/// Most headers that a request may have.
const HEADERS: usize = 64;

/// For a request to arrive, and for its answer to leave: the next one waits.
const PATIENCE: Duration = Duration::from_secs(2);

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers requests for metrics until the process ends, one after the other. Returns where.
///
/// # Errors
/// When the system gives no thread, or does not tell the address.
pub(crate) fn serve(listener: TcpListener, overview: watch::Receiver<Overview>) -> io::Result<SocketAddr> {
    let address = listener.local_addr()?;
    let mut registry = Registry::with_prefix("nsim");
    registry.register_collector(Box::new(Scrape(overview)));
    thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        for stream in listener.incoming() {
            // Who asked and left needs no answer.
            let _ = stream.and_then(|stream| answer(stream, &registry));
        }
    })?;
    Ok(address)
}

fn answer(mut stream: TcpStream, registry: &Registry) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut body = String::new();
    let status = asked(&mut stream)?;
    if status == "200 OK" {
        text::encode(&mut body, registry).map_err(io::Error::other)?;
    } else {
        body = format!("{status}: the metrics are at /metrics\n");
    }
    let kind = if status == "200 OK" { CONTENT_TYPE } else { "text/plain; charset=utf-8" };
    let bytes = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// Reads a request to its blank line; the status that answers it.
fn asked(stream: &mut impl Read) -> io::Result<&'static str> {
    let began = Instant::now();
    let mut request = [0; REQUEST_BYTES];
    let mut len = 0;
    loop {
        let read = stream.read(&mut request[len..])?;
        len += read;
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        match parsed.parse(&request[..len]) {
            Ok(httparse::Status::Complete(_)) => {
                return Ok(match (parsed.method, parsed.path) {
                    (Some("GET"), Some("/metrics")) => "200 OK",
                    (Some("GET"), _) => "404 Not Found",
                    _ => "405 Method Not Allowed",
                });
            }
            Ok(httparse::Status::Partial) if read > 0 && began.elapsed() < PATIENCE => {}
            _ => return Ok("400 Bad Request"),
        }
    }
}

/// The run as it is when somebody asks.
#[derive(Debug)]
struct Scrape(watch::Receiver<Overview>);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let run = self.0.borrow().clone();
        by_state(
            &mut encoder,
            ("run_state", "1 for the state of the run, 0 for the others"),
            RunState::ALL.iter().map(|state| (state.name(), i64::from(state.name() == run.state.name()))),
        )?;
        let agents = |seen| {
            let relays = usize::from(run.relay == Some(seen));
            i64::try_from(run.agents_in(seen).count() + relays).unwrap_or(i64::MAX)
        };
        by_state(
            &mut encoder,
            ("agents", "Agents by how far they are, that of the relay among them"),
            Seen::ALL.into_iter().map(|seen| (seen.name(), agents(seen))),
        )?;
        let connections = i64::try_from(run.run.connections).unwrap_or(i64::MAX);
        encoder
            .encode_descriptor("connections", "Client connections of all agents", None, MetricType::Gauge)?
            .encode_gauge(&connections)?;
        let counters = [
            ("events_sent", "Events that all agents sent", run.run.sent),
            ("deliveries", "Deliveries that all agents received", run.run.deliveries),
            ("blocks_merged", "Blocks whose records are one", run.blocks_merged),
            ("counts_refused", "Answers of agents with counts that no player has", run.counts_refused),
        ];
        for (name, help, count) in counters {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        let help = "From the instant a delivery was due, with both ends at one agent";
        let LiveLatency { sum_ns, .. } = run.run.latency;
        encoder
            .encode_descriptor("delivery_latency", help, Some(&Unit::Seconds), MetricType::Histogram)?
            .encode_histogram::<NoLabelSet>(
            sum_ns as f64 / 1e9,
            run.run.latency.samples(),
            &buckets(&run.run.latency),
            None,
        )
    }
}

/// Encodes a gauge with a value for each state.
fn by_state(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    values: impl Iterator<Item = (&'static str, i64)>,
) -> fmt::Result {
    let mut gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (state, value) in values {
        gauge.encode_family(&[("state", state)])?.encode_gauge(&value)?;
    }
    Ok(())
}

/// Each bucket's edge in seconds with its samples; that of the last means infinity.
fn buckets(latency: &LiveLatency) -> Vec<(f64, u64)> {
    let edges = LIVE_EDGES_NS.iter().map(|ns| *ns as f64 / 1e9).chain([f64::INFINITY]);
    edges.zip(latency.buckets).collect()
}

#[cfg(test)]
mod tests {
    use measure::LiveCounts;

    use super::*;

    #[test]
    fn only_a_get_of_metrics_is_answered_with_metrics() {
        let long = format!("GET /metrics HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(REQUEST_BYTES));
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: a\r\n".repeat(HEADERS + 1));
        for (request, status) in [
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "200 OK"),
            ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("GET /metrics HTTP/1.1\r\n", "400 Bad Request"),
            ("", "400 Bad Request"),
            ("\0\u{1}\u{2}\r\n\r\n", "400 Bad Request"),
            (&long, "400 Bad Request"),
            (&many, "400 Bad Request"),
        ] {
            assert_eq!(asked(&mut request.as_bytes()).unwrap(), status, "{request:.40}");
        }
    }

    #[test]
    fn every_agent_state_and_bucket_is_exported() {
        let mut run = Overview::open(3);
        run.agents[1] = Seen::In(agents::Phase::Running);
        run.relay = Some(Seen::In(agents::Phase::Running));
        run.run = LiveCounts { connections: 7, sent: 11, deliveries: 13, ..LiveCounts::default() };
        run.run.latency.buckets[3] = 2;
        run.run.latency.buckets[18] = 1;
        run.run.latency.sum_ns = 60_000_000_000;
        let (_tell, overview) = watch::channel(run);
        let mut registry = Registry::with_prefix("nsim");
        registry.register_collector(Box::new(Scrape(overview)));
        let mut text = String::new();
        text::encode(&mut text, &registry).unwrap();
        for line in [
            "# TYPE nsim_agents gauge",
            "nsim_agents{state=\"missing\"} 2",
            "nsim_agents{state=\"running\"} 2",
            "nsim_agents{state=\"published\"} 0",
            "nsim_run_state{state=\"open\"} 1",
            "nsim_run_state{state=\"aborted\"} 0",
            "nsim_connections 7",
            "nsim_events_sent_total 11",
            "# TYPE nsim_deliveries counter",
            "nsim_deliveries_total 13",
            "# UNIT nsim_delivery_latency_seconds seconds",
            "nsim_delivery_latency_seconds_bucket{le=\"0.0005\"} 0",
            "nsim_delivery_latency_seconds_bucket{le=\"0.001\"} 2",
            "nsim_delivery_latency_seconds_bucket{le=\"50.0\"} 2",
            "nsim_delivery_latency_seconds_bucket{le=\"+Inf\"} 3",
            "nsim_delivery_latency_seconds_count 3",
            "nsim_delivery_latency_seconds_sum 60.0",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
