//! Reads and writes HTTP heads, within bounds.

use std::{error::Error, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{self, AsyncReadExt, AsyncWriteExt},
    time,
};
use tokio_tungstenite::tungstenite::http::{HeaderMap, Request, Response, Version};

use crate::{error::WireError, socket::Socket};

/// httparse needs a table of fixed size.
const MAX_HEADERS: usize = 64;

/// Time for an answered peer to close its end.
const LINGER: Duration = Duration::from_secs(1);

/// Why a head could not be read.
#[derive(Debug)]
pub(crate) enum HeadError {
    Wire(WireError),
    TooLarge,
    Malformed(String),
}

/// Reads a request's head of at most `max_bytes`, and what came with it.
pub(crate) async fn read_request(
    stream: &mut Socket,
    max_bytes: usize,
) -> Result<(Request<()>, Vec<u8>), HeadError> {
    read_head(stream, max_bytes, |bytes, fields| {
        let mut parsed = httparse::Request::new(fields);
        let httparse::Status::Complete(len) = parsed.parse(bytes)? else { return Ok(None) };
        let version = if parsed.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
        let (method, target) = (parsed.method.unwrap_or_default(), parsed.path.unwrap_or_default());
        let mut request = Request::builder().method(method).uri(target).version(version);
        for field in parsed.headers {
            request = request.header(field.name, field.value);
        }
        Ok(Some((len, request.body(())?)))
    })
    .await
}

/// Reads a response's head of at most `max_bytes`, and what came with it.
pub(crate) async fn read_response(
    stream: &mut Socket,
    max_bytes: usize,
) -> Result<(Response<()>, Vec<u8>), HeadError> {
    read_head(stream, max_bytes, |bytes, fields| {
        let mut parsed = httparse::Response::new(fields);
        let httparse::Status::Complete(len) = parsed.parse(bytes)? else { return Ok(None) };
        let mut response = Response::builder().status(parsed.code.unwrap_or_default());
        for field in parsed.headers {
            response = response.header(field.name, field.value);
        }
        Ok(Some((len, response.body(())?)))
    })
    .await
}

/// A head and its length, once it is whole.
type Parsed<H> = Result<Option<(usize, H)>, Box<dyn Error>>;

async fn read_head<H>(
    stream: &mut Socket,
    max_bytes: usize,
    parse: impl for<'h, 'b> Fn(&'b [u8], &'h mut [httparse::Header<'b>]) -> Parsed<H>,
) -> Result<(H, Vec<u8>), HeadError> {
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
            let mut fields = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let parsed =
                parse(&buffer, &mut fields).map_err(|error| HeadError::Malformed(error.to_string()))?;
            if let Some((len, head)) = parsed.filter(|(len, _)| *len <= max_bytes) {
                return Ok((head, buffer[len..].to_vec()));
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

/// The values of a header's lines as one list (RFC 9110 §5.3). `None` if absent.
pub fn list(headers: &HeaderMap, name: &str) -> Option<String> {
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
