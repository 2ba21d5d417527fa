//! Whole corpora through every format: each event comes back the same, tuned code writes the
//! library's bytes, and signatures still verify.

use codecs::{Event, Format, Implementation, VerifyLevel};
use corpus::Corpus;

#[test]
fn bundled_events_survive_every_format() {
    // All of them take minutes without optimisation.
    survive(Corpus::bundled().events.iter().step_by(40));
}

#[test]
#[ignore = "needs mix.pb.gz in the folder REAL_EVENTS"]
fn real_events_survive_every_format() {
    let folder =
        std::path::PathBuf::from(std::env::var_os("REAL_EVENTS").expect("REAL_EVENTS names a folder"));
    let corpus = Corpus::read(&folder.join("mix.pb.gz")).expect("mix.pb.gz is a corpus");
    assert!(corpus.events.len() > 100, "it has only {} events", corpus.events.len());
    survive(corpus.events.iter());
}

fn survive<'e>(events: impl Iterator<Item = &'e Event<'static>>) {
    let mut held = vec![0; Format::all().len()];
    for (number, event) in events.enumerate() {
        for format in Format::all() {
            let written = Implementation::ALL.map(|by| {
                let codec = format.codec(by).ok()?;
                let mut bytes = Vec::new();
                codec.encode_event(event, &mut bytes).ok()?;
                let back = codec.decode_event(&bytes);
                assert!(back.as_ref() == Ok(event), "{format}, {by}: event {number} came back as {back:?}");
                Some(bytes)
            });
            let [library, tuned] = &written;
            if format.spec().tuned.is_some() {
                assert!(library == tuned, "{format}: event {number} in other bytes");
            }
            held[format.index()] += usize::from(library.is_some());
        }
        // Signatures cost a millisecond each in a build without optimisation; every id, and a tenth
        // of them.
        let level = if number % 10 == 0 { VerifyLevel::Full } else { VerifyLevel::Id };
        assert_eq!(event.verify(level), Ok(()), "event {number}");
    }
    assert!(held.iter().all(|held| *held > 0), "a format holds none of the events: {held:?}");
}
