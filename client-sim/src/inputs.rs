//! The relay that the user names.

use std::path::Path;

use anyhow::Context;
use wire::{Endpoint, Header};

/// The relay of a URL with the header fields of requests to it and, for `wss://`, the root
/// certificates to trust, read once for all connections.
pub(crate) fn endpoint(url: &str, ca: Option<&Path>, headers: &[Header]) -> anyhow::Result<Endpoint> {
    let relay = Endpoint::new(url.parse()?, ca).context("cannot check the relay's certificate")?;
    relay.with_headers(headers.to_vec()).context("--header")
}
