//! `wss://`, with a certificate made for the test.

use std::{fs, net::SocketAddr, path::Path, process::Command, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, date_time_ymd};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use wire::{Accepted, CloseCode, Connection, Endpoint, ServerTls, TlsError, WireError, WireLimits};

use crate::{
    common::{config, connection, listen, offer, receive, sample, send, support},
    scripted::patiently,
};

/// A self-signed certificate for localhost and its key: `cert.pem` and `key.pem`.
fn certificate() -> TempDir {
    certificate_with(&["localhost", "127.0.0.1"], |_| {})
}

fn certificate_with(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    fs::write(folder.path().join("cert.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(folder.path().join("key.pem"), key.serialize_pem()).unwrap();
    folder
}

/// The command that makes a certificate in docs/transport.md.
fn recipe() -> String {
    let document = include_str!("../../../../docs/transport.md");
    let command = &document[document.find("openssl req").expect("the document has a recipe")..];
    let ends = command.match_indices('\n').map(|(at, _)| at).find(|at| !command[..*at].ends_with('\\'));
    command[..ends.unwrap()].to_owned()
}

/// Runs a command for openssl in a shell; returns the folder with its output.
fn by_openssl(command: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("sh").args(["-ec", command]).current_dir(folder.path()).output().unwrap();
    assert!(made.status.success(), "{command}\n{}", String::from_utf8_lossy(&made.stderr));
    folder
}

fn server_tls(folder: &Path) -> ServerTls {
    ServerTls::from_files(&folder.join("cert.pem"), &folder.join("key.pem")).unwrap()
}

/// The relay of a URL for a client that trusts the certificate in `folder`.
fn trusting(folder: &Path, url: &str) -> Result<Endpoint, TlsError> {
    Endpoint::new(url.parse().unwrap(), Some(&folder.join("cert.pem")))
}

/// Both ends of an attempt to connect to a relay with the certificate in `folder`, by a client that
/// trusts the one in `roots`.
async fn attempt(
    folder: &Path,
    url: impl Fn(SocketAddr) -> String,
    compression: &str,
    roots: &Path,
) -> (Result<Connection, WireError>, Result<Accepted, WireError>) {
    let mut config = config(support(&["deflate", "zstd"]));
    config.tls = Some(server_tls(folder));
    let (address, accepted) = listen(config).await;
    let limits = WireLimits::default();
    let relay = trusting(roots, &url(address)).unwrap();
    let connected = patiently(relay.connect(&offer(compression), &limits)).await;
    (connected, patiently(accepted).await.unwrap())
}

#[tokio::test]
async fn messages_travel_through_tls_as_they_do_without() {
    let folder = certificate();
    for compression in ["none", "deflate", "zstd"] {
        let urls =
            [|a: SocketAddr| format!("wss://{a}/"), |a: SocketAddr| format!("wss://localhost:{}/", a.port())];
        for url in urls {
            let (connected, accepted) = attempt(folder.path(), url, compression, folder.path()).await;
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

/// With an hour for the handshake.
async fn refusal(folder: &Path, url: &str) -> String {
    let limits = WireLimits { handshake_timeout: Duration::from_secs(3_600), ..WireLimits::default() };
    let key = "X-Api-Key=s3cret/value".parse().unwrap();
    let relay = trusting(folder, url).unwrap().with_headers(vec![key]).unwrap();
    patiently(relay.connect(&offer("none"), &limits)).await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_relay_without_tls_is_recognised_before_the_limit_of_the_handshake() {
    let folder = certificate();
    for (to_tls, to_http) in [
        (Some("HTTP/1.1 400 Bad Request\r\n\r\n"), ""),
        (Some(""), ""),
        (None, "HTTP/1.1 101 Switching Protocols\r\n\r\n"),
        (None, "HTTP/1.1 403 Forbidden\r\n\r\n"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("wss://me:s3cret@{}/s3cret?s3cret", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut silent, mut heads) = (Vec::new(), Vec::new());
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = vec![0; 4096];
                let count = stream.read(&mut head).await.unwrap();
                // The record of a ClientHello (RFC 8446 §5.1).
                match (head[0] == 22, to_tls) {
                    (true, Some(answer)) => stream.write_all(answer.as_bytes()).await.unwrap(),
                    (true, None) => silent.push(stream),
                    (false, _) => {
                        heads.push(String::from_utf8_lossy(&head[..count]).into_owned());
                        assert!(
                            !heads.concat().contains("s3cret") && !heads.concat().contains("Authorization")
                        );
                        assert_eq!(heads.len(), 1, "asked once: {heads:?}");
                        stream.write_all(to_http.as_bytes()).await.unwrap();
                    }
                }
            }
        });
        let error = refusal(folder.path(), &url).await;
        assert!(error.contains("; a relay without TLS is ws://127.0.0.1:"), "{to_tls:?}: {error}");
        assert!(!server.is_finished(), "{:?}", server.await);
        server.abort();
    }
}

/// Servers with TLS answer plain HTTP with 400 in plain text, and a busy one is silent for a while.
#[tokio::test]
async fn a_slow_relay_with_tls_is_not_taken_for_one_without() {
    let folder = certificate();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("wss://{}", listener.local_addr().unwrap());
    let mut config = config(support(&[]));
    config.tls = Some(server_tls(folder.path()));
    let relay = tokio::spawn(async move {
        let (busy, _) = listener.accept().await.unwrap();
        let (mut plain, _) = listener.accept().await.unwrap();
        assert_eq!(plain.read_u8().await.unwrap(), b'G', "asked without TLS meanwhile");
        plain.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\nto an HTTPS port").await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        wire::accept(busy, &config).await
    });
    let client = trusting(folder.path(), &url).unwrap();
    let connected = patiently(client.connect(&offer("none"), &WireLimits::default())).await;
    connected.unwrap();
    assert!(relay.await.unwrap().is_ok());
}

/// The verdict of a client that trusts `roots` on the relay's certificate, at 127.0.0.1.
async fn said(relay: &Path, roots: &Path) -> String {
    let (connected, accepted) = attempt(relay, |a| format!("wss://{a}"), "none", roots).await;
    assert!(matches!(accepted, Err(WireError::Handshake { .. })), "{accepted:?}");
    connected.unwrap_err().to_string()
}

/// Each says what is wrong with the certificate and what mends that, not that --ca names roots.
#[tokio::test]
async fn a_refused_certificate_is_explained() {
    let here = ["127.0.0.1"];
    let authority = certificate_with(&here, |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    });
    let elsewhere = certificate_with(&["relay.example"], |_| {});
    let nameless = certificate_with(&[], |_| {});
    let old = certificate_with(&here, |params| params.not_after = date_time_ymd(2020, 1, 1));
    let early = certificate_with(&here, |params| params.not_before = date_time_ymd(2999, 1, 1));
    let (own, other) = (certificate(), certificate());
    let named = certificate_with(&here, |params| {
        params.distinguished_name.push(DnType::CommonName, "a name of its own");
    });
    let other_file = other.path().join("cert.pem").display().to_string();
    let cases: [(&TempDir, &TempDir, &[&str]); 8] = [
        (&named, &other, &[&other_file, "(--ca) signed the relay's"]),
        (&own, &other, &[&other_file, "(--ca) signed the relay's"]),
        (&authority, &authority, &["CA:TRUE", "-addext basicConstraints=critical,CA:FALSE"]),
        (&authority, &other, &["CA:TRUE", "-addext basicConstraints=critical,CA:FALSE"]),
        (&elsewhere, &elsewhere, &["relay.example", "connect by a name that it has"]),
        (&nameless, &nameless, &["subjectAltName"]),
        (&old, &old, &["certificate expired"]),
        (&early, &early, &["certificate not valid yet"]),
    ];
    for (relay, roots, parts) in cases {
        let error = said(relay.path(), roots.path()).await;
        assert!(parts.iter().all(|part| error.contains(part)), "{error}\nhas not all of {parts:?}");
        assert!(!error.contains("other roots"), "{error}");
    }
}

#[tokio::test]
#[ignore = "needs openssl"]
async fn a_certificate_made_by_openssl_as_the_document_says_is_taken() {
    let recipe = recipe();
    let folder = by_openssl(&recipe);
    for host in ["localhost", "127.0.0.1"] {
        let url = |a: SocketAddr| format!("wss://{host}:{}", a.port());
        let (connected, accepted) = attempt(folder.path(), url, "none", folder.path()).await;
        let (mut client, mut relay) = (connected.unwrap(), connection(accepted.unwrap()));
        send(&mut client, "[]").await;
        assert_eq!(receive(&mut relay).await, "[]");
    }
    let without = recipe.replace("-addext basicConstraints=critical,CA:FALSE", "");
    assert_ne!(without, recipe);
    let folder = by_openssl(&without);
    let error = said(folder.path(), folder.path()).await;
    assert!(error.contains("CA:TRUE") && error.contains("critical,CA:FALSE"), "{error}");
}

#[tokio::test]
async fn a_client_without_tls_gets_no_further_than_one_with_tls_at_a_plain_relay() {
    let folder = certificate();
    let (connected, accepted) = attempt(folder.path(), |a| format!("ws://{a}"), "none", folder.path()).await;
    let error = connected.unwrap_err().to_string();
    assert!(error.contains("; a relay with TLS is wss://127.0.0.1:"), "{error}");
    assert!(accepted.unwrap_err().to_string().contains("no TLS with the client"));

    let (address, _accepted) = listen(config(support(&[]))).await;
    let url = format!("wss://{address}");
    // A plain relay waits for an HTTP head and gets a TLS one.
    let limits = WireLimits { handshake_timeout: Duration::from_millis(200), ..WireLimits::default() };
    let error = trusting(folder.path(), &url).unwrap().connect(&offer("none"), &limits).await.unwrap_err();
    assert!(matches!(error, WireError::Handshake { .. }), "{error}");
}

#[test]
fn files_without_certificates_or_keys_are_named() {
    let folder = certificate();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let empty = folder.path().join("empty.pem");
    let roots = |file: &Path| Endpoint::new("wss://localhost".parse().unwrap(), Some(file)).map(drop);
    fs::write(&empty, "").unwrap();
    let cases = [
        (roots(&empty), "certificates", "empty.pem"),
        (roots(&key), "certificates", "key.pem"),
        (roots(&folder.path().join("absent.pem")), "certificates", "absent.pem"),
        (ServerTls::from_files(&empty, &key).map(drop), "certificates", "empty.pem"),
        (ServerTls::from_files(&cert, &cert).map(drop), "a private key", "cert.pem"),
    ];
    for (result, what, name) in cases {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(what) && error.contains(name) && error.contains("PEM"), "{error}");
    }
}
