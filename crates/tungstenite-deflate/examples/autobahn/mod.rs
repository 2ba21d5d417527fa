//! Shared by both ends in the Autobahn testsuite.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use tokio::{
    net::TcpStream,
    time::{error::Elapsed, timeout},
};
use tungstenite_deflate::{
    Error, WebSocket,
    tungstenite::protocol::{CloseFrame, WebSocketConfig},
};

/// The testsuite sends messages of 16 MiB.
const MAX_MESSAGE_BYTES: usize = 32 << 20;

const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn config() -> Option<WebSocketConfig> {
    let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE_BYTES));
    Some(config.max_frame_size(Some(MAX_MESSAGE_BYTES)))
}

/// Sends messages back until the peer closes; closes with the fitting code after an error.
pub(crate) async fn echo(websocket: &mut WebSocket<TcpStream>) {
    if let Err(error) = send_back(websocket).await
        && let Some(code) = error.close_code()
    {
        let frame = CloseFrame { code, reason: error.to_string().into() };
        // A peer that is silent after the timeout is left.
        let _: Result<(), Elapsed> = timeout(CLOSE_TIMEOUT, websocket.close(Some(frame))).await;
    }
}

async fn send_back(websocket: &mut WebSocket<TcpStream>) -> Result<(), Error> {
    while let Some(message) = websocket.next().await.transpose()? {
        if message.is_text() || message.is_binary() {
            websocket.send(message).await?;
        }
    }
    Ok(())
}
