//! The common part of messages to many connections, compressed once.

use std::sync::OnceLock;

use bytes::BytesMut;

use crate::{
    deflate::{Deflater, compress_fresh},
    scratch,
};

/// The compressed common end of messages to many connections, made by the first that needs it.
///
/// Messages differ in a prefix, which travels in a stored block (RFC 1951 §3.2.4); the common end
/// was compressed in a window of its own and never refers to the prefix. One value belongs to one
/// payload.
#[derive(Debug, Default)]
pub struct SharedDeflate {
    first: OnceLock<Box<SharedBody>>,
}

/// The common end for one window, one for each window that connections have agreed on.
#[derive(Debug)]
struct SharedBody {
    window_bits: u8,
    compressed: Box<[u8]>,
    next: SharedDeflate,
}

impl SharedDeflate {
    /// Memory held, over all windows.
    pub fn held_bytes(&self) -> usize {
        let (mut held, mut list) = (0, self);
        while let Some(body) = list.first.get() {
            held += size_of::<SharedBody>() + body.compressed.len();
            list = &body.next;
        }
        held
    }

    fn body(&self, level: u32, window_bits: u8, common: &[&[u8]]) -> &[u8] {
        let mut list = self;
        loop {
            let body = list.first.get_or_init(|| {
                let compressed = compress_once(level, window_bits, common);
                Box::new(SharedBody { window_bits, compressed, next: SharedDeflate::default() })
            });
            if body.window_bits == window_bits {
                return &body.compressed;
            }
            list = &body.next;
        }
    }
}

fn compress_once(level: u32, window_bits: u8, parts: &[&[u8]]) -> Box<[u8]> {
    let mut compressed = BytesMut::new();
    scratch::joined(parts.iter().copied(), |payload| {
        compress_fresh(level, window_bits, payload, &mut compressed);
    });
    compressed[..].into()
}

impl Deflater {
    /// The compressed message: the prefix in a stored block, then the common parts from `shared`,
    /// compressed by the first caller. `None` for a prefix over 65,535 bytes, and if nothing is
    /// shared.
    pub(crate) fn splice<'m>(
        &self,
        prefix: &'m [u8],
        common: &[&[u8]],
        shared: &'m SharedDeflate,
    ) -> Option<Spliced<'m>> {
        let is_empty = common.iter().all(|part| part.is_empty());
        let len = u16::try_from(prefix.len()).ok().filter(|_| !is_empty)?;
        let ([low, high], [not_low, not_high]) = (len.to_le_bytes(), (!len).to_le_bytes());
        Some(Spliced {
            // BFINAL 0, BTYPE 00, and padding to the byte (RFC 1951 §3.2.4).
            stored_header: [0, low, high, not_low, not_high],
            prefix,
            body: shared.body(self.level, self.direction.window_bits, common),
        })
    }
}

/// A compressed message whose body other messages share.
#[derive(Debug)]
pub(crate) struct Spliced<'m> {
    /// The type, the length and its complement.
    stored_header: [u8; 5],
    prefix: &'m [u8],
    body: &'m [u8],
}

impl Spliced<'_> {
    /// The bytes on the wire, in order.
    pub(crate) fn parts(&self) -> [&[u8]; 3] {
        [&self.stored_header, self.prefix, self.body]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        deflate::{
            Inflater,
            tests::{FRESH, LIMIT, compressed, sample},
        },
        params::Direction,
    };

    #[test]
    fn a_spliced_message_inflates_to_what_it_was_made_of_with_and_without_takeover() {
        let (rest, shared) = (sample(5), SharedDeflate::default());
        let mut bodies_bytes = 0;
        for bits in [9, 12, 15] {
            let mut deflater = Deflater::new(6, Direction { window_bits: bits, ..FRESH });
            for takeover in [true, false] {
                let mut inflater = Inflater::new(Direction { takeover, window_bits: bits, ..FRESH });
                for prefix_bytes in [0, 1, 23, 1000, 65_535, 65_536] {
                    let payload = [&vec![b'p'; prefix_bytes][..], &rest].concat();
                    let (prefix, common) = payload.split_at(prefix_bytes);
                    let (front, end) = common.split_at(9);
                    let Some(spliced) = deflater.splice(prefix, &[front, end], &shared) else {
                        assert_eq!(prefix_bytes, 65_536, "no stored block holds it");
                        continue;
                    };
                    assert_eq!(
                        inflater.inflate(&spliced.parts().concat(), LIMIT).unwrap(),
                        payload,
                        "{bits} {takeover} {prefix_bytes}"
                    );
                    let plain = compressed(&mut deflater, b"between");
                    assert_eq!(inflater.inflate(&plain, LIMIT).unwrap(), "between");
                }
            }
            assert!(deflater.splice(b"prefix", &[b""], &shared).is_none(), "nothing is shared");
            let [.., body] = deflater.splice(b"", &[&rest], &shared).unwrap().parts().map(<[u8]>::len);
            bodies_bytes += size_of::<SharedBody>() + body;
            assert_eq!(shared.held_bytes(), bodies_bytes, "compressed once for each window");
        }
    }
}
