//! The state of a run while it lasts, as metrics that Prometheus reads.

use std::{
    net::TcpListener,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::Context;
use client::shared::Shared;
use measure::{UNKNOWN_HERE, ValidityClass};
use program::Exposition;
use wire::Incoming;

/// For a request to arrive.
const PATIENCE: Duration = Duration::from_secs(2);

/// Requests that are answered at once; more wait.
const AT_ONCE: usize = 64;

/// How a block ends, in the order of [`Snapshot::blocks`]: judged, or without a record.
const ENDS: [&str; 4] = ["valid", "suspect", "invalid", "failed"];

/// A run as it is when somebody asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Client connections.
    pub connections: u64,
    /// Events that clients sent.
    pub sent: u64,
    /// Deliveries that clients received and were owed.
    pub deliveries: u64,
    /// The p99 of the last second's deliveries, from the instant each was due.
    pub latency_ns_p99: u64,
    /// CPU time of the relay's processes, where they are known.
    pub relay_cpu_ns: u64,
    /// CPU time of the clients' processes.
    pub client_cpu_ns: u64,
    /// Blocks by how they ended: valid, suspect, invalid, without a record.
    pub blocks: [u64; 4],
}

impl From<&Shared> for Snapshot {
    fn from(shared: &Shared) -> Snapshot {
        Snapshot {
            connections: shared.connections() as u64,
            sent: shared.sent_count(),
            deliveries: shared.deliveries(),
            latency_ns_p99: shared.latency_ns_p99.load(Ordering::Relaxed),
            ..Snapshot::default()
        }
    }
}

impl Snapshot {
    /// Counts a block that was judged, or has no record.
    pub fn judged(&mut self, class: Option<ValidityClass>) {
        let end = match class {
            Some(ValidityClass::Valid) => 0,
            Some(ValidityClass::Suspect) => 1,
            Some(ValidityClass::Invalid) => 2,
            None => 3,
        };
        self.blocks[end] += 1;
    }
}

/// Where metrics are to be served.
#[derive(Debug)]
pub struct Endpoint(TcpListener);

impl Endpoint {
    /// Listens at `HOST:PORT`, or at a `PORT` of loopback.
    ///
    /// # Errors
    /// When the address is none, or in use.
    pub fn listen(address: &str) -> anyhow::Result<Endpoint> {
        let listener = match address.parse::<u16>() {
            Ok(port) => TcpListener::bind(("127.0.0.1", port)),
            Err(_) => TcpListener::bind(address),
        };
        listener.map(Endpoint).with_context(|| {
            format!("cannot listen on --metrics-listen {address}; expected [HOST:]PORT, with a free port")
        })
    }

    /// Answers requests until the process ends, and says on standard error where.
    ///
    /// # Errors
    /// When the system gives no thread, or does not tell the address.
    pub fn serve(self, seen: impl Fn() -> Snapshot + Send + Sync + 'static) -> anyhow::Result<()> {
        let address = self.0.local_addr().context("cannot serve metrics")?;
        let (seen, is_loopback) = (Arc::new(seen), address.ip().is_loopback());
        let answer = move |request: Incoming, _| {
            let seen = Arc::clone(&seen);
            wire::answer_metrics(request, is_loopback, "/metrics", move |open| exposed(&seen(), open))
        };
        wire::serve_pages(self.0, (AT_ONCE, PATIENCE), answer).context("cannot serve metrics")?;
        // A closed standard error does not end a measurement.
        program::report(&format!("metrics at http://{address}/metrics"));
        Ok(())
    }
}

fn exposed(run: &Snapshot, open_metrics: bool) -> String {
    let mut metrics = Exposition::new("nsim", open_metrics);
    let seconds = |ns: u64| ns as f64 / 1e9;
    let p99 = "p99 of the last second's deliveries, from the instant each was due";
    for (name, kind, help, count) in [
        ("connections", "gauge", "Client connections", run.connections),
        ("events_sent", "counter", "Events that clients sent", run.sent),
        ("deliveries", "counter", "Deliveries that clients received", run.deliveries),
    ] {
        metrics.add((name, kind, help), [(String::new(), count)]);
    }
    let latency = [(String::new(), seconds(run.latency_ns_p99))];
    metrics.add(("delivery_latency_p99_seconds", "gauge", p99), latency);
    let cpu = [("relay", run.relay_cpu_ns), ("clients", run.client_cpu_ns)];
    // Not known is not zero.
    let cpu = cpu.into_iter().filter(|(process, _)| *process != "relay" || UNKNOWN_HERE.is_none());
    let cpu = cpu.map(|(process, ns)| (format!("{{process=\"{process}\"}}"), seconds(ns)));
    metrics.add(("cpu_seconds", "counter", "CPU time of relay and clients"), cpu);
    let blocks = ENDS.iter().zip(run.blocks).map(|(end, count)| (format!("{{validity=\"{end}\"}}"), count));
    metrics.add(("blocks", "counter", "Blocks by validity; failed without a record"), blocks);
    metrics.whole()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpStream,
        time::Instant,
    };

    use super::*;

    /// Serves at an address, and returns where.
    fn served(address: &str) -> std::net::SocketAddr {
        let endpoint = Endpoint::listen(address).unwrap();
        let address = endpoint.0.local_addr().unwrap();
        endpoint.serve(|| Snapshot { sent: 11, ..Snapshot::default() }).unwrap();
        ([127, 0, 0, 1], address.port()).into()
    }

    /// Head and body of the answer.
    fn asked(address: std::net::SocketAddr, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    #[test]
    fn only_metrics_are_answered_with_metrics_and_loopback_only_by_its_names() {
        let (own, any) = (served("0"), served("0.0.0.0:0"));
        for (address, request, status) in [
            (own, "GET /metrics HTTP/1.1\r\nHost: localhost:1\r\n\r\n", "200 OK"),
            (own, "GET /metrics HTTP/1.1\r\nhost: 127.0.0.1:1\r\n\r\n", "200 OK"),
            (own, "GET /metrics HTTP/1.1\r\nHost: [::1]:1\r\n\r\n", "200 OK"),
            (own, "HEAD /metrics HTTP/1.0\r\n\r\n", "200 OK"),
            (own, "GET /metrics HTTP/1.1\r\nHost: a.example\r\n\r\n", "421 Misdirected Request"),
            (own, "GET /metrics HTTP/1.1\r\nHost: ::1\r\nHost: a.example\r\n\r\n", "421 Misdirected Request"),
            (any, "GET /metrics HTTP/1.1\r\nHost: a.example\r\n\r\n", "200 OK"),
            (own, "GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            (own, "POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            (own, "\0\u{1}\u{2}\r\n\r\n", "400 Bad Request"),
        ] {
            let (head, _) = asked(address, request);
            assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request:.40}: {head}");
        }
    }

    #[test]
    fn silent_peers_delay_nobody_and_the_format_is_the_one_that_is_accepted() {
        let address = served("0");
        let silent: Vec<_> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
        let began = Instant::now();
        let get = |method: &str, accept: &str| {
            asked(address, &format!("{method} /metrics HTTP/1.1\r\nHost: {address}\r\n{accept}\r\n"))
        };
        let (head, text) = get("GET", "");
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        drop(silent);
        assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4;"), "{head}");
        assert!(
            text.contains("# TYPE nsim_events_sent_total counter\nnsim_events_sent_total 11\n"),
            "{text}"
        );
        assert!(text.contains("# TYPE nsim_connections gauge\n"), "{text}");
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
        assert_eq!(get("HEAD", ""), (head, String::new()));
        let (head, text) =
            get("GET", "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n");
        assert!(head.contains("\r\nContent-Type: application/openmetrics-text;"), "{head}");
        assert!(text.contains("# TYPE nsim_events_sent counter\n") && text.ends_with("# EOF\n"), "{text}");
    }
}
