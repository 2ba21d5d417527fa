//! permessage-deflate ([RFC 7692]) for [tokio-tungstenite], which has no compression of its own.
//!
//! [`accept`] and [`connect`] do the WebSocket handshake over any byte stream of tokio and
//! negotiate the extension. The [`WebSocket`] that they return is used as a `WebSocketStream` is: a
//! `Stream` and a `Sink` of tungstenite's messages, compressed where both ends agreed.
//!
//! ```
//! use futures::{SinkExt, StreamExt};
//! use tungstenite_deflate::{DeflateParams, accept, connect, tungstenite::Message};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tungstenite_deflate::Error> {
//! let (near, far) = tokio::io::duplex(4096); // or two TcpStreams
//! let enabled = [DeflateParams::DEFAULT];
//! let (client, server) = tokio::join!(
//!     connect("ws://localhost/", near, Some(&DeflateParams::DEFAULT), Default::default()),
//!     accept(far, &enabled, Default::default()),
//! );
//! let ((mut client, _response), mut server) = (client?, server?);
//! assert_eq!(client.deflate(), Some(&DeflateParams::DEFAULT));
//!
//! client.send(Message::text("hello hello hello")).await?;
//! assert_eq!(server.next().await.unwrap()?, Message::text("hello hello hello"));
//! # Ok(())
//! # }
//! ```
//!
//! An end that does its own handshake uses the functions of [`negotiate`] for the header and
//! [`WebSocket::from_partially_read`] behind it.
//!
//! A server that sends one payload to many peers compresses it once: [`WebSocket::start_shared`].
//!
//! # How it works
//!
//! tungstenite refuses RSV1, the bit that marks a compressed message (RFC 7692 §6), when it reads.
//! A layer below tungstenite (`tap.rs`) clears the bit and remembers it; `deflate.rs` restores the
//! message that comes out above. What a server sends does not pass through tungstenite, except for
//! control frames (`frames.rs`).
//!
//! [RFC 7692]: https://www.rfc-editor.org/rfc/rfc7692
//! [tokio-tungstenite]: https://docs.rs/tokio-tungstenite

#![warn(missing_docs)]

mod deflate;
mod error;
mod frames;
mod handshake;
mod header;
pub mod negotiate;
mod params;
mod scratch;
mod shared;
mod tap;
mod websocket;

/// The examples of the README, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use deflate::CompressionMemory;
pub use error::Error;
pub use handshake::{accept, connect};
pub use params::{DeflateParams, Direction};
pub use shared::SharedDeflate;
pub use tokio_tungstenite::tungstenite;
pub use websocket::WebSocket;
