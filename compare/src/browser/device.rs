//! A device that a person opens the page on: what it is told to do, over one WebSocket, and its
//! answers, which are hostile input.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time;
use tokio_tungstenite::tungstenite::{
    self, Message,
    error::ProtocolError,
    protocol::{CloseFrame, frame::coding::CloseCode},
};

use super::{error::BrowserError, server::Socket};
use report::result::BrowserBlock;

/// Limit of a call: a step lasts seconds, a comparison of all events with `JSON.parse` tens of them
/// on a slow phone.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time for a device to answer the end of its connection.
const LEAVES_WITHIN: Duration = Duration::from_secs(1);
/// Longest text of a device that is kept.
const MAX_TEXT_CHARACTERS: usize = 300;
/// Steps of the clock that a measured time must have, so that its error is below 5 %.
const LEAST_CLOCK_STEPS: u64 = 20;

/// A device until it leaves.
#[derive(Debug)]
pub(crate) struct Device {
    socket: Socket,
    calls: u64,
    /// The step of its clock, once it has said so.
    pub(crate) clock_ns: u64,
}

/// Answer of a device to a call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    id: u64,
    #[serde(default)]
    value: Value,
    error: Option<String>,
}

impl Device {
    pub(crate) fn new(socket: Socket) -> Device {
        Device { socket, calls: 0, clock_ns: 0 }
    }

    /// Opens the page of a block, in a frame of its own.
    pub(crate) async fn open(&mut self) -> Result<(), BrowserError> {
        self.call("open", "").await.map(drop)
    }

    /// Evaluates an expression in the page of the block and returns its value.
    pub(crate) async fn run(&mut self, expression: &str) -> Result<Value, BrowserError> {
        self.call("run", expression).await
    }

    /// Closes the page of the block; says whether it was hidden meanwhile.
    pub(crate) async fn close(&mut self) -> Result<bool, BrowserError> {
        let said = self.call("close", "").await?;
        let hidden = said["hidden"].as_bool();
        hidden.ok_or_else(|| BrowserError::Answer("it does not say whether its page was hidden".to_owned()))
    }

    /// Shows a person what is measured and how far the run is.
    pub(crate) async fn show(&mut self, progress: Value) -> Result<(), BrowserError> {
        let message = json!({ "show": progress }).to_string();
        let shown = time::timeout(PATIENCE, self.socket.send(Message::text(message))).await;
        shown.map_err(|_| BrowserError::DeviceSilent { within: PATIENCE })?.map_err(failed)
    }

    /// Ends the connection, with words for the person.
    pub(crate) async fn stop(mut self, words: &'static str) {
        let frame = CloseFrame { code: CloseCode::Normal, reason: words.into() };
        let end = async {
            self.socket.close(Some(frame)).await.ok();
            // Read on, so that no reset overtakes the words.
            while let Some(Ok(_)) = self.socket.next().await {}
        };
        // A device that has left hears nothing.
        let _ = time::timeout(LEAVES_WITHIN, end).await;
    }

    /// Takes out of a block what the device's clock is too coarse for.
    pub(crate) fn doubt_clock(&self, block: &mut BrowserBlock) {
        let least_ns = LEAST_CLOCK_STEPS.saturating_mul(self.clock_ns);
        block.cold = block.cold.take().filter(|cold| cold.wall_ns >= least_ns);
        if let Some(warm) = block.warm.as_ref().filter(|warm| warm.wall_ns < least_ns) {
            let (step, clock) = (warm.wall_ns as f64 / 1e6, self.clock_ns as f64 / 1e6);
            block.why.push(format!("a step of {step:.1} ms by a clock that moves every {clock:.3} ms"));
        }
    }

    async fn call(&mut self, deed: &str, argument: &str) -> Result<Value, BrowserError> {
        self.calls += 1;
        let message = json!({ "id": self.calls, "deed": deed, "argument": argument }).to_string();
        let answered = async {
            self.socket.send(Message::text(message)).await.map_err(failed)?;
            self.answer().await
        };
        let answered = time::timeout(PATIENCE, answered).await;
        let answer = answered.map_err(|_| BrowserError::DeviceSilent { within: PATIENCE })??;
        if answer.id != self.calls {
            let why = format!("it answers call {} where {} was asked", answer.id, self.calls);
            return Err(BrowserError::Answer(why));
        }
        match answer.error {
            Some(why) => {
                let expression = format!("{deed} {argument}").chars().take(80).collect();
                Err(BrowserError::Page { expression, why: plain(&why) })
            }
            None => Ok(plainly(answer.value)),
        }
    }

    async fn answer(&mut self) -> Result<Answer, BrowserError> {
        loop {
            let message = self.socket.next().await;
            let message =
                message.ok_or_else(|| BrowserError::DeviceLeft("its connection ended".to_owned()))?;
            match message.map_err(failed)? {
                Message::Text(text) => {
                    return serde_json::from_str(&text)
                        .map_err(|error| BrowserError::Answer(plain(&error.to_string())));
                }
                Message::Binary(_) => return Err(BrowserError::Answer("it is not text".to_owned())),
                Message::Close(_) => return Err(BrowserError::DeviceLeft("its page was closed".to_owned())),
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: tungstenite::Error) -> BrowserError {
    match error {
        tungstenite::Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
            BrowserError::DeviceLeft("its page was closed, or its network failed".to_owned())
        }
        tungstenite::Error::Capacity(_) | tungstenite::Error::Protocol(_) | tungstenite::Error::Utf8(_) => {
            BrowserError::Answer(plain(&error.to_string()))
        }
        _ => BrowserError::DeviceLeft(plain(&error.to_string())),
    }
}

/// A device's text for terminals and reports: printable ASCII without the marks of HTML and
/// Markdown, and not too long.
fn plain(text: &str) -> String {
    let is_plain = |c: &char| (c.is_ascii_graphic() || *c == ' ') && !"<>|`[]*\\".contains(*c);
    text.chars().take(MAX_TEXT_CHARACTERS).map(|c| if is_plain(&c) { c } else { '?' }).collect()
}

/// The same for every text in a value.
fn plainly(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(plain(&text)),
        Value::Array(values) => values.into_iter().map(plainly).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (plain(&name), plainly(value))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, LazyLock};

    use tokio::net::TcpStream;
    use tokio::sync::oneshot;
    use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

    use super::*;
    use crate::browser::{events::Events, server::Server};
    use report::result::BrowserStep;

    static EVENTS: LazyLock<Arc<Events>> =
        LazyLock::new(|| Arc::new(Events::read(None, false, &[]).unwrap()));

    /// A device, and its end of the connection.
    async fn connected() -> (Device, WebSocketStream<MaybeTlsStream<TcpStream>>) {
        let (sender, arrival) = oneshot::channel();
        let address = "127.0.0.1:0".parse().unwrap();
        let server = Server::start(Vec::new(), Arc::clone(&EVENTS), address, Some(sender)).await.unwrap();
        let url = format!("{}device", server.url.replacen("http", "ws", 1));
        let (far, _) = connect_async(url).await.unwrap();
        (Device::new(arrival.await.unwrap()), far)
    }

    /// Result of a call when the device answers with this message, or leaves.
    async fn answered(message: Option<Message>) -> Result<Value, BrowserError> {
        let (mut device, mut far) = connected().await;
        let answering = async {
            let Some(Ok(Message::Text(asked))) = far.next().await else { panic!("no call") };
            let asked: Value = serde_json::from_str(&asked).unwrap();
            assert_eq!(asked, json!({ "id": 1, "deed": "run", "argument": "bench.about()" }));
            match message {
                Some(message) => far.send(message).await.unwrap(),
                None => far.close(None).await.unwrap(),
            }
        };
        tokio::join!(device.run("bench.about()"), answering).0
    }

    #[tokio::test]
    async fn an_answer_to_another_call_or_of_another_form_is_refused() {
        for (message, expected) in [
            (Message::text(r#"{"id": 2, "value": 0}"#), "it answers call 2 where 1 was asked"),
            (Message::text(r#"{"id": -1, "value": 0}"#), "invalid value"),
            (Message::text(r#"{"id": 1, "value": 0, "more": 0}"#), "unknown field"),
            (Message::text("[".repeat(1_000)), "invalid type"),
            (Message::text(format!(r#"{{"id": 1, "value": {}"#, "[".repeat(1_000))), "recursion limit"),
            (Message::binary(vec![0; 10]), "it is not text"),
            (Message::text("x".repeat(1 << 16)), "Message too long"),
        ] {
            let Err(BrowserError::Answer(why)) = answered(Some(message)).await else {
                panic!("not refused: {expected}")
            };
            assert!(why.contains(expected), "{why}");
        }
        assert!(matches!(answered(None).await, Err(BrowserError::DeviceLeft(_))));
    }

    #[tokio::test]
    async fn a_time_of_few_steps_of_the_clock_is_no_figure() {
        let (mut device, _far) = connected().await;
        device.clock_ns = 1_000_000;
        let step = |wall_ns| Some(BrowserStep { events: 100, wall_ns, ..BrowserStep::default() });
        let mut block =
            BrowserBlock { cold: step(19_000_000), warm: step(300_000_000), ..BrowserBlock::default() };
        device.doubt_clock(&mut block);
        assert!(block.cold.is_none() && block.why.is_empty(), "{block:?}");
        let mut block =
            BrowserBlock { cold: step(20_000_000), warm: step(10_000_000), ..BrowserBlock::default() };
        device.doubt_clock(&mut block);
        assert_eq!((block.cold.is_some(), block.why.len()), (true, 1), "{block:?}");
        assert!(block.why[0].contains("a clock that moves every 1.000 ms"), "{:?}", block.why);
    }
}
