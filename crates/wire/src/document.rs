//! A relay's information document (NIP-11), over HTTP at the address of its WebSocket.

use std::{sync::Arc, time::Duration};

use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::client::Endpoint;

/// Most bytes of a document.
const MAX_BYTES: u64 = 256 << 10;

/// Why there is no document: the request, the relay's answer or its length.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct DocumentError(#[from] ureq::Error);

/// Fetches the document, which should be JSON, with the header fields and roots of the endpoint. Blocks for as
/// long as `patience`.
///
/// # Errors
/// [`DocumentError`].
pub fn document(relay: &Endpoint, patience: Duration) -> Result<String, DocumentError> {
    fetch(relay, "application/nostr+json", patience)
}

/// The same of another document at the address, in the form of this media type.
///
/// # Errors
/// [`DocumentError`].
pub fn fetch(relay: &Endpoint, form: &str, patience: Duration) -> Result<String, DocumentError> {
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
    Ok(request.call()?.body_mut().with_config().limit(MAX_BYTES).read_to_string()?)
}
