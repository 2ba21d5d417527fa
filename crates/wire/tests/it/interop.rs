//! Against an implementation with a history of its own: Python `websockets` 13 or later,
//! which `.ci/run` installs.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use wire::{Accepted, CloseCode, Compression, Shared, WireLimits};

use crate::{
    common::{config, connection, listen, offer, receive, sample, send, support},
    scripted::patiently,
};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/interop.py");

fn python(arguments: &[&str]) -> Child {
    let mut command = Command::new("python3");
    command.arg(SCRIPT).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

#[tokio::test]
#[ignore = "needs python3 with websockets"]
async fn our_client_talks_to_a_python_server() {
    let servers = [
        "null",
        "{}",
        r#"{"server_no_context_takeover": true}"#,
        r#"{"client_no_context_takeover": true, "server_max_window_bits": 9}"#,
        r#"{"client_max_window_bits": 9, "require_client_max_window_bits": true}"#,
    ];
    for parameters in servers {
        let mut server = python(&["server", parameters]);
        let url = format!("ws://127.0.0.1:{}/", first_line(&mut server));
        for name in Compression::NAMES {
            let connected = wire::connect(&url, &offer(name), &WireLimits::default()).await;
            let mut client = connected.unwrap_or_else(|error| panic!("{parameters} {name}: {error}"));
            let granted = client.agreement().compression != Compression::None;
            assert_eq!(granted, name.starts_with("deflate") && parameters != "null", "{parameters} {name}");
            assert_eq!(client.agreement().token.as_deref(), Some("nostr.json"));
            for (seed, bytes) in [0, 1, 125, 126, 700, 700, 700, 0, 65_535, 65_536].into_iter().enumerate() {
                let payload = sample(seed, bytes);
                send(&mut client, payload.clone()).await;
                assert!(patiently(receive(&mut client)).await == payload, "{parameters} {name} {bytes}");
            }
            client.close(CloseCode::Normal, "").await;
        }
        // The end of its standard input ends the server.
        drop(server.stdin.take());
        server.wait().unwrap();
    }
}

#[tokio::test]
#[ignore = "needs python3 with websockets"]
async fn a_python_client_reads_events_that_were_compressed_once_and_spliced() {
    let clients = [r"{}", r#"{"server_no_context_takeover": true}"#, r#"{"server_max_window_bits": 9}"#];
    let shared = Shared::default();
    for parameters in clients {
        let (address, accepted) = listen(config(support(&["deflate-shared"]))).await;
        let mut client = python(&["client", parameters, &format!("ws://{address}/")]);
        let mut relay = connection(patiently(accepted).await.unwrap().unwrap());
        let mut common = None;
        while let Some(message) = patiently(relay.next()).await {
            let payload = message.unwrap_or_else(|error| panic!("{parameters}: {error}")).payload;
            // Each message has a prefix of its own; the first payload is also the shared part.
            let own = Shared::default();
            let common = common.get_or_insert_with(|| payload.clone());
            let shared = if payload == *common { &shared } else { &own };
            let (prefix, rest) = payload.split_at(payload.len().min(17));
            relay.feed_shared(prefix, [rest, b""], shared).await.unwrap();
            relay.flush().await.unwrap();
        }
        assert!(client.wait().unwrap().success(), "{parameters}");
    }
}

#[tokio::test]
#[ignore = "needs python3 with websockets"]
async fn a_python_client_talks_to_our_relay() {
    let clients = [
        ("null", ""),
        ("{}", "permessage-deflate"),
        (
            r#"{"server_no_context_takeover": true, "client_no_context_takeover": true}"#,
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
        ),
        (
            r#"{"server_max_window_bits": 9, "client_max_window_bits": 10}"#,
            "permessage-deflate; server_max_window_bits=9; client_max_window_bits=10",
        ),
        (
            r#"{"server_no_context_takeover": true, "client_max_window_bits": true}"#,
            "permessage-deflate; server_no_context_takeover",
        ),
    ];
    for (parameters, expected) in clients {
        let (address, accepted) = listen(config(support(&["deflate", "deflate-no-takeover"]))).await;
        let mut client = python(&["client", parameters, &format!("ws://{address}/")]);
        let accepted: Accepted = patiently(accepted).await.unwrap().unwrap();
        let mut relay = connection(accepted);
        while let Some(message) = patiently(relay.next()).await {
            let payload = message.unwrap_or_else(|error| panic!("{parameters}: {error}")).payload;
            send(&mut relay, payload).await;
        }
        assert_eq!(first_line(&mut client), expected, "{parameters}");
        assert!(client.wait().unwrap().success(), "{parameters}");
    }
}
