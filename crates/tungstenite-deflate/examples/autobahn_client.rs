//! A WebSocket client that sends every message back, for the Autobahn testsuite's fuzzing server
//! (`conformance/run`), whose cases it runs one after the other.
//!
//! usage: `autobahn_client ws://ADDRESS AGENT [client_no_context_takeover]`, the latter to offer
//! that parameter of permessage-deflate, too.
#![expect(clippy::print_stdout, reason = "its output is how it is used")]

mod autobahn;

use std::{env, error::Error};

use futures::StreamExt;
use tokio::net::TcpStream;
use tungstenite_deflate::{DeflateParams, Direction, WebSocket, connect};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (server, agent, to_server) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [server, agent] => (server, agent, Direction::DEFAULT),
        [server, agent, "client_no_context_takeover"] => (server, agent, Direction::NO_TAKEOVER),
        _ => return Err("usage: autobahn_client ws://ADDRESS AGENT [client_no_context_takeover]".into()),
    };
    let mut count = open(server, "getCaseCount", to_server).await?;
    let message = count.next().await.ok_or("the server did not say how many cases it has")??;
    let cases: u32 = message.into_text()?.parse()?;
    while count.next().await.is_some() {}
    for case in 1..=cases {
        let mut websocket = open(server, &format!("runCase?case={case}&agent={agent}"), to_server).await?;
        autobahn::echo(&mut websocket).await;
    }
    let mut update = open(server, &format!("updateReports?agent={agent}"), to_server).await?;
    while update.next().await.is_some() {}
    println!("{cases} cases ran");
    Ok(())
}

async fn open(
    server: &str,
    path: &str,
    to_server: Direction,
) -> Result<WebSocket<TcpStream>, Box<dyn Error>> {
    let tcp = TcpStream::connect(server.trim_start_matches("ws://")).await?;
    let params = DeflateParams { to_server, ..DeflateParams::DEFAULT };
    Ok(connect(format!("{server}/{path}"), tcp, Some(&params), autobahn::config()).await?.0)
}
