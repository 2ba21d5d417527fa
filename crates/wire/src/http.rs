//! Reads and writes HTTP heads, within bounds.

use std::time::Duration;

use bytes::BytesMut;
use tokio::{
    io::{self, AsyncReadExt, AsyncWriteExt},
    time,
};
use tokio_tungstenite::tungstenite::http::{HeaderMap, HeaderName, HeaderValue};

use crate::{error::WireError, socket::Socket};

/// httparse needs a table of fixed size.
const MAX_HEADERS: usize = 64;

/// Time for an answered peer to close its end.
const LINGER: Duration = Duration::from_secs(1);

/// An HTTP head, and the bytes after it.
#[derive(Debug)]
pub(crate) struct Head<S> {
    /// The start line.
    pub(crate) start: S,
    pub(crate) headers: HeaderMap,
    /// Bytes after the head that were read with it.
    pub(crate) early: Vec<u8>,
}

/// A request's start line.
#[derive(Debug)]
pub(crate) struct RequestLine {
    pub(crate) method: String,
    pub(crate) target: String,
    /// The minor version of HTTP/1.
    pub(crate) minor_version: u8,
}

/// A response's status.
#[derive(Debug)]
pub(crate) struct StatusLine {
    pub(crate) status: u16,
}

/// Why a head could not be read.
#[derive(Debug)]
pub(crate) enum HeadError {
    Wire(WireError),
    TooLarge,
    Malformed(String),
}

/// Reads a request's head of at most `max_bytes`.
pub(crate) async fn read_request(
    stream: &mut Socket,
    max_bytes: usize,
) -> Result<Head<RequestLine>, HeadError> {
    read_head(stream, max_bytes, |bytes, headers| {
        let mut request = httparse::Request::new(headers);
        let httparse::Status::Complete(len) = request.parse(bytes)? else { return Ok(None) };
        let start = RequestLine {
            method: request.method.unwrap_or_default().to_owned(),
            target: request.path.unwrap_or_default().to_owned(),
            minor_version: request.version.unwrap_or_default(),
        };
        Ok(Some((len, start, header_map(request.headers)?)))
    })
    .await
}

/// Reads a response's head of at most `max_bytes`.
pub(crate) async fn read_response(
    stream: &mut Socket,
    max_bytes: usize,
) -> Result<Head<StatusLine>, HeadError> {
    read_head(stream, max_bytes, |bytes, headers| {
        let mut response = httparse::Response::new(headers);
        let httparse::Status::Complete(len) = response.parse(bytes)? else { return Ok(None) };
        let start = StatusLine { status: response.code.unwrap_or_default() };
        Ok(Some((len, start, header_map(response.headers)?)))
    })
    .await
}

type Parsed<S> = Result<Option<(usize, S, HeaderMap)>, httparse::Error>;

async fn read_head<S>(
    stream: &mut Socket,
    max_bytes: usize,
    parse: impl for<'h, 'b> Fn(&'b [u8], &'h mut [httparse::Header<'b>]) -> Parsed<S>,
) -> Result<Head<S>, HeadError> {
    let mut buffer = BytesMut::with_capacity(1024);
    loop {
        let before = buffer.len();
        let read = stream.read_buf(&mut buffer).await.map_err(|error| HeadError::Wire(error.into()))?;
        if read == 0 {
            let reason = "the peer closed the connection before its HTTP head was complete";
            return Err(HeadError::Wire(WireError::handshake(reason)));
        }
        // Parses only after an empty line, so that a head in small pieces costs no more than one in
        // large pieces.
        if has_empty_line(&buffer[before.saturating_sub(3)..]) {
            let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let parsed =
                parse(&buffer, &mut headers).map_err(|error| HeadError::Malformed(error.to_string()))?;
            if let Some((len, start, headers)) = parsed.filter(|(len, ..)| *len <= max_bytes) {
                let early = buffer[len..].to_vec();
                return Ok(Head { start, headers, early });
            }
        }
        if buffer.len() >= max_bytes {
            return Err(HeadError::TooLarge);
        }
    }
}

fn has_empty_line(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| pair == b"\n\n") || bytes.windows(3).any(|three| three == b"\n\r\n")
}

fn header_map(headers: &[httparse::Header<'_>]) -> Result<HeaderMap, httparse::Error> {
    let mut map = HeaderMap::new();
    for header in headers {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| httparse::Error::HeaderName)?;
        let value = HeaderValue::from_bytes(header.value).map_err(|_| httparse::Error::HeaderValue)?;
        map.append(name, value);
    }
    Ok(map)
}

/// The values of a header's lines as one list (RFC 9110 §5.3). `None` if absent.
pub(crate) fn list(headers: &HeaderMap, name: &str) -> Option<String> {
    let lines: Vec<_> = headers.get_all(name).iter().map(|v| String::from_utf8_lossy(v.as_bytes())).collect();
    (!lines.is_empty()).then(|| lines.join(", "))
}

/// Whether a header's list contains the word, in any case.
pub(crate) fn list_contains(headers: &HeaderMap, name: &str, word: &str) -> bool {
    list(headers, name).is_some_and(|list| list.split(',').any(|w| w.trim().eq_ignore_ascii_case(word)))
}

/// Writes a complete HTTP answer and closes. The head has the length also of an omitted body (RFC
/// 9110 §9.3.2).
pub(crate) async fn answer(
    stream: &mut Socket,
    status: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    leaves_body_out: bool,
) {
    let mut text = format!("HTTP/1.1 {status}\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("Content-Length: {}\r\nConnection: close\r\n\r\n", body.len()));
    let mut bytes = text.into_bytes();
    if !leaves_body_out {
        bytes.extend_from_slice(body);
    }
    if stream.write_all(&bytes).await.is_ok() && stream.shutdown().await.is_ok() {
        // A socket that closes with unread bytes sends a reset, which can overtake the answer.
        let discarding = async { io::copy(stream, &mut io::sink()).await.ok() };
        let _: Result<Option<u64>, time::error::Elapsed> = time::timeout(LINGER, discarding).await;
    }
}
