//! The layer under tungstenite that clears the mark of compressed messages.
//!
//! tungstenite refuses RSV1, the bit that marks a compressed message (RFC 7692 §6), when it reads.
//! The tap walks the frame headers in the read buffer, clears the bit on the first frame of a
//! compressed message, turns Text into Binary there (compressed bytes must escape the UTF-8 check)
//! and remembers both for the message that will come out. RSV1 anywhere else stays set, so that
//! tungstenite rejects it.
//!
//! It also reads ahead. tungstenite keeps a read buffer for as long as the connection lives and
//! fills it with zeros before every read, so a large one costs memory and a small one costs calls.
//! The tap reads all bytes of the stream in one call, into a buffer of the thread, and hands them
//! over in pieces as small as tungstenite's buffer. Into a large buffer, which suits an end with
//! few connections, it reads directly.
//!
//! A server's data frames bypass tungstenite, which then writes only control frames. The tap lets
//! no frame of one begin inside a frame of the other.

use std::{
    cell::Cell,
    collections::VecDeque,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::frames::{FIN, Frames, RSV1};

/// Returns whether a read would return `Pending`, and then wakes the task when it would not.
pub(crate) type HasNothingToRead<S> = fn(&S, &mut Context<'_>) -> bool;

/// A byte stream seen through the tap.
#[derive(Debug)]
pub(crate) struct Tap<S> {
    pub(crate) stream: S,
    /// Asked before each read by an end that has one.
    pub(crate) has_nothing_to_read: Option<HasNothingToRead<S>>,
    /// Present if permessage-deflate is agreed.
    walker: Option<Walker>,
    /// Read before tungstenite had room for it. Empty, and without memory, when the connection is
    /// idle.
    ahead: Vec<u8>,
    /// Bytes of `ahead` that tungstenite has.
    handed_over: usize,
    /// Data frames that bypass tungstenite.
    pub(crate) frames: Frames,
    /// The byte stream did not take all of tungstenite's bytes, which may have ended inside a
    /// frame. No data frame is added then, so that a Close in the rest overtakes none.
    pub(crate) in_frame: bool,
}

/// The most that is read at once, and that a connection may hold ahead.
const READ_BYTES: usize = 64 << 10;

/// A buffer of at least this size is read into directly, which saves a copy.
const LARGE_BYTES: usize = 12 << 10;

thread_local! {
    static READ: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// The memory of the connection that read ahead last: the kernel would clear memory that was
    /// given back.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The mark of an arrived data message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) compressed: bool,
    pub(crate) text: bool,
}

impl<S> Tap<S> {
    /// A tap on a byte stream after its handshake. `early` are the bytes that came along with the
    /// peer's HTTP head.
    pub(crate) fn new(stream: S, deflate: bool, early: &mut [u8]) -> Tap<S> {
        let mut tap = Tap {
            stream,
            has_nothing_to_read: None,
            walker: deflate.then(Walker::default),
            ahead: Vec::new(),
            handed_over: 0,
            frames: Frames::default(),
            in_frame: false,
        };
        tap.pass(early);
        tap
    }

    /// The mark of the next data message that tungstenite yields; `None` without deflate.
    pub(crate) fn next_arrival(&mut self) -> Option<Arrival> {
        self.walker.as_mut()?.arrivals.pop_front()
    }

    /// Whether a read would certainly bring nothing now; if so, the task is woken when one would.
    pub(crate) fn has_nothing_to_read(&self, cx: &mut Context<'_>) -> bool {
        self.ahead.is_empty() && self.has_nothing_to_read.is_some_and(|ask| ask(&self.stream, cx))
    }

    /// Hands over bytes that were read ahead.
    fn hand_over(&mut self, buf: &mut ReadBuf<'_>) {
        let rest = &self.ahead[self.handed_over..];
        let now = &rest[..rest.len().min(buf.remaining())];
        buf.put_slice(now);
        self.handed_over += now.len();
        if self.handed_over == self.ahead.len() {
            self.ahead.clear();
            self.handed_over = 0;
            SPARE.set(std::mem::take(&mut self.ahead));
        }
    }

    fn pass(&mut self, fresh: &mut [u8]) {
        if let Some(walker) = &mut self.walker {
            walker.walk(fresh);
        }
    }
}

impl<S: AsyncRead + Unpin> Tap<S> {
    /// Reads all bytes of the byte stream: those that fit into `buf`, and the rest ahead.
    fn read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Taken and not borrowed: the stream may itself travel inside another WebSocket.
        let mut bytes = READ.take();
        bytes.resize(READ_BYTES, 0);
        let mut whole = ReadBuf::new(&mut bytes);
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut whole);
        let (now, later) = whole.filled().split_at(whole.filled().len().min(buf.remaining()));
        buf.put_slice(now);
        if !later.is_empty() {
            self.ahead = SPARE.take();
            self.ahead.extend_from_slice(later);
        }
        READ.set(bytes);
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tap<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let tap = self.get_mut();
        let before = buf.filled().len();
        if !tap.ahead.is_empty() {
            tap.hand_over(buf);
        } else if buf.remaining() >= LARGE_BYTES {
            ready!(Pin::new(&mut tap.stream).poll_read(cx, buf))?;
        } else {
            ready!(tap.read(cx, buf))?;
        }
        tap.pass(&mut buf.filled_mut()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tap<S> {
    /// tungstenite offers all its bytes, with control frames after the waiting data frames.
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let tap = self.get_mut();
        if !tap.in_frame {
            ready!(tap.frames.poll_write_to(&mut tap.stream, cx))?;
        }
        let written = ready!(Pin::new(&mut tap.stream).poll_write(cx, buf))?;
        tap.in_frame = written < buf.len();
        Poll::Ready(Ok(written))
    }

    /// tungstenite flushes when it has written all that it had.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let tap = self.get_mut();
        ready!(tap.frames.poll_write_to(&mut tap.stream, cx))?;
        Pin::new(&mut tap.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

const OPCODE: u8 = 0x0f;
const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;

/// The longest frame header: two bytes, a 64-bit length, a mask (RFC 6455 §5.2).
const MAX_HEADER_BYTES: usize = 14;

/// Follows the frames of one direction, however the bytes are cut into reads.
#[derive(Debug, Default)]
struct Walker {
    /// The header being read, and how much of it is here.
    header: [u8; MAX_HEADER_BYTES],
    header_bytes: usize,
    payload_left_bytes: u64,
    /// Between the first and the last frame of a data message.
    in_message: bool,
    /// Messages that tungstenite has not yielded yet: at most those of one read.
    arrivals: VecDeque<Arrival>,
}

impl Walker {
    fn walk(&mut self, bytes: &mut [u8]) {
        let mut at = 0;
        loop {
            let left = bytes.len() - at;
            match usize::try_from(self.payload_left_bytes) {
                Ok(payload_left) if payload_left < left => at += payload_left,
                _ => {
                    self.payload_left_bytes -= left as u64;
                    return;
                }
            }
            self.payload_left_bytes = 0;
            if self.header_bytes == 0 && bytes[at..].len() >= header_len(&bytes[at..]) {
                // Nearly every header is in one piece.
                bytes[at] = self.first_byte(bytes[at]);
                self.payload_left_bytes = payload_len(&bytes[at..]);
                at += header_len(&bytes[at..]);
                continue;
            }
            if self.header_bytes == 0 {
                bytes[at] = self.first_byte(bytes[at]);
            }
            self.header[self.header_bytes] = bytes[at];
            self.header_bytes += 1;
            at += 1;
            if self.header_bytes == header_len(&self.header[..self.header_bytes]) {
                self.payload_left_bytes = payload_len(&self.header);
                self.header_bytes = 0;
            }
        }
    }

    /// Notes what kind of frame begins here, and returns its first byte as tungstenite shall see
    /// it.
    fn first_byte(&mut self, byte: u8) -> u8 {
        let is_last = byte & FIN != 0;
        match byte & OPCODE {
            CONTINUATION => {
                self.in_message = !is_last;
                byte
            }
            // A new message inside an unfinished one: tungstenite ends the connection over it.
            TEXT | BINARY if self.in_message => byte,
            opcode @ (TEXT | BINARY) => {
                self.in_message = !is_last;
                let compressed = byte & RSV1 != 0;
                self.arrivals.push_back(Arrival { compressed, text: opcode == TEXT });
                if compressed { (byte & !(RSV1 | OPCODE)) | BINARY } else { byte }
            }
            _ => byte,
        }
    }
}

/// The length of the header, as far as its beginning tells.
fn header_len(header: &[u8]) -> usize {
    let Some(second) = header.get(1) else { return 2 };
    let length_bytes = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let mask_bytes = if second & 0x80 != 0 { 4 } else { 0 };
    2 + length_bytes + mask_bytes
}

fn payload_len(header: &[u8]) -> u64 {
    match header[1] & 0x7f {
        126 => u64::from(u16::from_be_bytes([header[2], header[3]])),
        127 => u64::from_be_bytes(header[2..10].try_into().expect("2..10 is eight bytes")),
        len => u64::from(len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKED: Arrival = Arrival { compressed: true, text: true };
    const PLAIN: Arrival = Arrival { compressed: false, text: true };

    /// Walks `bytes` cut into pieces of every size and checks what comes out.
    fn check(bytes: &[u8], expected: &[u8], arrivals: &[Arrival]) {
        for piece_bytes in 1..=bytes.len() {
            let mut walker = Walker::default();
            let mut seen = bytes.to_vec();
            seen.chunks_mut(piece_bytes).for_each(|piece| walker.walk(piece));
            assert_eq!(seen, expected, "in pieces of {piece_bytes}");
            assert_eq!(walker.arrivals, arrivals, "in pieces of {piece_bytes}");
        }
    }

    #[test]
    fn the_mark_of_a_compressed_message_is_taken_away() {
        check(&[0xc1, 2, 0xc1, 0xc1], &[0x82, 2, 0xc1, 0xc1], &[MARKED]);
        check(&[0xc1, 0x81, 9, 9, 9, 9, 7], &[0x82, 0x81, 9, 9, 9, 9, 7], &[MARKED]);
    }

    #[test]
    fn frames_are_found_behind_every_length_form_and_behind_empty_ones() {
        for len in [0_usize, 1, 125, 126, 65_535, 65_536] {
            let mut bytes = vec![0x81];
            match len {
                0..126 => bytes.push(u8::try_from(len).unwrap()),
                126..65_536 => {
                    bytes.push(126);
                    bytes.extend(u16::try_from(len).unwrap().to_be_bytes());
                }
                _ => {
                    bytes.push(127);
                    bytes.extend((len as u64).to_be_bytes());
                }
            }
            bytes.resize(bytes.len() + len, 0xc1);
            bytes.extend([0xc1, 0]);
            let mut expected = bytes.clone();
            let marked_at = expected.len() - 2;
            expected[marked_at] = 0x82;
            let mut walker = Walker::default();
            bytes.chunks_mut(1000).for_each(|piece| walker.walk(piece));
            assert!(bytes == expected, "payload of {len}");
            assert_eq!(walker.arrivals, [PLAIN, MARKED]);
        }
    }

    #[test]
    fn fragments_are_one_message_and_control_frames_between_them_none() {
        let bytes = [0x41, 1, 0xff, 0x89, 1, 0xff, 0x00, 1, 0xff, 0x80, 0, 0xc1, 0];
        let expected = [0x02, 1, 0xff, 0x89, 1, 0xff, 0x00, 1, 0xff, 0x80, 0, 0x82, 0];
        check(&bytes, &expected, &[MARKED, MARKED]);
    }

    #[test]
    fn rsv1_in_the_wrong_place_stays_for_tungstenite_to_reject() {
        check(&[0xc9, 0], &[0xc9, 0], &[]);
        check(&[0x01, 0, 0xc0, 0], &[0x01, 0, 0xc0, 0], &[PLAIN]);
        check(&[0x41, 0, 0xc1, 0], &[0x02, 0, 0xc1, 0], &[MARKED]);
    }

    #[test]
    fn a_length_beyond_memory_is_only_a_number() {
        let mut bytes = vec![0x82, 127];
        bytes.extend([0xff; 8]);
        bytes.extend([0xc1; 3]);
        check(&bytes, &bytes.clone(), &[Arrival { compressed: false, text: false }]);
    }
}
