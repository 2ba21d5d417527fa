//! A proxy between clients and a relay that knows messages: it adds to what the relay says, or
//! says something else.

use std::{
    sync::{Arc, mpsc},
    thread,
};

use codecs::Format;
use tokio::net::TcpListener;
use wire::{Accepted, Compression, Connection, Offer, ServerConfig, Support, WireLimits};

use crate::common::Relay;

/// Stands between clients and a relay.
pub(crate) struct Between {
    pub(crate) url: String,
    _relay: Relay,
}

impl Between {
    /// Lets `carry` carry the messages of each connection, which are counted from 0, between a
    /// client and the relay.
    pub(crate) fn start<F: Future<Output = ()> + 'static>(
        carry: impl Fn(Connection, Connection, u64) -> F + Send + 'static,
    ) -> Between {
        let relay = Relay::start(&[]);
        let (tell, told) = mpsc::channel();
        let to = relay.url.clone();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                let support =
                    Support { formats: vec![], compressions: vec![], batched: false, strict: false };
                let limits = WireLimits::default();
                let config = Arc::new(ServerConfig { support, limits, relay_info: "{}".into(), tls: None });
                let carry = Arc::new(carry);
                for connection in 0.. {
                    let (stream, _) = listener.accept().await.unwrap();
                    let (config, to, carry) = (Arc::clone(&config), to.clone(), Arc::clone(&carry));
                    tokio::task::spawn_local(async move {
                        if let Ok(Accepted::WebSocket(client)) = wire::accept(stream, &config).await {
                            carry(*client, connect(&to).await, connection).await;
                        }
                    });
                }
            });
        });
        Between { url: format!("ws://{}", told.recv().unwrap()), _relay: relay }
    }
}

async fn connect(relay: &str) -> Connection {
    let offer = Offer { formats: vec![Format::JSON], batched: false, compression: Compression::None };
    wire::connect(relay, &offer, &WireLimits::default()).await.unwrap()
}
