//! Messages that are written in parts.

use futures::{SinkExt, StreamExt, executor::block_on};
use tokio::io::{AsyncReadExt, DuplexStream, duplex};
use tungstenite_deflate::{
    DeflateParams, Direction, SharedDeflate, WebSocket,
    tungstenite::{Message, protocol::frame::coding::Data},
};

use super::websocket::{pair, raw, sample};

/// Every way in which parts go out: as they are, compressed, and from a common body.
fn agreements() -> [(&'static str, Option<DeflateParams>); 5] {
    let to_client = |to_client| Some(DeflateParams { to_client, ..DeflateParams::DEFAULT });
    let once = DeflateParams { to_client: Direction::NO_TAKEOVER, ..DeflateParams::DEFAULT };
    [
        ("uncompressed", None),
        ("too short to compress", to_client(Direction { min_bytes: usize::MAX, ..Direction::DEFAULT })),
        ("with takeover", to_client(Direction::DEFAULT)),
        ("without takeover", to_client(Direction::NO_TAKEOVER)),
        ("shared", Some(DeflateParams { shared: true, ..once })),
    ]
}

#[tokio::test]
async fn parts_go_out_as_the_whole_message_would() {
    let (short, long) = (sample(700), sample(70_000));
    let (short, long) = (short.as_bytes(), long.as_bytes());
    let messages: [[&[u8]; 3]; 6] = [
        [b"", b"", b""],
        [b"", b"x", b""],
        [b"one ", b"", b"three"],
        [&short[..17], &short[17..600], &short[600..]],
        [b"", &short[..600], &short[600..]],
        // Its prefix fits into no stored block.
        [long, short, b"]"],
    ];
    // What is shared differs from the whole, by intent.
    for (what, deflate) in &agreements()[..4] {
        let mut sent = Vec::new();
        for way in 0..3 {
            let (near, mut far) = duplex(1 << 20);
            let mut server = raw(near, *deflate).await;
            for [prefix, front, end] in messages {
                match way {
                    0 => server.start_data(Data::Binary, [prefix, front, end].concat().into()),
                    1 => server.start_parts(Data::Binary, &[prefix, front, end]),
                    _ => server.start_shared(Data::Binary, prefix, &[front, end], &SharedDeflate::default()),
                }
                .unwrap();
            }
            server.flush().await.unwrap();
            drop(server);
            let mut bytes = Vec::new();
            far.read_to_end(&mut bytes).await.unwrap();
            sent.push(bytes);
        }
        assert!(sent[0] == sent[1] && sent[0] == sent[2], "{what}");
    }
}

#[tokio::test]
async fn parts_arrive_as_one_message_from_either_end() {
    let text = sample(900);
    let parts: [&[u8]; 3] = [b"one ", b"message of ", text.as_bytes()];
    let whole = Message::binary(parts.concat());
    for (what, deflate) in agreements() {
        let (client, server) = pair(deflate.as_ref(), deflate.as_slice()).await;
        let ends = &mut [client, server];
        for from in 0..2 {
            ends[from].start_parts(Data::Binary, &parts).unwrap();
            let shared = SharedDeflate::default();
            ends[from].start_shared(Data::Binary, parts[0], &parts[1..], &shared).unwrap();
            ends[from].flush().await.unwrap();
            for _ in 0..2 {
                assert_eq!(ends[1 - from].next().await.unwrap().unwrap(), whole, "{what} from {from}");
            }
        }
    }
}

#[test]
fn a_server_writes_parts_without_an_allocation_a_message() {
    let text = sample(900);
    for (what, deflate) in agreements() {
        let (near, _far) = duplex(1 << 20);
        let mut server = block_on(raw(near, deflate));
        let shared = SharedDeflate::default();
        let write = |server: &mut WebSocket<DuplexStream>| {
            server.start_shared(Data::Text, b"prefix ", &[text.as_bytes(), b"]"], &shared).unwrap();
            server.start_parts(Data::Text, &[b"prefix ", text.as_bytes(), b"]"]).unwrap();
        };
        write(&mut server);
        block_on(server.flush()).unwrap(); // now thread, connection and event have their buffers
        let counted = allocation_counter::measure(|| write(&mut server));
        assert_eq!(counted.count_total, 0, "{what}: {counted:?}");
    }
}
