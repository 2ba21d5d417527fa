//! One connection of the relay without its socket: messages in, messages out, time passed in.
//!
//! In the manner of `quinn-proto`, nothing here waits, reads a clock or knows a runtime, so that a
//! relay and its connections can be driven in one thread from a seed. Equal calls give equal bytes.
//!
//! - [`Relay`] is what all connections share; [`Relay::connect`] opens one.
//! - [`Connection::receive`] takes a message of the client.
//! - [`Connection::poll_transmit`] gives the messages of the next flush: answers, stored events,
//!   and what other connections published meanwhile. Leaving them is what a peer does that does not
//!   read.
//! - [`Connection::transmit`] sends them by a [`wire::Connection`], as a session of the relay does.
//! - [`Connection::next_timer`] and [`Connection::on_timer`] are for events that are held for a
//!   batch.
//! - [`Connection::poll_stop`] says whether the relay ends the connection.
//!
//! ```
//! use std::{sync::Arc, time::Instant};
//!
//! use codecs::{Format, Opcode};
//! use relay_sim::{
//!     Config,
//!     machine::{Opening, Relay, Time},
//! };
//!
//! let relay = Arc::new(Relay::new(Config::default())?);
//! let mut client = relay.connect(&Opening::new(Format::JSON));
//! let time = Time { instant: Instant::now(), unix_seconds: 1_700_000_000 };
//! client.receive(br#"["REQ","a",{"kinds":[1]}]"#, Opcode::Text, time).unwrap();
//! assert_eq!(client.poll_transmit(time), [&br#"["EOSE","a"]"#[..]]);
//! assert!(client.poll_transmit(time).is_empty());
//! # Ok::<(), codecs::UnknownName>(())
//! ```

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Instant,
};

use codecs::Format;
use wire::CloseCode;

use crate::fanout::{Outbox, Stop};
pub use crate::relay::Relay;

mod connection;

pub use connection::Connection;
pub(crate) use connection::{Broken, Progress};

/// An instant, by the clock that measures spans and by the one that dates events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time {
    /// For batches.
    pub instant: Instant,
    /// Seconds since 1970, for what events say of time (NIP-42).
    pub unix_seconds: u64,
}

/// The agreement with which a connection opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// The wire format.
    pub format: Format,
    /// Whether events may come together in EVENTS messages.
    pub batched: bool,
    /// Whether its wire compresses once what messages have in common
    /// ([`wire::Connection::shares`]).
    pub shares: bool,
    /// The relay's address, which is one of its names in AUTH.
    pub local: IpAddr,
    /// The AUTH challenge, in a relay with [`Config::auth`](crate::Config::auth). Random, and new
    /// for each connection (NIP-42).
    pub challenge: [u8; 16],
}

impl Opening {
    /// A connection to 127.0.0.1 that speaks `format`, without batches and shared compression. Its
    /// challenge is zeros: a relay with AUTH needs another.
    pub fn new(format: Format) -> Opening {
        let local = Ipv4Addr::LOCALHOST.into();
        Opening { format, batched: false, shares: false, local, challenge: [0; 16] }
    }
}

/// How the relay ends a connection: the content of its Close frame (RFC 6455 §5.5.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Close {
    /// Why, for programs.
    pub code: CloseCode,
    /// Why, for people.
    pub reason: String,
}

impl Close {
    pub(crate) fn new(code: CloseCode, reason: impl Into<String>) -> Close {
        Close { code, reason: reason.into() }
    }
}

impl From<Stop> for Close {
    fn from(stop: Stop) -> Close {
        match stop {
            Stop::SlowConsumer => Close::new(CloseCode::Again, "slow consumer: too much was left unread"),
            Stop::Shutdown => Close::new(CloseCode::Away, "the relay stops"),
        }
    }
}

impl Relay {
    /// Opens a connection, whose first message may be due already.
    pub fn connect(self: &Arc<Self>, opening: &Opening) -> Connection {
        let outbox = Outbox::new(self.config.outbox_bytes);
        Connection::new(Arc::clone(self), outbox, opening, self.next_connection())
    }
}
