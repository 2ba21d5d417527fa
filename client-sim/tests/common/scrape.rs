//! A scraper of `--metrics-listen`.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::ChildStderr,
    thread,
    time::Duration,
};

/// Where a program says on standard error that its metrics are, and the lines behind.
pub(crate) fn address(said: ChildStderr) -> (String, impl Iterator<Item = String>) {
    let mut lines = BufReader::new(said).lines().map_while(Result::ok);
    let address = lines
        .find_map(|line| Some(line.strip_prefix("metrics at http://")?.strip_suffix("/metrics")?.to_owned()));
    (address.expect("it says where its metrics are"), lines)
}

/// The metrics at an address until nobody listens, each state of them once.
pub(crate) fn scrapes(address: &str) -> Vec<String> {
    let mut scrapes = Vec::new();
    while let Some(metrics) = scrape(address) {
        if scrapes.last() != Some(&metrics) {
            scrapes.push(metrics);
        }
        thread::sleep(Duration::from_millis(10));
    }
    scrapes
}

/// The value of a sample, named as it is written.
pub(crate) fn value(metrics: &str, sample: &str) -> f64 {
    let of = |line: &str| line.strip_prefix(sample)?.trim().parse().ok();
    metrics.lines().find_map(of).unwrap_or_else(|| panic!("no {sample} in {metrics}"))
}

/// The metrics at an address; `None` once nobody listens.
pub(crate) fn scrape(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream
        .write_all(
            b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\n\r\n",
        )
        .ok()?;
    let mut answer = String::new();
    // The process may end meanwhile.
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"), "{head}");
    body.ends_with("# EOF\n").then(|| body.to_owned())
}
