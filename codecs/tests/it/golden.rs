//! The bytes of the reference encoders, and that real signatures survive every format.

use codecs::{Event, Format, VerifyLevel, hex};

use crate::common::{Golden, sha256_hex, subjects, vectors};

#[test]
fn every_vector_is_written_as_the_reference_does_and_read_back() {
    for vector in vectors() {
        assert_eq!(vector.event.verify(VerifyLevel::Full), Ok(()), "{}", vector.name);
        for subject in subjects() {
            let label = format!("{} as {}", vector.name, subject.label);
            let encoded = subject.event(&vector.event);
            assert_eq!(encoded.is_err(), subject.must_refuse(&vector.event), "{label}: {encoded:?}");
            // Where the reference altered the event or failed, refusing is right, and so is doing better.
            if let Some(Golden::Bytes { len, sha256, hex: golden }) = vector.bytes.get(subject.format.name())
            {
                let encoded = encoded.as_ref().unwrap();
                assert!(golden.as_ref().is_none_or(|golden| *golden == hex::encode(encoded)), "{label}");
                assert_eq!((encoded.len(), &sha256_hex(encoded)), (*len, sha256), "{label}");
            }
            let decoded = encoded.map(|encoded| subject.codec.decode_event(&encoded).map(Event::into_owned));
            assert!(decoded.is_err() || decoded == Ok(Ok(vector.event.clone())), "{label}: {decoded:?}");
        }
    }
}

#[test]
fn json_is_the_line_it_was_read_from() {
    let json = Format::JSON.spec().library;
    for vector in vectors() {
        let mut out = Vec::new();
        json.encode_event(&json.decode_event(vector.event_json.as_bytes()).unwrap(), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), vector.event_json, "{}", vector.name);
    }
}

#[test]
fn vectors_know_no_format_that_the_registry_does_not_have() {
    for vector in vectors() {
        for name in vector.bytes.keys() {
            name.parse::<Format>().unwrap_or_else(|error| panic!("{}: {error}", vector.name));
        }
    }
}
