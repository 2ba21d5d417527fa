//! A relay's information document (NIP-11), over HTTP at the address of its WebSocket.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use ureq::{
    http::header::DATE,
    tls::{Certificate, RootCerts, TlsConfig},
};

use crate::client::Endpoint;

/// Most bytes of a document.
const MAX_BYTES: u64 = 256 << 10;

/// A document as it came.
#[derive(Debug)]
pub struct Document {
    /// The text that should be JSON.
    pub text: String,
    /// The server's clock, in seconds since 1970 (RFC 9110 §6.6.1).
    pub date: Option<i64>,
}

/// Fetches the document, with the header fields and roots of the endpoint. Blocks for as
/// long as `patience`.
///
/// # Errors
/// The request fails, or the answer is no document or too long.
pub fn document(relay: &Endpoint, patience: Duration) -> Result<Document, ureq::Error> {
    fetch(relay, "application/nostr+json", patience)
}

/// The same of another document at the address, in the form of this media type.
///
/// # Errors
/// The request fails, or the answer is no document or too long.
pub fn fetch(relay: &Endpoint, form: &str, patience: Duration) -> Result<Document, ureq::Error> {
    let trusted = relay.roots().iter().map(|der| Certificate::from_der(der).to_owned());
    let roots = RootCerts::Specific(Arc::new(trusted.collect()));
    let mut config = ureq::Agent::config_builder()
        // As the WebSocket: a proxy would read what is secret in the request.
        .proxy(None)
        .timeout_global(Some(patience))
        .tls_config(TlsConfig::builder().root_certs(roots).build());
    if relay.has_headers() {
        // Another host is not told what may be a secret.
        config = config.max_redirects(0);
    }
    let agent: ureq::Agent = config.build().into();
    let mut request = agent.get(relay.url().http()).header("Accept", form);
    for (name, value) in relay.fields() {
        // As `str` it must be ASCII, which RFC 9110 §5.5 does not ask of it.
        request = request.header(name, value.as_bytes());
    }
    let mut answer = request.call()?;
    let date =
        answer.headers().get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    let date = date.and_then(|date| i64::try_from(date.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok());
    Ok(Document { text: answer.body_mut().with_config().limit(MAX_BYTES).read_to_string()?, date })
}
