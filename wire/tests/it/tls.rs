//! `wss://`, with a certificate made for the test.

use std::{fs, net::SocketAddr, path::Path, time::Duration};

use tempfile::TempDir;
use wire::{Accepted, ClientTls, CloseCode, Connection, ServerTls, WireError, WireLimits};

use crate::{
    common::{config, connection, listen, offer, receive, sample, send, support},
    scripted::patiently,
};

/// A self-signed certificate for localhost and its key: `cert.pem` and `key.pem`.
fn certificate() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    fs::write(folder.path().join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    folder
}

fn server_tls(folder: &Path) -> ServerTls {
    ServerTls::from_files(&folder.join("cert.pem"), &folder.join("key.pem")).unwrap()
}

/// Both ends of an attempt to connect to a relay with the certificate in `folder`.
async fn attempt(
    folder: &Path,
    url: impl Fn(SocketAddr) -> String,
    compression: &str,
    tls: &ClientTls,
) -> (Result<Connection, WireError>, Result<Accepted, WireError>) {
    let mut config = config(support(&["deflate", "zstd"]));
    config.tls = Some(server_tls(folder));
    let (address, accepted) = listen(config).await;
    let limits = WireLimits::default();
    let connected =
        patiently(wire::connect_with(&url(address), &offer(compression), &limits, Some(tls))).await;
    (connected, patiently(accepted).await.unwrap())
}

#[tokio::test]
async fn messages_travel_through_tls_as_they_do_without() {
    let folder = certificate();
    let tls = ClientTls::from_file(&folder.path().join("cert.pem")).unwrap();
    for compression in ["none", "deflate", "zstd"] {
        let urls =
            [|a: SocketAddr| format!("wss://{a}/"), |a: SocketAddr| format!("wss://localhost:{}/", a.port())];
        for url in urls {
            let (connected, accepted) = attempt(folder.path(), url, compression, &tls).await;
            let (mut client, mut relay) = (connected.unwrap(), connection(accepted.unwrap()));
            assert_eq!(client.agreement().compression.name(), compression);
            for (seed, bytes) in [0, 700, 700, 300_000].into_iter().enumerate() {
                let payload = sample(seed, bytes);
                let ((), received) = tokio::join!(send(&mut client, payload.clone()), receive(&mut relay));
                assert!(received == payload, "{compression} {bytes}");
                let ((), received) = tokio::join!(send(&mut relay, received), receive(&mut client));
                assert!(received == payload, "{compression} {bytes}");
            }
            let closing = client.close(CloseCode::Normal, "");
            let (_, end) = tokio::join!(closing, relay.next());
            assert!(end.is_none(), "an orderly close: {end:?}");
            let (sent, received) = (client.traffic(), relay.traffic());
            assert!(sent.handshake_sent_bytes > 0 && sent.handshake_received_bytes > 500, "{sent:?}");
            assert_eq!(sent.sent.payload_bytes, received.received.payload_bytes);
            if compression == "none" {
                assert!(sent.sent.wire_bytes > sent.sent.payload_bytes + 22, "records are counted: {sent:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused() {
    let (folder, other) = (certificate(), certificate());
    let tls = ClientTls::from_file(&other.path().join("cert.pem")).unwrap();
    let (connected, accepted) = attempt(folder.path(), |a| format!("wss://{a}"), "none", &tls).await;
    let error = connected.unwrap_err().to_string();
    assert!(error.contains("certificate") && error.contains("--ca FILE"), "{error}");
    assert!(matches!(accepted, Err(WireError::Handshake { .. })), "{accepted:?}");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["relay.example".to_owned()]).unwrap();
    fs::write(folder.path().join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let tls = ClientTls::from_file(&folder.path().join("cert.pem")).unwrap();
    let (connected, _) = attempt(folder.path(), |a| format!("wss://{a}"), "none", &tls).await;
    let error = connected.unwrap_err().to_string();
    assert!(error.contains("relay.example"), "{error}");
}

#[tokio::test]
async fn a_client_without_tls_gets_no_further_than_one_with_tls_at_a_plain_relay() {
    let folder = certificate();
    let tls = ClientTls::from_file(&folder.path().join("cert.pem")).unwrap();
    let (connected, accepted) = attempt(folder.path(), |a| format!("ws://{a}"), "none", &tls).await;
    assert!(matches!(connected, Err(WireError::Handshake { .. } | WireError::Io(_))), "{connected:?}");
    assert!(accepted.unwrap_err().to_string().contains("no TLS with the client"));

    let (address, _accepted) = listen(config(support(&[]))).await;
    let url = format!("wss://{address}");
    // A plain relay waits for an HTTP head and gets a TLS one.
    let limits = WireLimits { handshake_timeout: Duration::from_millis(200), ..WireLimits::default() };
    let error = wire::connect_with(&url, &offer("none"), &limits, Some(&tls)).await.unwrap_err();
    assert!(matches!(error, WireError::Handshake { .. }), "{error}");
}

#[test]
fn files_without_certificates_or_keys_are_named() {
    let folder = certificate();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let empty = folder.path().join("empty.pem");
    fs::write(&empty, "").unwrap();
    let cases = [
        (ClientTls::from_file(&empty).map(drop), "certificates", "empty.pem"),
        (ClientTls::from_file(&key).map(drop), "certificates", "key.pem"),
        (ClientTls::from_file(&folder.path().join("absent.pem")).map(drop), "certificates", "absent.pem"),
        (ServerTls::from_files(&empty, &key).map(drop), "certificates", "empty.pem"),
        (ServerTls::from_files(&cert, &cert).map(drop), "a private key", "cert.pem"),
    ];
    for (result, what, name) in cases {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(what) && error.contains(name) && error.contains("PEM"), "{error}");
    }
}
