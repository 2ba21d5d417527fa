//! A relay's information document (NIP-11), over HTTP at the address of its WebSocket.

use std::{path::Path, sync::Arc, time::Duration};

use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use crate::client::Endpoint;

/// Most bytes of a document.
const MAX_BYTES: u64 = 256 << 10;

/// Why there is no document.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// The file of root certificates.
    #[error("cannot read --ca {0}: {1}")]
    Roots(String, std::io::Error),
    /// The request, the relay's answer or its length.
    #[error(transparent)]
    Http(#[from] ureq::Error),
}

/// Fetches the document as text, with the header fields and roots of the endpoint. Blocks for as
/// long as `patience`.
///
/// # Errors
/// [`DocumentError`].
pub fn document(relay: &Endpoint, patience: Duration) -> Result<String, DocumentError> {
    let roots = relay.ca().map_or(Ok(RootCerts::WebPki), trusted)?;
    let mut config = ureq::Agent::config_builder()
        .timeout_global(Some(patience))
        .tls_config(TlsConfig::builder().root_certs(roots).build());
    if relay.has_headers() {
        // Another host is not told what may be a secret.
        config = config.max_redirects(0);
    }
    let agent: ureq::Agent = config.build().into();
    let mut request = agent.get(relay.url().http()).header("Accept", "application/nostr+json");
    for (name, value) in relay.fields() {
        // As `str` it must be ASCII, which RFC 9110 §5.5 does not ask of it.
        request = request.header(name, value.as_bytes());
    }
    Ok(request.call()?.body_mut().with_config().limit(MAX_BYTES).read_to_string()?)
}

fn trusted(file: &Path) -> Result<RootCerts, DocumentError> {
    let pem = std::fs::read(file).map_err(|error| DocumentError::Roots(file.display().to_string(), error))?;
    let certificates = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    Ok(RootCerts::Specific(Arc::new(certificates.collect())))
}
