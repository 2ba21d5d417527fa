//! A WebSocket server that sends every message back, for the Autobahn testsuite's fuzzing client
//! (`conformance/run`).
//!
//! usage: `autobahn_server [ADDRESS]`; prints the address it listens on.
#![expect(clippy::print_stdout, reason = "its output is how it is used")]

mod autobahn;

use std::{env, io};

use tokio::net::{TcpListener, TcpStream};
use tungstenite_deflate::{DeflateParams, accept};

#[tokio::main]
async fn main() -> io::Result<()> {
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    let listener = TcpListener::bind(address).await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (tcp, _) = listener.accept().await?;
        tokio::spawn(serve(tcp));
    }
}

async fn serve(tcp: TcpStream) {
    match accept(tcp, &[DeflateParams::DEFAULT], autobahn::config()).await {
        Ok(mut websocket) => autobahn::echo(&mut websocket).await,
        Err(error) => eprintln!("{error}"),
    }
}
