//! The relay's NIP-11 document, with what the gateway speaks.

use serde_json::{Map, Value};
use tokio::io::AsyncReadExt;
use wire::{Endpoint, WireError, WireLimits};

use crate::{request::Request, tunnel};

/// Most bytes of an answer that is read.
const MAX_BYTES: u64 = 512 << 10;

/// Fields about the length and coding of a body that changes.
const OF_BODY: [&str; 5] = ["content-length", "connection", "keep-alive", "etag", "content-md5"];

/// Names and values of header fields.
pub(crate) type Fields = Vec<(String, String)>;

/// Fetches the relay's whole answer to a request.
///
/// # Errors
/// Those of the connection.
pub(crate) async fn fetch(
    relay: &Endpoint,
    request: &Request,
    limits: &WireLimits,
) -> Result<Vec<u8>, WireError> {
    let (stream, _) = tunnel::ask(relay, &request.for_one_body(), limits).await?;
    let mut answer = Vec::new();
    stream.take(MAX_BYTES).read_to_end(&mut answer).await?;
    Ok(answer)
}

/// Fields and document of an answer, with the document's key `wire` set; `None` if it holds no
/// document.
pub(crate) fn with_wire(answer: &[u8], wire: &Value) -> Option<(Fields, String)> {
    let (head, body) = std::str::from_utf8(answer).ok()?.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    lines.next().filter(|start| start.split(' ').nth(1) == Some("200"))?;
    let mut fields = Fields::new();
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        match &*name.to_ascii_lowercase() {
            "transfer-encoding" | "content-encoding" => return None,
            name if OF_BODY.contains(&name) => {}
            _ => fields.push((name.to_owned(), value.trim().to_owned())),
        }
    }
    let mut document: Map<String, Value> = serde_json::from_str(body).ok()?;
    document.insert("wire".to_owned(), wire.clone());
    Some((fields, Value::Object(document).to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_keeps_its_values_and_gets_the_key() {
        let wire = json!({"tokens": ["nostr.json"]});
        for (body, expected) in [
            ("{}", json!({"wire": wire})),
            ("{\"b\":1.0, \"a\":2}\n", json!({"b": 1.0, "a": 2, "wire": wire})),
            (r#"{"b":1,"wire":{"tokens":[]}}"#, json!({"b": 1, "wire": wire})),
        ] {
            let answer = format!("HTTP/1.0 200 OK\r\nX: a:b\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let (fields, found) = with_wire(answer.as_bytes(), &wire).unwrap();
            assert_eq!(fields, [("X".to_owned(), "a:b".to_owned())]);
            assert_eq!(serde_json::from_str::<Value>(&found).unwrap(), expected);
        }
        for other in [
            "HTTP/1.0 404 Not Found\r\n\r\n{}",
            "HTTP/1.0 200 OK\r\n\r\n[]",
            "HTTP/1.0 200 OK\r\n\r\nhello",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}",
            "HTTP/1.0 200 OK\r\nContent-Encoding: gzip\r\n\r\n{}",
            "",
        ] {
            assert_eq!(with_wire(other.as_bytes(), &wire), None);
        }
    }
}
