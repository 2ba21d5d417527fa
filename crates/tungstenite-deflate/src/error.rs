//! Why a handshake or a connection fails.

use tokio_tungstenite::tungstenite::{
    self,
    error::{CapacityError, ProtocolError},
    protocol::frame::coding::CloseCode,
};

use crate::negotiate::NegotiationError;

/// Why a handshake or a connection failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The byte stream, the handshake or the framing failed.
    #[error(transparent)]
    WebSocket(#[from] tungstenite::Error),
    /// The server's answer to the offer is malformed or was not offered.
    #[error(transparent)]
    Negotiation(#[from] NegotiationError),
    /// A compressed message that inflates to more than `max_message_size`.
    #[error("message over the limit of {limit_bytes} bytes after inflation")]
    TooLarge {
        /// The limit.
        limit_bytes: usize,
    },
    /// A compressed message that is not a deflate stream.
    #[error("compressed message does not inflate: {0}")]
    Inflate(String),
    /// A compressed text message that is not UTF-8.
    #[error("text message is not UTF-8")]
    Utf8,
}

impl Error {
    /// The code of the Close frame that tells the peer (RFC 6455 §7.4.1); `None` when the
    /// connection is over.
    ///
    /// ```
    /// use tungstenite_deflate::{Error, tungstenite::protocol::frame::coding::CloseCode};
    ///
    /// assert_eq!(Error::TooLarge { limit_bytes: 1 << 20 }.close_code(), Some(CloseCode::Size));
    /// ```
    pub fn close_code(&self) -> Option<CloseCode> {
        use tungstenite::Error as E;
        match self {
            Error::TooLarge { .. } => Some(CloseCode::Size),
            Error::Inflate(_) | Error::Utf8 => Some(CloseCode::Invalid),
            Error::Negotiation(_) => None,
            Error::WebSocket(E::Capacity(CapacityError::MessageTooLong { .. })) => Some(CloseCode::Size),
            Error::WebSocket(E::Utf8(_)) => Some(CloseCode::Invalid),
            Error::WebSocket(E::Protocol(
                ProtocolError::ResetWithoutClosingHandshake | ProtocolError::SendAfterClosing,
            )) => None,
            Error::WebSocket(E::Protocol(_)) => Some(CloseCode::Protocol),
            Error::WebSocket(_) => None,
        }
    }
}
