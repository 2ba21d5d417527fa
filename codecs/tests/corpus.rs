//! Real events: each comes back the same from every format, and its signature still verifies.

mod common;

use codecs::{Format, VerifyLevel};
use common::{event_of, subjects};

#[test]
fn real_events_survive_every_format() {
    let Some(path) = common::shared("corpus/mix.jsonl.zst") else { return };
    let lines = zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap();
    let lines: Vec<&[u8]> = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    assert!(lines.len() > 1_000, "the corpus has only {} events", lines.len());
    let subjects = subjects();
    let mut bytes = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let event = event_of(std::str::from_utf8(line).unwrap());
        for subject in &subjects {
            let label = format!("line {} as {}", number + 1, subject.label);
            bytes.clear();
            match subject.codec.encode_event(&event, &mut bytes) {
                Ok(()) => {
                    let decoded =
                        subject.codec.decode_event(&bytes).unwrap_or_else(|e| panic!("{label}: {e}"));
                    assert!(decoded == event, "{label}: another event came back");
                }
                Err(error) => assert!(subject.must_refuse(&event), "{label}: {error}"),
            }
            if subject.format == Format::JSON {
                assert!(bytes == *line, "{label}: JSON is not the line it was read from");
            }
        }
        // Signatures cost a millisecond each in a build without optimisation; every id, and a tenth of them.
        let level = if number % 10 == 0 { VerifyLevel::Full } else { VerifyLevel::Id };
        assert_eq!(event.verify(level), Ok(()), "line {}", number + 1);
    }
}
