//! A server that sends messages back and a client that asks it, over TCP, with permessage-deflate.
#![expect(clippy::print_stdout, reason = "an example")]

use futures::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tungstenite_deflate::{DeflateParams, accept, connect, tungstenite::Message};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("ws://{}/", listener.local_addr()?);
    let server = tokio::spawn(serve(listener));

    let tcp = TcpStream::connect(url.trim_start_matches("ws://").trim_end_matches('/')).await?;
    let (mut client, _) = connect(url, tcp, Some(&DeflateParams::DEFAULT), Default::default()).await?;
    client.send(Message::text("hello ".repeat(100))).await?;
    let echo = client.next().await.ok_or("the server left")??;
    println!("{} bytes came back, agreed: {:?}", echo.len(), client.deflate());
    client.close(None).await;
    server.await?
}

async fn serve(listener: TcpListener) -> Result<()> {
    let (tcp, _) = listener.accept().await?;
    let mut websocket = accept(tcp, &[DeflateParams::DEFAULT], Default::default()).await?;
    while let Some(message) = websocket.next().await.transpose()? {
        if message.is_text() || message.is_binary() {
            websocket.send(message).await?;
        }
    }
    Ok(())
}
