//! The relay's NIP-11 document, with what the gateway speaks.

use serde_json::{Map, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::{ByteStream, Endpoint, WireError, WireLimits};

/// Most bytes of an answer that is read.
const MAX_BYTES: u64 = 512 << 10;

/// Fields about the length and coding of a body that changes.
const OF_BODY: [&str; 5] = ["content-length", "connection", "keep-alive", "etag", "content-md5"];

/// Fetches the relay's whole answer to a request head.
///
/// # Errors
/// Those of the connection.
pub(crate) async fn fetch(relay: &Endpoint, head: &[u8], limits: &WireLimits) -> Result<Vec<u8>, WireError> {
    let mut stream: ByteStream = relay.open(limits).await?;
    stream.write_all(head).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    stream.take(MAX_BYTES).read_to_end(&mut answer).await?;
    Ok(answer)
}

/// The answer with the document's key `wire` set; as it is if it holds no document.
pub(crate) fn with_wire(answer: Vec<u8>, wire: &Value) -> Vec<u8> {
    rewritten(&answer, wire).unwrap_or(answer)
}

fn rewritten(answer: &[u8], wire: &Value) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let start = lines.next().filter(|start| start.split(' ').nth(1) == Some("200"))?;
    let mut fields = String::new();
    for line in lines {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        match &*name {
            "transfer-encoding" | "content-encoding" => return None,
            name if OF_BODY.contains(&name) => {}
            _ => fields += &format!("{line}\r\n"),
        }
    }
    let mut document: Map<String, Value> = serde_json::from_str(body).ok()?;
    // The relay's own text stays as it is, unless it has the key.
    let body = match document.insert("wire".to_owned(), wire.clone()) {
        Some(_) => Value::Object(document).to_string(),
        None => {
            let end = body.trim_end().strip_suffix('}')?.trim_end();
            let comma = if document.len() > 1 { "," } else { "" };
            format!("{end}{comma}\"wire\":{wire}}}")
        }
    };
    let length = body.len();
    Some(format!("{start}\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_keeps_its_text_and_gets_the_key() {
        let wire = serde_json::json!({"tokens": ["nostr.json"]});
        let rewrite = |answer: &str| String::from_utf8(with_wire(answer.into(), &wire)).unwrap();
        let head = "HTTP/1.0 200 OK\r\nAccess-Control-Allow-Origin: *\r\n";
        for (body, expected) in [
            ("{}", r#"{"wire":{"tokens":["nostr.json"]}}"#),
            ("{\"b\":1.0, \"a\":2}\n", r#"{"b":1.0, "a":2,"wire":{"tokens":["nostr.json"]}}"#),
            (r#"{"b":1,"wire":{"tokens":[]}}"#, r#"{"b":1,"wire":{"tokens":["nostr.json"]}}"#),
        ] {
            let found = rewrite(&format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()));
            let length = expected.len();
            assert_eq!(
                found,
                format!("{head}Content-Length: {length}\r\nConnection: close\r\n\r\n{expected}")
            );
        }
        for other in [
            "HTTP/1.0 404 Not Found\r\n\r\n{}",
            "HTTP/1.0 200 OK\r\n\r\n[]",
            "HTTP/1.0 200 OK\r\n\r\nhello",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}",
            "HTTP/1.0 200 OK\r\nContent-Encoding: gzip\r\n\r\n{}",
            "",
        ] {
            assert_eq!(rewrite(other), other);
        }
    }
}
