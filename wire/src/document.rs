//! A relay's information document (NIP-11), over HTTP at the address of its WebSocket.

use std::{path::Path, sync::Arc, time::Duration};

use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use crate::{client::USER_AGENT, relay_url::RelayUrl};

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

/// Fetches the document as text, with the roots in a PEM file or Mozilla's. Blocks for as long as
/// `patience`.
///
/// # Errors
/// [`DocumentError`].
pub fn document(url: &RelayUrl, ca: Option<&Path>, patience: Duration) -> Result<String, DocumentError> {
    let roots = ca.map_or(Ok(RootCerts::WebPki), trusted)?;
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(patience))
        .user_agent(USER_AGENT)
        .tls_config(TlsConfig::builder().root_certs(roots).build())
        .build();
    let agent: ureq::Agent = config.into();
    let mut request = agent.get(url.http()).header("Accept", "application/nostr+json");
    if let Some(authorization) = url.authorization() {
        request = request.header("Authorization", authorization);
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
