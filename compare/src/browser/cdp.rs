//! The DevTools protocol (<https://chromedevtools.github.io/devtools-protocol>): calls one after
//! the other over one WebSocket.
//!
//! The domain `Network` must stay disabled: with it the renderer reports each WebSocket frame,
//! and that would be measured, too.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{self, Message, protocol::WebSocketConfig},
};

use super::error::BrowserError;

/// Limit of a call: a step lasts seconds, a comparison of all events tens of them in a debug build.
const PATIENCE: Duration = Duration::from_secs(120);
/// Largest answer; those of the calls here are below a kilobyte.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// A connection to a browser.
#[derive(Debug)]
pub(crate) struct Cdp {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    calls: u64,
}

impl Cdp {
    /// Connects to `ws://127.0.0.1:PORT/devtools/browser/ID`.
    pub(crate) async fn connect(url: &str) -> Result<Cdp, BrowserError> {
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_ANSWER_BYTES))
            .max_frame_size(Some(MAX_ANSWER_BYTES));
        let connected = connect_async_with_config(url, Some(config), true).await;
        let (socket, _) = connected.map_err(|error| BrowserError::Ended(error.to_string()))?;
        Ok(Cdp { socket, calls: 0 })
    }

    /// Calls a method, of the browser or of an attached page, and returns its result.
    pub(crate) async fn call(
        &mut self,
        session: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<Value, BrowserError> {
        self.calls += 1;
        let mut request = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = session {
            request["sessionId"] = json!(session);
        }
        let text = request.to_string();
        let silent = || BrowserError::Silent { method: method.to_owned(), within: PATIENCE };
        let mut answer = time::timeout(PATIENCE, async {
            self.socket.send(Message::text(text)).await.map_err(ended)?;
            self.answer().await
        })
        .await
        .map_err(|_| silent())??;
        if let Some(error) = answer.get("error") {
            let why = error["message"].as_str().unwrap_or("without a reason").to_owned();
            return Err(BrowserError::Refused { method: method.to_owned(), why });
        }
        Ok(answer["result"].take())
    }

    /// The answer to the last call; events in between are passed over.
    async fn answer(&mut self) -> Result<Value, BrowserError> {
        loop {
            let message = self.socket.next().await;
            let message = message.ok_or_else(|| BrowserError::Ended("its connection closed".to_owned()))?;
            let Message::Text(text) = message.map_err(ended)? else { continue };
            let Ok(answer) = serde_json::from_str::<Value>(&text) else {
                return Err(BrowserError::Ended("it sent what is not JSON".to_owned()));
            };
            if answer["method"] == "Inspector.targetCrashed" {
                return Err(BrowserError::Ended("its page crashed".to_owned()));
            }
            if answer["id"] == json!(self.calls) {
                return Ok(answer);
            }
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn ended(error: tungstenite::Error) -> BrowserError {
    BrowserError::Ended(error.to_string())
}
