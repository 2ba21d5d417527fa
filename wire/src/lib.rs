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
mod deflate;
mod dictionary;
mod error;
mod extensions;
mod http;
pub mod negotiate;
mod scratch;
mod server;
mod socket;
mod tap;
mod tls;
mod traffic;
mod zstd;

pub use agreement::{Agreement, Layer, Offer, Support, Token, WireLimits};
pub use client::{connect, connect_over, connect_with};
pub use compression::{
    Compression, CompressionError, CompressionMemory, DeflateParams, Direction, ZstdMode, ZstdParams,
};
pub use connection::{Connection, Message};
pub use deflate::SharedDeflate;
pub use dictionary::{Dictionary, DictionaryError, DictionaryId, NotADictionaryId};
pub use error::{CloseCode, WireError};
pub use server::{Accepted, ServerConfig, accept};
pub use tls::{ClientTls, ServerTls, TlsError};
pub use traffic::{Flow, Traffic};
