//! A proxy before a relay that asks for a line in the head of requests.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// Keeps what clients say.
pub(crate) struct Guard {
    pub(crate) address: SocketAddr,
    pub(crate) heard: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Guard {
    /// Stands before the relay at a `ws://` URL. Without the line it answers 401 where that would be
    /// `Authorization`, else 403.
    pub(crate) fn before(relay: &str, asks_for: &'static str) -> Guard {
        let relay = relay.strip_prefix("ws://").unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, heard) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let keep = Arc::clone(&heard);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (relay, keep) = (relay.clone(), Arc::clone(&keep));
                // A client that leaves ends its connection alone.
                thread::spawn(move || pass(client, &relay, asks_for, &keep));
            }
        });
        Guard { address, heard }
    }

    /// The heads of all requests.
    pub(crate) fn heads(&self) -> Vec<String> {
        let head = |bytes: &Vec<u8>| String::from_utf8_lossy(&bytes[..head_bytes(bytes)]).into_owned();
        self.heard.lock().unwrap().iter().map(head).collect()
    }
}

/// The length of a request's head.
pub(crate) fn head_bytes(request: &[u8]) -> usize {
    request.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4
}

fn pass(mut client: TcpStream, relay: &str, asks_for: &str, keep: &Mutex<Vec<Vec<u8>>>) -> io::Result<()> {
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        said.push(byte[0]);
    }
    let allowed = String::from_utf8_lossy(&said).lines().any(|line| line.eq_ignore_ascii_case(asks_for));
    let place = {
        let mut all = keep.lock().unwrap();
        all.push(said.clone());
        all.len() - 1
    };
    if !allowed {
        let refusal = if asks_for.starts_with("Authorization") {
            "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"relay\"\r\nConnection: close\r\n\r\n"
        } else {
            "HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n"
        };
        return client.write_all(refusal.as_bytes());
    }
    let mut relay = TcpStream::connect(relay)?;
    relay.write_all(&said)?;
    let (mut from_relay, mut to_client) = (relay.try_clone()?, client.try_clone()?);
    thread::spawn(move || {
        let passed = io::copy(&mut from_relay, &mut to_client);
        to_client.shutdown(Shutdown::Both).and(passed)
    });
    let mut bytes = [0; 4096];
    loop {
        let count = client.read(&mut bytes)?;
        if count == 0 {
            return relay.shutdown(Shutdown::Write);
        }
        keep.lock().unwrap()[place].extend(&bytes[..count]);
        relay.write_all(&bytes[..count])?;
    }
}
