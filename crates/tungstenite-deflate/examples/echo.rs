//! An echo server and a client of it, over TCP, with permessage-deflate.
use futures::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tungstenite_deflate::{DeflateParams, accept, connect, tungstenite::Message};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (near, far) = tokio::try_join!(TcpStream::connect(address), listener.accept())?;
    let (params, config) = ([DeflateParams::DEFAULT], Default::default());
    let client = connect(format!("ws://{address}/"), near, Some(&params[0]), config);
    let ((mut client, _), mut server) = tokio::try_join!(client, accept(far.0, &params, config))?;

    client.send(Message::text("hello ".repeat(100))).await?;
    let message = server.next().await.ok_or("the client left")??;
    server.send(message).await?;
    let echo = client.next().await.ok_or("the server left")??;
    assert_eq!(echo.into_text()?, "hello ".repeat(100));
    Ok(())
}
