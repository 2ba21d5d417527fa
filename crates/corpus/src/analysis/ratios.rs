//! Compression ratios of events, each alone and as a stream.

use flate2::{Compress, Compression, FlushCompress};
use serde::Serialize;

/// The level of gzip and permessage-deflate here: the default of zlib and of most relays.
const DEFLATE_LEVEL: u32 = 6;
/// The level of zstd here: its default.
const ZSTD_LEVEL: i32 = 3;
/// RFC 1952: the header without a name, and the trailer.
const GZIP_FRAME_BYTES: usize = 18;
/// Bytes that the sender drops from the end of a message (RFC 7692 §7.2.1).
const SYNC_MARK_BYTES: usize = 4;

/// Compressed bytes as a share of the JSON's, by method.
///
/// "Per event" compresses each event alone (a ratio of sums); "stream" compresses all of them as
/// lines of one file, in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Ratios {
    /// gzip level 6.
    pub gzip6_per_event: f64,
    /// gzip level 6.
    pub gzip6_stream: f64,
    /// zstd level 3.
    pub zstd3_per_event: f64,
    /// zstd level 3.
    pub zstd3_stream: f64,
    /// permessage-deflate level 6, 32 KiB window, without context takeover.
    pub deflate6_no_takeover: f64,
    /// permessage-deflate level 6, 32 KiB window, with context takeover.
    pub deflate6_takeover: f64,
}

impl Ratios {
    /// Ratios of these events as JSON, in this order; all 0 if there are none.
    pub fn from_events(events: &[&[u8]]) -> Ratios {
        let bytes: usize = events.iter().map(|json| json.len()).sum();
        if bytes == 0 {
            return Ratios::default();
        }
        let mut deflate = Deflate::new();
        let mut zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).expect("zstd has this level");
        let mut sums = [0; 6];
        let mut deflate_takeover = Deflate::new();
        for json in events {
            sums[0] += deflate.alone(json, FlushCompress::Finish) + GZIP_FRAME_BYTES;
            sums[2] += zstd.compress(json).expect("zstd compresses any bytes into a buffer it sizes").len();
            sums[4] += deflate.alone(json, FlushCompress::Sync) - SYNC_MARK_BYTES;
            sums[5] += deflate_takeover.next(json, FlushCompress::Sync) - SYNC_MARK_BYTES;
        }
        let lines = events.join(&b'\n');
        sums[1] = deflate.alone(&lines, FlushCompress::Finish) + GZIP_FRAME_BYTES;
        sums[3] = zstd.compress(&lines).expect("zstd compresses any bytes into a buffer it sizes").len();
        let [gzip_event, gzip_stream, zstd_event, zstd_stream, no_takeover, takeover] =
            sums.map(|sum| sum as f64 / bytes as f64);
        Ratios {
            gzip6_per_event: gzip_event,
            gzip6_stream: gzip_stream,
            zstd3_per_event: zstd_event,
            zstd3_stream: zstd_stream,
            deflate6_no_takeover: no_takeover,
            deflate6_takeover: takeover,
        }
    }
}

/// Raw deflate that counts bytes and keeps none.
struct Deflate {
    state: Compress,
    buffer: Vec<u8>,
}

impl Deflate {
    fn new() -> Deflate {
        Deflate { state: Compress::new(Compression::new(DEFLATE_LEVEL), false), buffer: Vec::new() }
    }

    /// Compressed bytes of `input` with an empty window.
    fn alone(&mut self, input: &[u8], flush: FlushCompress) -> usize {
        self.state.reset();
        self.next(input, flush)
    }

    /// Compressed bytes of `input` with earlier inputs in the window.
    fn next(&mut self, input: &[u8], flush: FlushCompress) -> usize {
        self.buffer.clear();
        // The bound of RFC 1951's stored blocks, with room for a flush.
        self.buffer.reserve(input.len() + input.len() / 1_000 + 64);
        let before = self.state.total_in();
        self.state.compress_vec(input, &mut self.buffer, flush).expect("deflate takes any bytes");
        assert_eq!(self.state.total_in() - before, input.len() as u64, "the buffer has room for all of it");
        self.buffer.len()
    }
}
