//! A scraper of `--metrics-listen`.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

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
