//! Both ends against each other, over real sockets.

use crate::common::{pair_with, receive, sample, send};
use wire::{CloseCode, Compression};

#[tokio::test]
async fn messages_of_every_size_arrive_unaltered_under_every_compression_in_both_directions() {
    for name in Compression::NAMES {
        let (mut client, mut relay) = pair_with(name).await;
        assert_eq!(client.agreement().compression.name(), name);
        assert_eq!(relay.agreement(), client.agreement());
        for (seed, bytes) in
            [0, 1, 125, 126, 700, 255, 65_535, 65_536, 300_000, 0, 0, 700].into_iter().enumerate()
        {
            let payload = sample(seed, bytes);
            let (sent, received) = tokio::join!(
                async {
                    send(&mut client, payload.clone()).await;
                    receive(&mut client).await
                },
                async {
                    let received = receive(&mut relay).await;
                    send(&mut relay, received.clone()).await;
                    received
                }
            );
            assert!(sent == payload && received == payload, "{name}, {bytes} bytes");
        }
        let (sent, received) = (client.traffic().sent, relay.traffic().received);
        assert_eq!(sent, received, "{name}: counts at both ends of the socket");
        assert_eq!(relay.traffic().sent, client.traffic().received, "{name}");
        tokio::join!(client.close(CloseCode::Normal, ""), async {
            assert!(relay.next().await.is_none(), "{name}: an orderly close is no error");
        });
    }
}
