//! The opening handshakes, which are tungstenite's, with the extension negotiated in them.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::{
    accept_hdr_async, client_async,
    tungstenite::{
        client::IntoClientRequest,
        handshake::{
            client::Response as ClientResponse,
            server::{ErrorResponse, Request, Response},
        },
        http::{HeaderValue, StatusCode, header::SEC_WEBSOCKET_EXTENSIONS},
        protocol::{Role, WebSocketConfig},
    },
};

use crate::{
    error::Error,
    head::HeadOnly,
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
    stream: S,
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
    let websocket = accept_hdr_async(HeadOnly::new(stream), decide).await?;
    let (stream, early) = websocket.into_inner().into_parts();
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
    stream: S,
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
    let (websocket, response) = client_async(request, HeadOnly::new(stream)).await?;
    let agreed = negotiate::check_answer(&negotiate::extensions(response.headers()), offered)?;
    let (stream, early) = websocket.into_inner().into_parts();
    let websocket = WebSocket::from_partially_read(stream, early, Role::Client, agreed, config).await;
    Ok((websocket, response))
}

fn bad_request(error: &NegotiationError) -> ErrorResponse {
    let mut response = ErrorResponse::new(Some(error.to_string()));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}
