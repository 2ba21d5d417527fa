//! Negotiation before both ends talk, and the transport of their bytes afterwards.
//!
//! A client makes an [`Offer`], a relay has its [`Support`]; the WebSocket handshake turns them
//! into an [`Agreement`] on a wire format and a [`Compression`], by the pure functions of
//! [`negotiate`]. A [`Connection`] then carries whole messages, compressed as agreed, and counts
//! its [`Traffic`] at the socket. Nothing here knows what an event means.
//!
//! ```
//! use wire::{Accepted, CloseCode, Offer, ServerConfig, Support, WireLimits};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let compression = "zstd".parse()?;
//! let formats = vec!["cbor-packed".parse()?];
//! let support =
//!     Support { formats: formats.clone(), compressions: vec![compression], batched: false };
//! let limits = WireLimits::default();
//! let config = ServerConfig { support, limits, relay_info: "{}".into(), tls: None };
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let url = format!("ws://{}", listener.local_addr()?);
//!
//! let offer = Offer { formats, batched: false, compression };
//! let (client, accepted) = tokio::join!(wire::connect(&url, &offer, &limits), async {
//!     wire::accept(listener.accept().await?.0, &config).await
//! });
//! let (mut client, Accepted::WebSocket(mut relay)) = (client?, accepted?) else { panic!("no WebSocket") };
//! assert_eq!(client.agreement().token.as_deref(), Some("nostr.cbor-packed.v1+zstd"));
//!
//! relay.feed("a message in the agreed format".into()).await?;
//! relay.flush().await?;
//! assert_eq!(client.next().await.unwrap()?.payload, "a message in the agreed format");
//! tokio::join!(client.close(CloseCode::Normal, ""), relay.next());
//! # Ok(())
//! # }
//! ```
//!
//! WebSocket framing and permessage-deflate are `tungstenite-deflate`'s; `zstd.rs` compresses
//! messages above them. Plain and compressed messages take the same path through frames and
//! buffers.
//!
//! To add a compression, add a variant to [`Compression`] with complete parameters, a way to agree
//! on it to `negotiate.rs`, and its two directions to `connection.rs`.

#![warn(missing_docs)]

mod agreement;
mod client;
mod connection;
mod deflate;
pub mod dictionary;
mod document;
mod error;
mod http;
mod memory;
pub mod negotiate;
mod pages;
mod server;
mod shared;
mod socket;
mod tamper;
mod tls;
mod traffic;
mod zstd;

pub use self::zstd::zstd_message;
pub use agreement::{Agreement, Offer, Support, Token, WireLimits};
pub use client::{Endpoint, connect};
pub use connection::{Connection, Message};
pub use document::{Document, document, fetch};
pub use error::WireError;
pub use http::list as header_list;
pub use memory::in_memory;
pub use pages::{answer_metrics, serve_pages};
pub use server::{Accepted, Incoming, ServerConfig, accept};
pub use shared::Shared;
pub use tamper::Tamper;
pub use terms::{
    Compression, CompressionError, Dictionary, Header, HeaderError, RelayUrl, RelayUrlError, ZstdMode,
    ZstdParams, without_password,
};
pub use tls::{ServerTls, TlsError};
pub use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
pub use traffic::{Flow, Traffic};
pub use tungstenite_deflate::CompressionMemory;

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn nagle_is_off_at_both_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let support = Support::default();
        let config =
            ServerConfig { support, limits: WireLimits::default(), relay_info: String::new(), tls: None };
        let offer = Offer { batched: false, formats: vec![], compression: Compression::None };
        let (client, accepted) = tokio::join!(connect(&url, &offer, &config.limits), async {
            accept(listener.accept().await.unwrap().0, &config).await
        });
        let Accepted::WebSocket(relay) = accepted.unwrap() else { panic!("a WebSocket was expected") };
        assert!(client.unwrap().tcp().nodelay());
        assert!(relay.tcp().nodelay());
    }
}
