//! Every valid set of permessage-deflate parameters (RFC 7692 §7.1), in both roles, against Python
//! `websockets` and against ws, which `.ci/run` installs; see `docs/real-clients.md`.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use tokio::{net::TcpListener, task::JoinSet};
use wire::{CloseCode, Compression, Connection, WireLimits};

use crate::{
    common::{config, connection, offer, receive, sample, send, support},
    scripted::patiently,
};

const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/interop/combinations.py");
const NODE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/interop/combinations.cjs");

/// A foreign program, and how many sets of parameters it has as a server and as a client.
struct Peer {
    program: &'static str,
    script: &'static str,
    servers: usize,
    clients: usize,
}

const OTHERS: [Peer; 2] = [
    Peer { program: "python3", script: PYTHON, servers: 2 * 2 * 8 * 8, clients: 2 * 2 * 9 * 9 },
    Peer { program: "node", script: NODE, servers: 2 * 2 * 9 * 8, clients: 2 * 2 * 9 * 10 },
];

impl Peer {
    fn start(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(self.program);
        command.arg(self.script).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().unwrap()
    }
}

/// The peer's lines before `end`.
fn lines(child: &mut Child) -> Vec<String> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    lines.take_while(|line| line != "end").collect()
}

/// Every set of parameters that the client can offer: 147.
fn offers() -> Vec<String> {
    let mut offers = Vec::new();
    for window in 9..=15 {
        for upload in 9..=15 {
            let windows = format!("window_bits={window}:upload_window_bits={upload}");
            offers.push(format!("deflate:{windows}"));
            offers.push(format!("deflate:{windows}:upload_takeover=no"));
            offers.push(format!("deflate-no-takeover:{windows}"));
        }
    }
    offers
}

async fn check_echo(client: &mut Connection, what: &str) {
    for (seed, bytes) in [0, 1, 700, 700, 40_000].into_iter().enumerate() {
        let payload = sample(seed, bytes);
        send(client, payload.clone()).await;
        assert!(patiently(receive(client)).await == payload, "{what} {bytes}");
    }
}

#[tokio::test]
#[ignore = "needs python3 with websockets, and node with ws"]
async fn our_client_talks_to_servers_with_every_set_of_parameters() {
    let offers = offers();
    let open = ["deflate", "deflate-no-takeover", "deflate:upload_takeover=no"].map(str::to_owned);
    for peer in OTHERS {
        let mut child = peer.start(&["server"]);
        let ports = lines(&mut child);
        assert_eq!(ports.len(), peer.servers, "{}", peer.program);
        // The first server sets no parameter and gets every offer. The others get an offer each
        // that leaves the windows to them: ws answers 400 if it is set to a larger window than is
        // offered.
        let first = offers.iter().map(|offer| (&ports[0], offer));
        let others = ports.iter().zip(open.iter().cycle()).skip(1);
        for (port, compression) in first.chain(others) {
            let what = format!("{} at {port}, {compression}", peer.program);
            let url = format!("ws://127.0.0.1:{port}/");
            let connected = wire::connect(&url, &offer(compression), &WireLimits::default()).await;
            let mut client = connected.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_ne!(client.agreement().compression, Compression::None, "{what}");
            check_echo(&mut client, &what).await;
            client.close(CloseCode::Normal, "").await;
        }
        eprintln!("{}: {} connections", peer.program, offers.len() + ports.len() - 1);
        // The end of its standard input ends the server.
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}

#[tokio::test]
#[ignore = "needs python3 with websockets, and node with ws"]
async fn clients_with_every_set_of_parameters_talk_to_our_relay() {
    for peer in OTHERS {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/", listener.local_addr().unwrap());
        let relay = tokio::spawn(echo(listener));
        let mut child = peer.start(&["client", &url]);
        let (answers, status) =
            tokio::task::spawn_blocking(move || (lines(&mut child), child.wait().unwrap())).await.unwrap();
        assert!(status.success(), "{}", peer.program);
        assert_eq!(answers.len(), peer.clients, "{}", peer.program);
        for answer in &answers {
            let (server_bits, answer) = answer.split_once(' ').unwrap();
            // zlib cannot compress raw deflate with a window of 8, so such an offer is declined.
            assert_eq!(
                answer.starts_with("permessage-deflate"),
                server_bits != "8",
                "{server_bits} {answer}"
            );
        }
        eprintln!("{}: {} connections", peer.program, answers.len());
        relay.abort();
    }
}

async fn echo(listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        connections.spawn(async move {
            let config = config(support(&["deflate", "deflate-no-takeover"]));
            let mut relay = connection(wire::accept(stream, &config).await.unwrap());
            while let Some(Ok(message)) = relay.next().await {
                send(&mut relay, message.payload).await;
            }
        });
    }
}
