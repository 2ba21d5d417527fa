//! What do both ends agree on before they talk, and how do the bytes travel afterwards?
//!
//! A client makes an [`Offer`], a relay has its [`Support`]; the WebSocket handshake turns them into an
//! [`Agreement`] on a wire format and a [`Compression`], by the pure functions of [`negotiate`]. After that a
//! [`Connection`] carries whole messages, compressed as agreed, and counts its [`Traffic`] where it meets the socket.
//! Nothing here knows what an event means.
//!
//! WebSocket framing is tungstenite's. It has no compression, so a thin layer under it (`tap.rs`) takes the
//! mark of a compressed message (RFC 7692, RSV1) away before tungstenite would refuse it; `deflate.rs` and
//! `zstd.rs` do the work. Plain and compressed messages take the same path through frames and buffers.
//!
//! A [`Dictionary`] is what both ends of `zstd-dict` have beforehand.
//!
//! To add a compression, add a variant to [`Compression`] with complete parameters, a way to agree on it in
//! `negotiate.rs`, and its two directions to `Transform` in `connection.rs`.

mod agreement;
mod client;
mod compression;
mod connection;
mod dictionary;
mod error;
mod http;
pub mod negotiate;
mod server;
mod socket;
mod tls;
mod traffic;
mod zstd;

pub use agreement::{Agreement, Layer, Offer, Support, Token, WireLimits};
pub use client::{connect, connect_over, connect_with};
pub use compression::{Compression, CompressionError, ZstdMode, ZstdParams};
pub use connection::{Connection, Message};
pub use dictionary::{Dictionary, DictionaryError, DictionaryId, NotADictionaryId};
pub use error::{CloseCode, WireError};
pub use server::{Accepted, ServerConfig, accept};
pub use tls::{ClientTls, ServerTls, TlsError};
pub use traffic::{Flow, Traffic};
pub use tungstenite_deflate::{CompressionMemory, DeflateParams, Direction, SharedDeflate};

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn nagle_is_off_at_both_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let support = Support { formats: vec![], compressions: vec![], batched: false, strict: false };
        let config =
            ServerConfig { support, limits: WireLimits::default(), relay_info: String::new(), tls: None };
        let offer = Offer { batched: false, formats: vec![], compression: Compression::None };
        let (client, accepted) = tokio::join!(connect(&url, &offer, &config.limits), async {
            accept(listener.accept().await.unwrap().0, &config).await
        });
        let Accepted::WebSocket(relay) = accepted.unwrap() else { panic!("a WebSocket was expected") };
        assert!(client.unwrap().tcp().stream().nodelay().unwrap());
        assert!(relay.tcp().stream().nodelay().unwrap());
    }
}
