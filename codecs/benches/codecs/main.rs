//! One operation at a time, watched closely: criterion's benches of every format.
//!
//! `cargo bench -p codecs --bench codecs -- --quick` runs all 1,318 benchmarks in some twenty minutes, without `--quick` it takes
//! longer than an hour; `-- --test` runs each once, in twenty seconds; a part of a name runs a part: `-- capnp`, `-- 'by-kind/encode/3/'`, `-- reference`. `--list` has the names. Events are the
//! bundled ones, or those of the file that the variable `CODECS_CORPUS` names.
//!
//! Criterion measures one benchmark to its end before the next, so a slow phase of the machine meets some rows and not
//! others: these figures say how an operation behaves and what a change did to it (`--save-baseline`, `--baseline`).
//! Comparing formats is the work of `codec-report`, which interleaves them.

#![allow(clippy::print_stdout, reason = "criterion prints its results, and they need to name their events")]

mod operations;
#[path = "../shared/mod.rs"]
mod shared;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use codecs::Format;
use corpus::Corpus;
use criterion::Criterion;

use operations::Frames;
use shared::{KINDS, Sets};

fn main() -> ExitCode {
    let file = std::env::var_os("CODECS_CORPUS").map(PathBuf::from);
    match shared::read_corpus(file.as_deref()) {
        Ok(corpus) => run(&corpus),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(corpus: &Corpus) -> ExitCode {
    let all: Vec<Format> = Format::all().collect();
    let sets = match Sets::new(&corpus.events, &all) {
        Ok(sets) => sets,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    println!("{} events of {} ({})", sets.sets[0].events.len(), corpus.name, corpus.fingerprint);
    // Passes over many events are long and alike, so few samples do; the variance between passes is in the report.
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .without_plots()
        .configure_from_args();
    operations::reference(&mut criterion, &sets.sets[0].events);
    for format in all {
        let set = sets.of(format);
        let whole = Frames::of(format, set.events.iter().copied());
        operations::whole(&mut criterion, &whole);
        operations::batches(&mut criterion, &whole);
        for kind in KINDS {
            let events = set.events.iter().copied().filter(|event| event.kind == kind);
            operations::class(&mut criterion, "by-kind", &kind.to_string(), &Frames::of(format, events));
        }
        for (class, bytes) in SIZE_CLASSES {
            let of_class =
                |event: &&_| bytes.contains(&shared::encode(Format::JSON.spec().library, event).len());
            let events = set.events.iter().copied().filter(of_class);
            operations::class(&mut criterion, "by-size", class, &Frames::of(format, events));
        }
        for (class, tags) in TAG_CLASSES {
            let events = set.events.iter().copied().filter(|event| tags.contains(&event.tags.len()));
            operations::class(&mut criterion, "by-tags", class, &Frames::of(format, events));
        }
    }
    criterion.final_summary();
    ExitCode::SUCCESS
}

type Class = (&'static str, std::ops::Range<usize>);

/// Bytes as JSON.
const SIZE_CLASSES: [Class; 5] = [
    ("tiny-below-500", 0..500),
    ("small-below-2000", 500..2_000),
    ("medium-below-10000", 2_000..10_000),
    ("large-below-100000", 10_000..100_000),
    ("huge", 100_000..usize::MAX),
];

const TAG_CLASSES: [Class; 5] =
    [("0", 0..1), ("1-5", 1..6), ("6-20", 6..21), ("21-100", 21..101), ("more", 101..usize::MAX)];
