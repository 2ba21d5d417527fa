//! Faults that show on the socket alone.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Error, Message},
};

use crate::common::{PATIENCE, TestRelay};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Long enough that what is to come has come.
const A_WHILE: Duration = Duration::from_millis(300);

const REQ: &str = r#"["REQ","a",{}]"#;
const EOSE: &str = r#"["EOSE","a"]"#;

async fn misbehaving(faults: &[&str]) -> TestRelay {
    let faults = faults.iter().map(|fault| fault.parse().unwrap()).collect();
    TestRelay::start(|config| config.faults = faults).await
}

async fn connect(relay: &TestRelay) -> Socket {
    connect_async(&relay.url).await.unwrap().0
}

async fn say(socket: &mut Socket, text: &str) {
    socket.send(Message::text(text)).await.unwrap();
}

async fn hear(socket: &mut Socket) -> Result<Message, Error> {
    timeout(PATIENCE, socket.next()).await.expect("an answer in time").expect("no end before it is told")
}

async fn expect(socket: &mut Socket, text: &str) {
    assert_eq!(hear(socket).await.unwrap().into_text().unwrap(), text);
}

fn is_reset(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionReset)
}

#[tokio::test]
async fn a_connection_is_reset_at_a_message() {
    let relay = misbehaving(&["reset:connection=1:message=2"]).await;
    for connection in 1..=2 {
        let mut socket = connect(&relay).await;
        for message in 1..=2 {
            say(&mut socket, REQ).await;
            if (connection, message) == (1, 2) {
                let error = hear(&mut socket).await.unwrap_err();
                assert!(is_reset(&error), "{error:?}");
            } else {
                expect(&mut socket, EOSE).await;
            }
        }
    }
    assert_eq!(relay.stop().await.connections, 2);
}

#[tokio::test]
async fn a_half_open_connection_answers_nothing_and_stays() {
    let relay = misbehaving(&["half-open:message=2"]).await;
    let mut socket = connect(&relay).await;
    say(&mut socket, REQ).await;
    expect(&mut socket, EOSE).await;
    say(&mut socket, REQ).await;
    socket.send(Message::Ping("are you there".into())).await.unwrap();
    timeout(A_WHILE, socket.next()).await.expect_err("nothing comes, not even an end");
    say(&mut socket, REQ).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_connection_is_closed_with_any_code() {
    let relay = misbehaving(&["close=4000:message=1"]).await;
    let mut socket = connect(&relay).await;
    say(&mut socket, REQ).await;
    let Message::Close(Some(frame)) = hear(&mut socket).await.unwrap() else { panic!("a Close frame") };
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (4_000, "planted: close"));
    relay.stop().await;
}

#[tokio::test]
async fn a_late_ok_comes_by_itself() {
    let relay = misbehaving(&["late-ok=300ms"]).await;
    let mut client = relay.json_client().await;
    let note = crate::common::note(1, 1);
    let began = std::time::Instant::now();
    client.publish(&note).await;
    client.expect(&crate::common::ok(&note)).await;
    // tokio's timer may fire a millisecond late, for which the relay allows.
    assert!(began.elapsed() >= Duration::from_millis(299), "{:?}", began.elapsed());
    relay.stop().await;
}
