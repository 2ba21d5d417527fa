//! LocalRelay of nostr-sdk. Usage: local-relay ADDRESS [tuned]

use std::net::SocketAddr;

use nostr_relay_builder::prelude::*;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr = arguments.next().expect("an address").parse()?;
    let mut builder = RelayBuilder::default().addr(address.ip()).port(address.port());
    if arguments.next().as_deref() == Some("tuned") {
        let options = MemoryDatabaseOptions { events: true, max_events: None };
        builder = builder
            .rate_limit(RateLimit { max_reqs: 100_000, notes_per_minute: 100_000_000 })
            .database(MemoryDatabase::with_opts(options));
    }
    let relay = LocalRelay::new(builder);
    relay.run().await?;
    std::future::pending().await
}
