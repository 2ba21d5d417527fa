//! The relays that pages ask: one for each compression, with the events of the set stored.

use std::{collections::BTreeMap, ffi::OsString, net::Ipv4Addr};

use anyhow::{Context, Result};
use client_sim::own_relay::OwnRelay;
use codecs::Event;
use serde_json::{Value, json};
use tempfile::TempDir;
use wire::Compression;

use super::{
    events::{Events, MIXED, ZSTD_LAYER, request},
    rows::PageCell,
};

/// Relays that run until this is dropped, by compression.
#[derive(Debug)]
pub(crate) struct Relays {
    by_compression: BTreeMap<String, OwnRelay>,
    _folder: TempDir,
}

impl Relays {
    /// Starts a relay at this address for each compression of the cells.
    ///
    /// # Errors
    /// When a relay does not start, or refuses the compression.
    pub(crate) fn start(events: &Events, cells: &[PageCell], address: Ipv4Addr) -> Result<Relays> {
        let folder = tempfile::TempDir::with_prefix("compare-")
            .context("cannot make a folder for the relay's events")?;
        let file = folder.path().join("events.jsonl");
        let stored: Vec<Event<'static>> = events.in_set(MIXED).into_iter().cloned().collect();
        corpus::write(&file, &stored).context("cannot write the relay's events")?;
        let mut by_compression = BTreeMap::new();
        for cell in cells.iter().filter(|cell| cell.part.is_over_sockets()) {
            let compression = cell.spec.cell.compression.label();
            if by_compression.contains_key(&compression) {
                continue;
            }
            let flags = ["--compression", &*compression, "--keep-expired", "--corpus"];
            let flags: Vec<OsString> =
                flags.into_iter().map(OsString::from).chain([file.clone().into_os_string()]).collect();
            let relay = OwnRelay::spawn(&flags, (address, 0).into())
                .with_context(|| format!("a relay with --compression {compression}"))?;
            by_compression.insert(compression, relay);
        }
        Ok(Relays { by_compression, _folder: folder })
    }

    /// A page's connection to the relay of a cell: row, address, what is to be agreed, and the REQ.
    pub(crate) fn connection(&self, cell: &PageCell) -> Result<Value> {
        let PageCell { spec, row, .. } = cell;
        let batches = if spec.cell.batching.is_some() { ".batched" } else { "" };
        let layer = if matches!(spec.cell.compression, Compression::Zstd(_)) { ZSTD_LAYER } else { "" };
        let token = format!("{}{batches}{layer}", spec.cell.format.spec().token);
        let request = request(spec.cell.format)?;
        let deflates = matches!(spec.cell.compression, Compression::Deflate(_));
        let compression = spec.cell.compression.label();
        let relay = self.by_compression.get(&compression).context("each compression has a relay")?;
        Ok(json!({
            "id": spec.id, "row": row.name, "url": relay.url, "token": token, "deflates": deflates, "request": request,
        }))
    }
}
