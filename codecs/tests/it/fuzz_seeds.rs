//! The fuzzers' seeds, and whatever they once found, through the fuzzers' own checks on stable
//! Rust.
//!
//! The seeds are made from the vectors and the samples of the other tests: `UPDATE_EXPECT=1 cargo test -p
//! codecs --test it fuzz_seeds` writes them. A finding is a file that a person adds with a name of its
//! own; refreshing leaves it alone.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use codecs::{Event, Format, Implementation, hex};

use crate::{
    checks,
    common::{batch, client_messages, committed, expand, relay_messages, sample_event, subjects, vectors},
};

/// Larger inputs slow the fuzzers down and teach them nothing.
const MAX_SEED_BYTES: usize = 700;

/// Vectors whose bytes differ in structure; the rest differ in a number.
const EVENTS: &[&str] = &[
    "one_empty_tag",
    "empty_tags_between",
    "unicode_mix",
    "json_specials",
    "tag_mixed_hex64",
    "tag_short_hex",
    "content_lower_hex64",
    "tag_text_len_128",
    "tag_text_len_256",
    "tag_hex_bytes_127",
    "values_in_tag_24",
    "kind_65535",
    "created_at_neg1",
];

/// Which of the sample messages differ in structure.
const CLIENT_SAMPLES: [usize; 9] = [0, 1, 2, 5, 7, 8, 10, 13, 14];
const RELAY_SAMPLES: [usize; 11] = [0, 2, 3, 4, 5, 6, 10, 11, 20, 21, 22];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds")
}

/// Path below the folder, and bytes.
fn made() -> BTreeMap<String, Vec<u8>> {
    let mut seeds = BTreeMap::new();
    let malformed = committed("malformed.json");
    for subject in subjects() {
        let format = subject.format.name();
        let mut add = |kind: &str, name: &str, bytes: Vec<u8>| {
            if bytes.len() <= MAX_SEED_BYTES {
                seeds.insert(format!("{format}/{kind}/{name}"), bytes);
            }
        };
        add("events", "sample", subject.event(&sample_event()).unwrap());
        for vector in vectors().iter().filter(|vector| EVENTS.contains(&vector.name.as_str())) {
            if let Ok(bytes) = subject.event(&vector.event) {
                add("events", &vector.name, bytes);
            }
        }
        for case in malformed[format].as_array().into_iter().flatten().step_by(3) {
            let bytes = hex::decode(expand(&case["hex"]).as_bytes()).unwrap();
            add("events", &format!("malformed-{}", plain(case["case"].as_str().unwrap())), bytes);
        }
        if let Some(codec) = subject.format.batch(Implementation::Library) {
            for count in [0, 1, 2] {
                let mut bytes = Vec::new();
                codec.encode(&small_batch(count), &mut bytes).unwrap();
                add("batches", &format!("{count}-events"), bytes);
            }
        }
        let client = client_messages();
        for at in CLIENT_SAMPLES {
            add("messages", &format!("client-{at}"), subject.client(&client[at]).unwrap());
        }
        let relay = relay_messages();
        for at in RELAY_SAMPLES {
            add("messages", &format!("relay-{at}"), subject.relay(&relay[at]).unwrap());
        }
    }
    seeds
}

/// Events of which two are no larger than a seed may be.
fn small_batch(count: u8) -> Vec<Event<'static>> {
    batch(count).into_iter().map(|event| Event { tags: vec![vec!["t".into()]], ..event }).collect()
}

fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// Every file below the folder with its path there; brought up to date first when UPDATE_EXPECT is set.
static STORED: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(|| {
    if env::var_os("UPDATE_EXPECT").is_some() {
        let known = |name: &OsStr| name.to_str().is_some_and(|name| name.parse::<Format>().is_ok());
        for entry in fs::read_dir(folder()).unwrap().map(Result::unwrap) {
            if !known(&entry.file_name()) {
                fs::remove_dir_all(entry.path()).unwrap(); // of a format that is gone
            }
        }
        for (name, bytes) in made() {
            let path = folder().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }
    let mut files = BTreeMap::new();
    let mut folders = vec![folder()];
    while let Some(path) = folders.pop() {
        for entry in fs::read_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder()).unwrap().to_str().unwrap().to_owned();
                files.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    files
});

#[test]
fn seeds_are_current() {
    for (name, bytes) in made() {
        let help = "UPDATE_EXPECT=1 cargo test -p codecs --test it fuzz_seeds writes it anew";
        assert!(STORED.get(&name) == Some(&bytes), "fuzz/seeds/{name} is out of date; {help}");
    }
    assert!(STORED.values().map(Vec::len).sum::<usize>() < 1 << 20, "the seeds stay small");
}

#[test]
fn every_stored_input_passes_the_fuzzers_checks() {
    for format in Format::all() {
        let of = |kind: &str| {
            let prefix = format!("{format}/{kind}/");
            let inputs = STORED.iter().filter(|(name, _)| name.starts_with(&prefix));
            let inputs: Vec<_> = inputs.map(|(_, bytes)| bytes.as_slice()).collect();
            assert!(!inputs.is_empty(), "fuzz/seeds/{prefix} is empty");
            inputs
        };
        let (events, messages) = (of("events"), of("messages"));
        if format.batch(Implementation::Library).is_some() {
            of("batches").iter().for_each(|bytes| checks::batches(format, bytes));
        }
        events.iter().for_each(|bytes| checks::events(format, bytes));
        messages.iter().for_each(|bytes| checks::messages(format, bytes));
        events.iter().chain(&messages).for_each(|bytes| checks::values(format, bytes));
    }
}

/// An input is a file of a format in the registry and a target that exists.
#[test]
fn every_stored_input_is_used() {
    for name in STORED.keys() {
        let mut parts = name.split('/');
        let (format, kind) = (parts.next().unwrap(), parts.next().unwrap());
        assert!(
            format.parse::<Format>().is_ok() && matches!(kind, "events" | "batches" | "messages"),
            "{name}"
        );
    }
}
