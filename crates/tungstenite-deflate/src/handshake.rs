//! The opening handshakes, which are tungstenite's, with the extension negotiated in them.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, join, sink};
use tokio_tungstenite::{
    accept_hdr_async, client_async,
    tungstenite::{
        self,
        client::IntoClientRequest,
        error::ProtocolError,
        handshake::{
            client::{Response as ClientResponse, generate_request},
            server::{ErrorResponse, Request, Response},
        },
        http::{HeaderValue, StatusCode, header::SEC_WEBSOCKET_EXTENSIONS},
        protocol::{Role, WebSocketConfig},
    },
};

use crate::{
    error::Error,
    negotiate::{self, NegotiationError},
    params::DeflateParams,
    websocket::WebSocket,
};

/// Takes an incoming byte stream through the handshake. The client gets permessage-deflate if it
/// offers the extension with parameters that suit one of `enabled` ([`negotiate::accept`]);
/// [`WebSocket::deflate`] has the outcome.
///
/// # Errors
/// A request that is no WebSocket handshake, or whose extensions are malformed; the latter is
/// answered with HTTP 400.
pub async fn accept<S>(
    mut stream: S,
    enabled: &[DeflateParams],
    config: Option<WebSocketConfig>,
) -> Result<WebSocket<S>, Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut agreed = None;
    #[expect(clippy::result_large_err, reason = "tungstenite's callback")]
    let decide = |request: &Request, mut response: Response| {
        let accepted = negotiate::accept(&negotiate::extensions(request.headers()), enabled);
        if let Some((answer, params)) = accepted.map_err(|error| bad_request(&error))? {
            let answer = HeaderValue::from_str(&answer).expect("the parameters are visible ASCII");
            response.headers_mut().insert(SEC_WEBSOCKET_EXTENSIONS, answer);
            agreed = Some(params);
        }
        Ok(response)
    };
    let (head, early) = read_head(&mut stream).await?;
    accept_hdr_async(join(&head[..], &mut stream), decide).await?;
    Ok(WebSocket::from_partially_read(stream, early, Role::Server, agreed, config).await)
}

/// Makes the handshake over a byte stream to the server and offers permessage-deflate with the
/// parameters of `offered`. The server may decline; [`WebSocket::deflate`] has the outcome. Returns
/// the server's response, too.
///
/// # Errors
/// A request or a response that is no WebSocket handshake, or extensions that were not offered.
pub async fn connect<S, R>(
    request: R,
    mut stream: S,
    offered: Option<&DeflateParams>,
    config: Option<WebSocketConfig>,
) -> Result<(WebSocket<S>, ClientResponse), Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    R: IntoClientRequest,
{
    let mut request = request.into_client_request()?;
    if let Some(params) = offered {
        let offer =
            HeaderValue::from_str(&negotiate::offer(params)).expect("the parameters are visible ASCII");
        request.headers_mut().insert(SEC_WEBSOCKET_EXTENSIONS, offer);
    }
    stream.write_all(&generate_request(request.clone())?.0).await.map_err(tungstenite::Error::Io)?;
    stream.flush().await.map_err(tungstenite::Error::Io)?;
    let (head, early) = read_head(&mut stream).await?;
    // It checks the answer to the key of the request.
    let (_, response) = client_async(request, join(&head[..], sink())).await?;
    let agreed = negotiate::check_answer(&negotiate::extensions(response.headers()), offered)?;
    let websocket = WebSocket::from_partially_read(stream, early, Role::Client, agreed, config).await;
    Ok((websocket, response))
}

fn bad_request(error: &NegotiationError) -> ErrorResponse {
    let mut response = ErrorResponse::new(Some(error.to_string()));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

/// Far more than any head has.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// The peer's HTTP head, and the bytes that came with it. In a server, tungstenite's handshake rejects such
/// bytes. In a client, it would read compressed frames among them.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Result<(Vec<u8>, Vec<u8>), tungstenite::Error> {
    let mut head = Vec::with_capacity(1024);
    loop {
        let before = head.len();
        if stream.read_buf(&mut head).await.map_err(tungstenite::Error::Io)? == 0 {
            return Err(ProtocolError::HandshakeIncomplete.into());
        }
        // An empty line ends it, with or without CR.
        let end = (before.saturating_sub(2)..head.len()).find_map(|at| match head[at..] {
            [b'\n', b'\n', ..] => Some(at + 2),
            [b'\n', b'\r', b'\n', ..] => Some(at + 3),
            _ => None,
        });
        if let Some(end) = end {
            let early = head.split_off(end);
            return Ok((head, early));
        }
        if head.len() > MAX_HEAD_BYTES {
            return Err(tungstenite::Error::AttackAttempt);
        }
    }
}
