//! A peer that sends exact bytes.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Mutex,
    time::timeout,
};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

pub(crate) const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

pub(crate) const FIN: u8 = 0x80;
pub(crate) const RSV1: u8 = 0x40;
pub(crate) const CONTINUATION: u8 = 0;
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

pub(crate) struct Scripted {
    pub(crate) stream: TcpStream,
    masks: bool,
}

impl Scripted {
    /// A client before its handshake.
    pub(crate) async fn client(address: SocketAddr) -> Scripted {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Scripted { stream, masks: true }
    }

    /// The server's end of an accepted socket.
    pub(crate) fn server(stream: TcpStream) -> Scripted {
        Scripted { stream, masks: false }
    }

    /// A client behind a handshake with these further header lines, and the answer's head.
    pub(crate) async fn upgraded(address: SocketAddr, headers: &str) -> (Scripted, String) {
        let mut client = Scripted::client(address).await;
        client.write(upgrade_request("/", headers).as_bytes()).await;
        let head = client.read_head().await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        (client, head)
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    pub(crate) async fn frame(&mut self, first_byte: u8, payload: &[u8]) {
        let bytes = frame(self.masks, first_byte, payload);
        self.write(&bytes).await;
    }

    pub(crate) async fn read_head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(patiently(self.stream.read_u8()).await.unwrap());
        }
        String::from_utf8(head).unwrap()
    }

    /// First byte and unmasked payload of the next frame.
    pub(crate) async fn read_frame(&mut self) -> (u8, Vec<u8>) {
        patiently(async {
            let first_byte = self.stream.read_u8().await.unwrap();
            let second = self.stream.read_u8().await.unwrap();
            let len = match second & 0x7f {
                126 => u64::from(self.stream.read_u16().await.unwrap()),
                127 => self.stream.read_u64().await.unwrap(),
                len => u64::from(len),
            };
            let mut mask = [0; 4];
            if second & 0x80 != 0 {
                self.stream.read_exact(&mut mask).await.unwrap();
            }
            let mut payload = vec![0; usize::try_from(len).unwrap()];
            self.stream.read_exact(&mut payload).await.unwrap();
            payload.iter_mut().enumerate().for_each(|(i, byte)| *byte ^= mask[i % 4]);
            (first_byte, payload)
        })
        .await
    }

    /// The code of the next frame, a Close frame.
    pub(crate) async fn read_close(&mut self) -> u16 {
        let (first_byte, payload) = self.read_frame().await;
        assert_eq!(first_byte, FIN | CLOSE);
        u16::from_be_bytes([payload[0], payload[1]])
    }

    /// All bytes until the peer ends TCP; a reset is an error.
    pub(crate) async fn read_to_end(&mut self) -> String {
        let mut bytes = Vec::new();
        patiently(self.stream.read_to_end(&mut bytes)).await.unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// A server that answers each request's head as `answer` says, and keeps upgraded connections open: its
/// address, and the heads so far.
pub(crate) async fn answering(
    answer: impl Fn(&str) -> String + Send + 'static,
) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (url, heads) = (format!("ws://{}", listener.local_addr().unwrap()), Arc::default());
    let heard: Arc<Mutex<Vec<String>>> = Arc::clone(&heads);
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let mut server = Scripted::server(listener.accept().await.unwrap().0);
            let head = server.read_head().await;
            let answer = answer(&head);
            heard.lock().await.push(head);
            server.write(answer.as_bytes()).await;
            if answer.contains("Sec-WebSocket-Accept") {
                open.push(server);
            }
        }
    });
    (url, heads)
}

pub(crate) fn frame(masked: bool, first_byte: u8, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [0xc1, 0x40, 0x00, 0xff];
    let mask_bit = if masked { 0x80 } else { 0 };
    let mut bytes = vec![first_byte];
    match payload.len() {
        len @ 0..126 => bytes.push(mask_bit | u8::try_from(len).unwrap()),
        len @ 126..65_536 => {
            bytes.push(mask_bit | 126);
            bytes.extend(u16::try_from(len).unwrap().to_be_bytes());
        }
        len => {
            bytes.push(mask_bit | 127);
            bytes.extend((len as u64).to_be_bytes());
        }
    }
    if masked {
        bytes.extend(MASK);
        bytes.extend(payload.iter().enumerate().map(|(i, byte)| byte ^ MASK[i % 4]));
    } else {
        bytes.extend(payload);
    }
    bytes
}

pub(crate) fn upgrade_request(path: &str, headers: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n{headers}\r\n"
    )
}

/// The 101 for a request's head, with these further header lines.
pub(crate) fn upgrade_answer(request: &str, headers: &str) -> String {
    let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
    let accept = derive_accept_key(key.as_bytes());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\n{headers}\r\n"
    )
}

pub(crate) async fn patiently<F: Future>(future: F) -> F::Output {
    timeout(Duration::from_secs(10), future).await.expect("an answer within ten seconds")
}
