//! Few events in a file: a debug build is busy with the bundled ones before it plays.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
    sync::OnceLock,
};

use corpus::Corpus;

/// The first 500 of the bundled events, written once by each process.
pub(crate) fn few_events() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("few.jsonl");
        // Tests of several programs may run at once, and each finds a whole file.
        let own = file.with_file_name(format!("few-{}.jsonl", process::id()));
        corpus::write(&own, &Corpus::bundled().events[..500]).unwrap();
        fs::rename(&own, &file).unwrap();
        file
    })
}
