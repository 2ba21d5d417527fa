//! A cursor over hostile bytes, and the varint of most binary formats.
//!
//! Every length in a frame is a claim. The cursor checks it against the remaining bytes before it
//! allocates, and names the field with a wrong claim.

use crate::{
    error::DecodeError,
    fixed::Fixed,
    text::{self, Letter},
};

/// The bytes not read yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `len` bytes; `len` may be any claim.
    #[inline]
    pub(crate) fn bytes(&mut self, len: u64, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let len = usize::try_from(len).map_err(|_| DecodeError::Truncated(what))?;
        let (head, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated(what))?;
        self.rest = rest;
        Ok(head)
    }

    /// The next `N` bytes.
    #[inline]
    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        self.array_ref(what).copied()
    }

    /// The next `N` bytes, in place. Copying them later saves long arrays a way through the result.
    #[inline]
    pub(crate) fn array_ref<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<&'a [u8; N], DecodeError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Truncated(what))?;
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    /// Fixed fields as DannyPack and Cap'n Proto have them: id, pubkey, signature, time and kind,
    /// little-endian.
    #[inline]
    pub(crate) fn fixed(&mut self, into: &mut Fixed) -> Result<(), DecodeError> {
        into.head.id = *self.array_ref("id")?;
        into.head.pubkey = *self.array_ref("pubkey")?;
        into.sig = *self.array_ref("sig")?;
        into.head.created_at = i64::from_le_bytes(self.array("created_at")?);
        into.head.kind = u16::from_le_bytes(self.array("kind")?);
        Ok(())
    }

    /// An unsigned LEB128 number in its shortest form.
    #[inline]
    pub(crate) fn varint(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        match self.rest.split_first() {
            Some((byte, rest)) if *byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(what),
        }
    }

    /// The letter after these bytes, if both are next.
    #[inline]
    pub(crate) fn letter_behind<const N: usize>(&mut self, bytes: [u8; N]) -> Option<Letter> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        let (byte, rest) = rest.split_first()?;
        let letter = Letter::new(*byte).filter(|_| *head == bytes)?;
        self.rest = rest;
        Some(letter)
    }

    /// The `M` bytes after these bytes, if all are next.
    #[inline]
    pub(crate) fn array_behind<const N: usize, const M: usize>(
        &mut self,
        bytes: [u8; N],
    ) -> Option<&'a [u8; M]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        let (array, rest) = rest.split_first_chunk::<M>().filter(|_| *head == bytes)?;
        self.rest = rest;
        Some(array)
    }

    /// Up to 8 bytes that a longer input begins with are looked at as one word, and their groups of
    /// 7 bits pushed together: pairs, pairs of pairs, halves.
    #[inline]
    fn long_varint(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        if let Some(word) = self.rest.first_chunk() {
            let word = u64::from_le_bytes(*word);
            let ends = !word & 0x8080_8080_8080_8080;
            if ends != 0 {
                let bits = ends.trailing_zeros() + 1;
                let bytes = word & u64::MAX >> (64 - bits);
                if bits > 8 && bytes >> (bits - 8) == 0 {
                    return Err(DecodeError::NotCanonical(what));
                }
                let sevens = bytes & 0x7f7f_7f7f_7f7f_7f7f;
                let pairs = sevens & 0x007f_007f_007f_007f | (sevens & 0x7f00_7f00_7f00_7f00) >> 1;
                let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
                self.rest = &self.rest[bits as usize / 8..];
                return Ok(fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4);
            }
        }
        self.any_varint(what)
    }

    fn any_varint(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(what)?;
            if shift == 63 && byte > 1 {
                return Err(DecodeError::OutOfRange(what)); // the tenth byte has room for one bit
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                let shortest = byte != 0 || shift == 0;
                return if shortest { Ok(value) } else { Err(DecodeError::NotCanonical(what)) };
            }
        }
        Err(DecodeError::OutOfRange(what))
    }

    /// `len` bytes of UTF-8.
    #[inline]
    pub(crate) fn text(&mut self, len: u64, what: &'static str) -> Result<&'a str, DecodeError> {
        text::checked(self.bytes(len, what)?, what)
    }

    /// The bytes that are left, without taking them.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Everything left.
    pub(crate) fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Everything left, as UTF-8.
    pub(crate) fn rest_text(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        text::checked(self.take_rest(), what)
    }

    /// Number of `claimed` entries (24 bytes each in memory) to make room for at once: a few, for
    /// small tags at the end of a message, or as many as the rest justifies at 8 bytes each.
    /// Further entries get room when they arrive.
    #[inline]
    pub(crate) fn capacity(&self, claimed: u64) -> usize {
        const FEW: usize = 8;
        usize::try_from(claimed).unwrap_or(usize::MAX).min(FEW.max(self.rest.len() / 8))
    }

    /// Fails when bytes remain.
    #[inline]
    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(self.rest.len())) }
    }
}

/// Appends the shortest unsigned LEB128 form of `value`.
pub(crate) fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Number of bytes that [`write_varint`] appends.
pub(crate) fn varint_len(value: u64) -> usize {
    (value | 1).ilog2() as usize / 7 + 1
}

/// Appends `write`'s output after its length as a varint.
pub(crate) fn write_sized<E>(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    write(out)?;
    let end = out.len();
    write_varint((end - start) as u64, out);
    let prefix = out.len() - end;
    out[start..].rotate_right(prefix); // one short move, cheaper than measuring first or a second buffer
    Ok(())
}

/// [`write_sized`] for output of about this length. If both lengths take equally many bytes,
/// nothing has to be moved.
///
/// `#[inline]` puts it into the codegen unit of its caller: in another, `write` is not inlined.
#[inline]
pub(crate) fn write_sized_about<E>(
    about: usize,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    const MOST_BYTES: usize = 10;
    let start = out.len();
    let room = varint_len(about as u64);
    out.extend_from_slice(&[0; MOST_BYTES][..room]);
    write(out)?;
    let len = out.len() - start - room;
    let prefix = varint_len(len as u64);
    if prefix > room {
        out.extend_from_slice(&[0; MOST_BYTES][room..prefix]);
    }
    if prefix != room {
        out.copy_within(start + room..start + room + len, start + prefix);
        out.truncate(start + prefix + len);
    }
    let mut length = len;
    for byte in &mut out[start..start + prefix] {
        *byte = length.to_le_bytes()[0] | 0x80;
        length >>= 7;
    }
    out[start + prefix - 1] &= 0x7f;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_have_one_form() {
        let around_each_bit =
            (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, 0x5555_5555_5555_5555 >> bit]);
        for value in around_each_bit.chain([u64::MAX]) {
            let mut bytes = Vec::new();
            write_varint(value, &mut bytes);
            assert_eq!(varint_len(value), bytes.len());
            for behind in [&[][..], &[0xff; 8]] {
                let input = [&bytes, behind].concat();
                let mut reader = Reader::new(&input);
                assert_eq!(reader.varint("n"), Ok(value));
                assert_eq!(reader.rest(), behind);
            }
        }
        let check =
            |bytes: &[u8], error| assert_eq!(Reader::new(bytes).varint("n"), Err(error), "{bytes:02x?}");
        check(&[], DecodeError::Truncated("n"));
        check(&[0x80], DecodeError::Truncated("n"));
        check(&[0x80, 0x00], DecodeError::NotCanonical("n"));
        check(&[0xff, 0x80, 0x00], DecodeError::NotCanonical("n"));
        check(&[0x80, 0x00, 1, 2, 3, 4, 5, 6, 7], DecodeError::NotCanonical("n"));
        check(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], DecodeError::NotCanonical("n"));
        check(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], DecodeError::OutOfRange("n"));
        check(&[0x80; 12], DecodeError::OutOfRange("n"));
    }

    #[test]
    fn sized_output_stands_behind_its_length() {
        for (len, about) in [0, 1, 127, 128, 300, 16_383, 16_384, 2_097_152].into_iter().flat_map(|len| {
            [None, Some(0), Some(127), Some(16_000), Some(usize::MAX)].map(|about| (len, about))
        }) {
            let mut out = vec![7];
            let write = |out: &mut Vec<u8>| {
                out.extend((0..len).map(|i: usize| i.to_le_bytes()[0]));
                Ok::<_, ()>(())
            };
            let written = match about {
                Some(about) => write_sized_about(about, &mut out, write),
                None => write_sized(&mut out, write),
            };
            written.expect("nothing fails here");
            let mut reader = Reader::new(&out[1..]);
            assert_eq!(reader.varint("length"), Ok(len as u64));
            assert!(reader.take_rest().iter().enumerate().all(|(i, byte)| i.to_le_bytes()[0] == *byte));
        }
    }
}
