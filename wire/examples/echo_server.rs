//! A WebSocket server that sends every message back, with permessage-deflate for whoever offers it.
//!
//! usage: `echo_server [ADDRESS]`; it prints the address it listens on. `conformance/run` lets the Autobahn testsuite
//! loose on it.
#![expect(clippy::print_stdout, reason = "its output is how it is used")]

use std::{env, error::Error};

use codecs::Format;
use tokio::net::{TcpListener, TcpStream};
use wire::{Accepted, Compression, DeflateParams, ServerConfig, Support, WireLimits};

/// The testsuite sends messages of 16 MiB.
const MAX_MESSAGE_BYTES: usize = 32 << 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    let listener = TcpListener::bind(address).await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(echo(stream));
    }
}

async fn echo(stream: TcpStream) {
    let config = ServerConfig {
        support: Support {
            formats: vec![Format::JSON],
            compressions: vec![Compression::Deflate(DeflateParams::STANDING)],
            batched: false,
            strict: false,
        },
        limits: WireLimits { max_message_bytes: MAX_MESSAGE_BYTES, ..WireLimits::default() },
        relay_info: "{}".into(),
        tls: None,
    };
    let mut connection = match wire::accept(stream, &config).await {
        Ok(Accepted::WebSocket(connection)) => *connection,
        Ok(Accepted::Http) => return,
        Err(error) => return eprintln!("{error}"),
    };
    if let Err(error) = send_back(&mut connection).await
        && let Some(code) = error.close_code()
    {
        connection.close(code, &error.to_string()).await;
    }
}

async fn send_back(connection: &mut wire::Connection) -> Result<(), wire::WireError> {
    while let Some(message) = connection.next().await {
        connection.feed_message(message?).await?;
        connection.flush().await?;
    }
    Ok(())
}
