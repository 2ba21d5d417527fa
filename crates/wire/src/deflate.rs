//! Parameters of permessage-deflate, as the transport has them.

use terms::{Compression, DeflateParams};
use tungstenite_deflate::Direction;

/// The parameters for the transport.
pub(crate) fn transport(params: &DeflateParams) -> tungstenite_deflate::DeflateParams {
    tungstenite_deflate::DeflateParams {
        level: params.level.unsigned_abs(),
        to_client: Direction {
            takeover: params.takeover,
            window_bits: params.window_bits,
            min_bytes: params.min_bytes,
        },
        to_server: Direction {
            takeover: params.upload_takeover,
            window_bits: params.upload_window_bits,
            min_bytes: params.upload_min_bytes,
        },
        shared: params.shared,
    }
}

/// The compression that both ends agreed on.
pub(crate) fn agreed(params: tungstenite_deflate::DeflateParams) -> Compression {
    let tungstenite_deflate::DeflateParams { level, to_client, to_server, shared } = params;
    Compression::Deflate(DeflateParams {
        level: level.cast_signed(),
        window_bits: to_client.window_bits,
        upload_window_bits: to_server.window_bits,
        takeover: to_client.takeover,
        upload_takeover: to_server.takeover,
        min_bytes: to_client.min_bytes,
        upload_min_bytes: to_server.min_bytes,
        shared,
    })
}
