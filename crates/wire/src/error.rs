//! Errors of handshakes and connections, and their close codes.

use std::io;

use tokio_tungstenite::tungstenite::{
    self,
    error::{CapacityError, ProtocolError},
    protocol::frame::coding::CloseCode,
};

/// Why a handshake or a connection failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The socket failed.
    #[error(transparent)]
    Io(io::Error),
    /// The handshake failed.
    #[error("handshake failed: {reason}")]
    Handshake {
        /// The expected and the received.
        reason: String,
        /// The peer's HTTP status, if other than 101.
        status: Option<u16>,
    },
    /// The peer broke RFC 6455, RFC 7692 or the framing of the zstd layer.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// A frame of a type that the agreement excludes.
    #[error("{0}")]
    Unsupported(&'static str),
    /// A message over the limit, before or after inflation.
    #[error("message over the limit of {limit_bytes} bytes{}", if *.inflated { " after inflation" } else { "" })]
    TooLarge {
        /// The limit.
        limit_bytes: usize,
        /// Whether only the inflated message is over the limit.
        inflated: bool,
    },
    /// Compressed bytes that do not inflate.
    #[error("compressed message does not inflate: {0}")]
    Inflate(String),
    /// A text message that is not UTF-8.
    #[error("text message is not UTF-8")]
    Utf8,
    /// The connection is over. From [`crate::Connection::next`]: the peer closed it, but not in
    /// order.
    #[error("closed with {code}{}{reason}", if .reason.is_empty() { "" } else { ": " })]
    Closed {
        /// The peer's close code; 1005 if it gave none, 1006 if it sent no Close frame (RFC 6455
        /// §7.4.1).
        code: u16,
        /// The peer's reason, or a description.
        reason: String,
    },
}

impl From<io::Error> for WireError {
    /// A refused connection names the remedy.
    fn from(error: io::Error) -> WireError {
        WireError::Io(match error.kind() {
            io::ErrorKind::ConnectionRefused => io::Error::new(
                error.kind(),
                "connection refused: nothing listens there, or a firewall refuses; start the relay, or correct host and \
                 port",
            ),
            _ => error,
        })
    }
}

impl WireError {
    /// The code for [`crate::Connection::close`]; `None` if the peer is gone.
    ///
    /// ```
    /// use wire::{CloseCode, WireError};
    ///
    /// let error = WireError::TooLarge { limit_bytes: 1 << 20, inflated: true };
    /// assert_eq!(error.close_code(), Some(CloseCode::Size));
    /// ```
    pub fn close_code(&self) -> Option<CloseCode> {
        match self {
            WireError::Protocol(_) => Some(CloseCode::Protocol),
            WireError::Unsupported(_) => Some(CloseCode::Unsupported),
            WireError::TooLarge { .. } => Some(CloseCode::Size),
            WireError::Inflate(_) | WireError::Utf8 => Some(CloseCode::Invalid),
            WireError::Io(_) | WireError::Handshake { .. } | WireError::Closed { .. } => None,
        }
    }

    pub(crate) fn handshake(reason: impl Into<String>) -> WireError {
        WireError::Handshake { reason: reason.into(), status: None }
    }
}

impl From<tungstenite_deflate::Error> for WireError {
    fn from(error: tungstenite_deflate::Error) -> Self {
        use tungstenite_deflate::Error;
        match error {
            Error::WebSocket(error) => error.into(),
            Error::TooLarge { limit_bytes } => WireError::TooLarge { limit_bytes, inflated: true },
            Error::Inflate(reason) => WireError::Inflate(reason),
            Error::Utf8 => WireError::Utf8,
            other => WireError::Protocol(other.to_string()),
        }
    }
}

impl From<tungstenite::Error> for WireError {
    fn from(error: tungstenite::Error) -> Self {
        use tungstenite::Error;
        match error {
            Error::Io(error) => WireError::Io(error),
            Error::Capacity(CapacityError::MessageTooLong { max_size, .. }) => {
                WireError::TooLarge { limit_bytes: max_size, inflated: false }
            }
            Error::Utf8(_) => WireError::Utf8,
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => WireError::Closed {
                code: 1006,
                reason: "the peer ended the connection without a Close frame".into(),
            },
            Error::ConnectionClosed
            | Error::AlreadyClosed
            | Error::Protocol(ProtocolError::SendAfterClosing) => {
                WireError::Closed { code: 1005, reason: "the connection is closed".into() }
            }
            Error::Protocol(error) => WireError::Protocol(error.to_string()),
            other => WireError::Protocol(other.to_string()),
        }
    }
}
