//! Three counts of the same bytes: the connection's, that of the frame format (RFC 6455 §5.2), and
//! the kernel's.

use std::process::Command;

use wire::Connection;

use crate::common::{config, offer, pair, receive, sample, send, support};

/// Payloads on both sides of each length form of the frame header (RFC 6455 §5.2).
const SIZES: [usize; 7] = [0, 1, 125, 126, 65_535, 65_536, 100_000];

/// Bytes of a frame; `mask` is 4 from a client.
fn frame_bytes(payload: usize, mask: usize) -> u64 {
    let length = match payload {
        ..=125 => 0,
        126..=65_535 => 2,
        _ => 8,
    };
    (2 + length + mask + payload) as u64
}

/// Bytes that the kernel sent and received on the connection's socket; `None` without `ss`
/// (iproute2).
fn kernel_bytes(connection: &Connection) -> Option<(u64, u64)> {
    let (local, peer) = (connection.local_addr(), connection.peer_addr());
    let filter = ["src".to_owned(), local.to_string(), "dst".to_owned(), peer.to_string()];
    let output = Command::new("ss").arg("-tinH").args(filter).output().ok()?;
    let text = String::from_utf8(output.stdout).unwrap();
    let value = |key: &str| {
        let found = text.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix(':'));
        found.map_or(0, |value| value.parse().unwrap()) // ss omits zeros
    };
    assert!(text.contains("bytes_"), "not what ss prints: {text:?}");
    // On a busy machine the kernel sends tails again (RFC 8985, tail loss probes).
    Some((value("bytes_sent") - value("bytes_retrans"), value("bytes_received")))
}

#[tokio::test]
async fn the_connection_the_frame_format_and_the_kernel_count_the_same_bytes() {
    let (mut client, mut relay) = pair(&offer("none"), config(support(&["none"]))).await;
    for bytes in SIZES {
        send(&mut client, sample(1, bytes)).await;
        send(&mut relay, sample(2, bytes)).await;
        receive(&mut relay).await;
        receive(&mut client).await;
    }
    for (connection, own_mask, peer_mask) in [(&client, 4, 0), (&relay, 0, 4)] {
        let traffic = connection.traffic();
        let framed = |mask| SIZES.iter().map(|bytes| frame_bytes(*bytes, mask)).sum::<u64>();
        assert_eq!(traffic.sent.wire_bytes, framed(own_mask));
        assert_eq!(traffic.received.wire_bytes, framed(peer_mask));
        let Some(kernel) = kernel_bytes(connection) else {
            eprintln!("the kernel's own count was not looked at: there is no ss (iproute2)");
            continue;
        };
        let counted = (
            traffic.handshake_sent_bytes + traffic.sent.wire_bytes,
            traffic.handshake_received_bytes + traffic.received.wire_bytes,
        );
        assert_eq!(counted, kernel);
    }
}
