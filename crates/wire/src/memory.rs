//! Both ends of a connection in one thread.

use tokio_tungstenite::tungstenite::protocol::Role;

use crate::{
    agreement::{Agreement, Offer, Support, WireLimits},
    connection::{Connection, HandshakeBytes},
    error::WireError,
    negotiate,
    socket::{Counted, Socket},
};

/// Most bytes on their way: more than any thread leaves unread that drives both ends.
const PIPE_BYTES: usize = 1 << 30;

/// The client's and the relay's end of a connection in memory, for load in one thread. Negotiation,
/// frames, compression and buffers are a real connection's, without a socket. Nothing waits for a
/// runtime.
///
/// ```
/// use futures::FutureExt;
/// use wire::{Offer, Support, WireLimits};
///
/// let compression = "deflate".parse()?;
/// let offer = Offer { formats: vec![], batched: false, compression };
/// let support =
///     Support { formats: vec![], compressions: vec![compression], batched: false };
/// let limits = WireLimits::default();
/// let pair = wire::in_memory(&offer, &support, [&limits, &limits]).now_or_never().unwrap();
/// let (mut client, mut relay) = pair?;
/// client.feed("[]".into()).now_or_never().unwrap()?;
/// client.flush().now_or_never().unwrap()?;
/// assert_eq!(relay.next().now_or_never().unwrap().unwrap()?.payload, "[]");
/// assert!(relay.next().now_or_never().is_none(), "there is no more");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`WireError::Handshake`] when the relay refuses the offer.
pub async fn in_memory(
    offer: &Offer,
    support: &Support,
    [client_limits, relay_limits]: [&WireLimits; 2],
) -> Result<(Connection, Connection), WireError> {
    let asked = negotiate::request(std::slice::from_ref(offer));
    let agreed = negotiate::accept(Some(&asked.protocols), asked.extensions.as_deref(), support)
        .map_err(|refusal| WireError::handshake(refusal.to_string()))?;
    let answer = negotiate::check_answer(
        std::slice::from_ref(offer),
        agreed.token.as_deref(),
        agreed.extensions.as_deref(),
    );
    let answer = answer.map_err(WireError::handshake)?;
    let (client, relay) = tokio::io::duplex(PIPE_BYTES);
    let end = async |pipe, role, agreement: Agreement, limits| {
        let socket = Socket::Plain(Counted::in_memory(pipe));
        let none = HandshakeBytes { sent: 0, received: 0 };
        Connection::new(socket, role, Vec::new(), agreement, limits, none).await
    };
    Ok((
        end(client, Role::Client, answer, client_limits).await?,
        end(relay, Role::Server, agreed, relay_limits).await?,
    ))
}
