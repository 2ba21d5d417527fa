//! The state of a run while it lasts, as metrics that Prometheus reads.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use client::shared::Shared;
use measure::{UNKNOWN_HERE, ValidityClass};
use program::Exposition;

/// Longest request that is read: those of Prometheus have some 400 bytes.
const REQUEST_BYTES: usize = 8 << 10;

/// Most headers that a request may have.
const HEADERS: usize = 64;

/// For a request to arrive, and for its answer to leave.
const PATIENCE: Duration = Duration::from_secs(2);

/// Requests that are answered at once; more are closed.
const AT_ONCE: usize = 64;

/// The format of those who accept it, and the one that everybody else reads.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT_0_0_4: &str = "text/plain; version=0.0.4; charset=utf-8";

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
            latency_ns_p99: shared.latency_ns_p99(),
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
        let seen = Arc::new(seen);
        let is_loopback = address.ip().is_loopback();
        let answering = move || {
            for stream in self.0.incoming().flatten() {
                if Arc::strong_count(&seen) > AT_ONCE {
                    continue;
                }
                let seen = Arc::clone(&seen);
                // Who asked and left needs no answer, nor does anybody without a thread.
                let _ = thread::Builder::new().spawn(move || answer(stream, &*seen, is_loopback));
            }
        };
        thread::Builder::new().name("metrics".to_owned()).spawn(answering).context("cannot serve metrics")?;
        // A closed standard error does not end a measurement.
        program::report(&format!("metrics at http://{address}/metrics"));
        Ok(())
    }
}

fn answer(mut stream: TcpStream, seen: &impl Fn() -> Snapshot, is_loopback: bool) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let Asked { status, open_metrics, head } = asked(&mut stream, is_loopback)?;
    let (kind, body) = match (status, open_metrics) {
        ("200 OK", true) => (OPEN_METRICS, exposed(&seen(), true)),
        ("200 OK", false) => (TEXT_0_0_4, exposed(&seen(), false)),
        _ => ("text/plain; charset=utf-8", format!("{status}: the metrics are at /metrics\n")),
    };
    let bytes = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n{}",
        if head { "" } else { &body }
    )
}

fn exposed(run: &Snapshot, open_metrics: bool) -> String {
    let mut metrics = Exposition { prefix: "nsim", open_metrics, text: String::new() };
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
    metrics.text + if open_metrics { "# EOF\n" } else { "" }
}

/// A request, as far as its answer depends on it.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    status: &'static str,
    open_metrics: bool,
    head: bool,
}

/// Reads a request to its blank line.
fn asked(stream: &mut impl Read, is_loopback: bool) -> io::Result<Asked> {
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
                let values = |name: &'static str| {
                    let named = parsed.headers.iter().filter(move |one| one.name.eq_ignore_ascii_case(name));
                    named.map(|header| std::str::from_utf8(header.value).unwrap_or_default())
                };
                let status = match (parsed.method, parsed.path) {
                    // A web page whose name leads to loopback may not read what it finds there.
                    _ if is_loopback && !values("host").all(is_this_host) => "421 Misdirected Request",
                    (Some("GET" | "HEAD"), Some("/metrics")) => "200 OK",
                    (Some("GET" | "HEAD"), _) => "404 Not Found",
                    _ => "405 Method Not Allowed",
                };
                let open_metrics =
                    values("accept").any(|value| value.contains("application/openmetrics-text"));
                return Ok(Asked { status, open_metrics, head: parsed.method == Some("HEAD") });
            }
            Ok(httparse::Status::Partial) if read > 0 && began.elapsed() < PATIENCE => {}
            _ => return Ok(Asked { status: "400 Bad Request", open_metrics: false, head: false }),
        }
    }
}

/// Whether a Host header names this host by an address or as `localhost`.
fn is_this_host(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_metrics_are_answered_with_metrics_and_loopback_only_by_its_names() {
        let long = format!("GET /metrics HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(REQUEST_BYTES));
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: a\r\n".repeat(HEADERS + 1));
        for (request, status) in [
            ("GET /metrics HTTP/1.1\r\nHost: localhost:1\r\n\r\n", "200 OK"),
            ("GET /metrics HTTP/1.1\r\nhost: 127.0.0.1:1\r\n\r\n", "200 OK"),
            ("GET /metrics HTTP/1.1\r\nHost: [::1]:1\r\n\r\n", "200 OK"),
            ("HEAD /metrics HTTP/1.0\r\n\r\n", "200 OK"),
            ("GET /metrics HTTP/1.1\r\nHost: a.example\r\n\r\n", "421 Misdirected Request"),
            ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("GET /metrics HTTP/1.1\r\n", "400 Bad Request"),
            ("", "400 Bad Request"),
            ("\0\u{1}\u{2}\r\n\r\n", "400 Bad Request"),
            (&long, "400 Bad Request"),
            (&many, "400 Bad Request"),
        ] {
            assert_eq!(asked(&mut request.as_bytes(), true).unwrap().status, status, "{request:.40}");
        }
        let elsewhere = "GET /metrics HTTP/1.1\r\nHost: a.example\r\n\r\n";
        assert_eq!(asked(&mut elsewhere.as_bytes(), false).unwrap().status, "200 OK");
    }

    #[test]
    fn silent_peers_delay_nobody_and_the_format_is_the_one_that_is_accepted() {
        let endpoint = Endpoint::listen("0").unwrap();
        let address = endpoint.0.local_addr().unwrap();
        endpoint.serve(|| Snapshot { sent: 11, ..Snapshot::default() }).unwrap();
        let silent: Vec<_> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
        let began = Instant::now();
        let get = |method: &str, accept: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            write!(stream, "{method} /metrics HTTP/1.1\r\nHost: {address}\r\n{accept}\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            (head.to_owned(), body.to_owned())
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
        let only_head = get("HEAD", "");
        assert_eq!((only_head.0.as_str(), only_head.1.as_str()), (head.as_str(), ""));
        let (head, text) =
            get("GET", "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n");
        assert!(head.contains("\r\nContent-Type: application/openmetrics-text;"), "{head}");
        assert!(text.contains("# TYPE nsim_events_sent counter\n") && text.ends_with("# EOF\n"), "{text}");
    }
}
