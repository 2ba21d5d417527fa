//! A WebSocket client that sends every message back: the peer of the Autobahn testsuite's fuzzing server, whose cases
//! it runs one after the other.
//!
//! usage: `echo_client ws://ADDRESS AGENT [client_no_context_takeover]`, the latter to offer that parameter of
//! permessage-deflate besides.
#![expect(clippy::print_stdout, reason = "its output is how it is used")]

use std::{env, error::Error};

use codecs::Format;
use wire::{Compression, Connection, DeflateParams, Direction, Offer, WireError, WireLimits};

/// The testsuite sends messages of 16 MiB.
const MAX_MESSAGE_BYTES: usize = 32 << 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (server, agent, to_relay) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [server, agent] => (server, agent, Direction::STANDING),
        [server, agent, "client_no_context_takeover"] => (server, agent, Direction::NO_TAKEOVER),
        _ => return Err("usage: echo_client ws://ADDRESS AGENT [client_no_context_takeover]".into()),
    };
    let mut count = connect(&format!("{server}/getCaseCount"), to_relay).await?;
    let message = count.next().await.ok_or("the server did not say how many cases it has")??;
    let cases: u32 = std::str::from_utf8(&message.payload)?.parse()?;
    while count.next().await.is_some() {}
    for case in 1..=cases {
        let mut connection =
            connect(&format!("{server}/runCase?case={case}&agent={agent}"), to_relay).await?;
        if let Err(error) = echo(&mut connection).await
            && let Some(code) = error.close_code()
        {
            connection.close(code, &error.to_string()).await;
        }
    }
    let mut update = connect(&format!("{server}/updateReports?agent={agent}"), to_relay).await?;
    while update.next().await.is_some() {}
    println!("{cases} cases ran");
    Ok(())
}

async fn connect(url: &str, to_relay: Direction) -> Result<Connection, WireError> {
    let compression = Compression::Deflate(DeflateParams { to_relay, ..DeflateParams::STANDING });
    let limits = WireLimits { max_message_bytes: MAX_MESSAGE_BYTES, ..WireLimits::default() };
    wire::connect(url, &Offer { batched: false, formats: vec![Format::JSON], compression }, &limits).await
}

async fn echo(connection: &mut Connection) -> Result<(), WireError> {
    while let Some(message) = connection.next().await {
        connection.feed_message(message?).await?;
        connection.flush().await?;
    }
    Ok(())
}
