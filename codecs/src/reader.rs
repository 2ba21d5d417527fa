//! A cursor over bytes from strangers, and the varint that most binary formats share.
//!
//! Every length in a frame is a claim. The cursor checks it against what is there before anything is allocated,
//! and says which field was being read when the claim proved wrong.

use crate::DecodeError;

/// Filters in one REQ or COUNT that a decoder will look at; a relay's own limit is far lower and answers with a
/// reason. An empty filter is one or two bytes on the wire and some 150 in memory, so that without a bound one
/// frame of 1 MiB could claim 150 MiB; 4,096 filters stay under one.
pub(crate) const MAX_FILTERS: usize = 4_096;

/// The bytes not read yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `len` bytes; `len` may be any claim.
    pub(crate) fn bytes(&mut self, len: u64, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let len = usize::try_from(len).map_err(|_| DecodeError::Truncated(what))?;
        let (head, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated(what))?;
        self.rest = rest;
        Ok(head)
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Truncated(what))?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    /// An unsigned LEB128 number in its shortest form.
    pub(crate) fn varint(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        match self.rest.split_first() {
            Some((byte, rest)) if *byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(what),
        }
    }

    fn long_varint(&mut self, what: &'static str) -> Result<u64, DecodeError> {
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
    pub(crate) fn text(&mut self, len: u64, what: &'static str) -> Result<&'a str, DecodeError> {
        str::from_utf8(self.bytes(len, what)?).map_err(|_| DecodeError::Utf8(what))
    }

    /// What is left, which stays.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Everything left.
    pub(crate) fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Everything left, as UTF-8.
    pub(crate) fn rest_text(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        str::from_utf8(self.take_rest()).map_err(|_| DecodeError::Utf8(what))
    }

    /// How many of `claimed` entries (24 bytes each in memory) to make room for at once: a few, for small tags at
    /// the end of a message, or as many as what follows can pay for at 8 bytes each. More arrive as they prove to
    /// be there.
    pub(crate) fn capacity(&self, claimed: u64) -> usize {
        const FEW: usize = 8;
        usize::try_from(claimed).unwrap_or(usize::MAX).min(FEW.max(self.rest.len() / 8))
    }

    /// Fails when bytes remain.
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

/// How many bytes [`write_varint`] appends.
pub(crate) fn varint_len(value: u64) -> usize {
    (value | 1).ilog2() as usize / 7 + 1
}

/// Appends `write`'s output behind its length as a varint.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_have_one_form() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX >> 1, u64::MAX] {
            let mut bytes = Vec::new();
            write_varint(value, &mut bytes);
            assert_eq!(varint_len(value), bytes.len());
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint("n"), Ok(value));
            assert_eq!(reader.finish(), Ok(()));
        }
        let check =
            |bytes: &[u8], error| assert_eq!(Reader::new(bytes).varint("n"), Err(error), "{bytes:02x?}");
        check(&[], DecodeError::Truncated("n"));
        check(&[0x80], DecodeError::Truncated("n"));
        check(&[0x80, 0x00], DecodeError::NotCanonical("n"));
        check(&[0xff, 0x80, 0x00], DecodeError::NotCanonical("n"));
        check(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], DecodeError::OutOfRange("n"));
        check(&[0x80; 12], DecodeError::OutOfRange("n"));
    }

    #[test]
    fn sized_output_stands_behind_its_length() {
        for len in [0, 1, 127, 128, 300, 16_384] {
            let mut out = vec![7];
            write_sized(&mut out, |out| {
                out.extend((0..len).map(|i: usize| i.to_le_bytes()[0]));
                Ok::<_, ()>(())
            })
            .expect("nothing fails here");
            let mut reader = Reader::new(&out[1..]);
            assert_eq!(reader.varint("length"), Ok(len as u64));
            assert!(reader.take_rest().iter().enumerate().all(|(i, byte)| i.to_le_bytes()[0] == *byte));
        }
    }
}
