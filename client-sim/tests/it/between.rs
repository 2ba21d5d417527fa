//! A proxy between clients and a relay that knows messages: it adds to what the relay says, or
//! says something else.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use codecs::Format;
use tokio::{net::TcpListener, sync::Mutex, time};
use wire::{Accepted, Compression, Connection, Offer, ServerConfig, Support, WireLimits};

use crate::common::Relay;

/// How long a handshake may take from its first byte on, as with relay-sim and Python's websockets.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Stands between clients and a relay.
pub(crate) struct Between {
    pub(crate) url: String,
    pub(crate) relay: Relay,
}

impl Between {
    /// Lets `carry` carry the messages of each connection, which are counted from 0, between a
    /// client and the relay.
    pub(crate) fn start<F: Future<Output = ()> + 'static>(
        carry: impl Fn(Connection, Connection, u64) -> F + Send + 'static,
    ) -> Between {
        Between::before(Relay::start(&[]), Duration::ZERO, carry)
    }

    /// The same before this relay, where handshakes take so long, one after the other.
    pub(crate) fn before<F: Future<Output = ()> + 'static>(
        relay: Relay,
        handshake: Duration,
        carry: impl Fn(Connection, Connection, u64) -> F + Send + 'static,
    ) -> Between {
        let (tell, told) = mpsc::channel();
        let to = relay.url.clone();
        // Ends with the test's process.
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                let support = Support::default();
                let limits = WireLimits::default();
                let config = Arc::new(ServerConfig { support, limits, relay_info: "{}".into(), tls: None });
                let (carry, turn) = (Arc::new(carry), Arc::new(Mutex::new(())));
                for connection in 0.. {
                    let (stream, _) = listener.accept().await.unwrap();
                    let (config, to) = (Arc::clone(&config), to.clone());
                    let (carry, turn) = (Arc::clone(&carry), Arc::clone(&turn));
                    tokio::task::spawn_local(async move {
                        let shaking = async {
                            let _turn = turn.lock().await;
                            time::sleep(handshake).await;
                            wire::accept(stream, &config).await
                        };
                        if let Ok(Ok(Accepted::WebSocket(client))) = time::timeout(HANDSHAKE, shaking).await {
                            carry(*client, connect(&to).await, connection).await;
                        }
                    });
                }
            });
        });
        Between { url: format!("ws://{}", told.recv().unwrap()), relay }
    }
}

pub(crate) async fn connect(relay: &str) -> Connection {
    let offer = Offer { formats: vec![Format::JSON], batched: false, compression: Compression::None };
    wire::connect(relay, &offer, &WireLimits::default()).await.unwrap()
}
