//! The analysis counts right, and its memory has a bound.

use corpus::{Corpus, analysis::Analyzer};

#[test]
fn a_sample_of_a_large_corpus_is_within_its_bound_and_like_the_whole() {
    let corpus = Corpus::bundled();
    let events: Vec<_> = corpus.events.iter().filter(|event| event.kind != 3).collect();
    let analyze = |limit: usize| {
        let mut analyzer = Analyzer::with_limit(limit);
        events.iter().for_each(|event| analyzer.add(event));
        analyzer.finish()
    };
    let (whole, part) = (analyze(usize::MAX), analyze(600_000));
    assert_eq!((whole.events, whole.events_sampled), (events.len() as u64, events.len() as u64));
    assert!((300..1_200).contains(&part.events_sampled), "{}", part.events_sampled);
    // Counts do not depend on the sample.
    assert_eq!(part.events, whole.events);
    assert_eq!((&part.size_classes, &part.tag_classes), (&whole.size_classes, &whole.tag_classes));
    for ((kind, a), (other, b)) in whole.kinds.iter().zip(&part.kinds) {
        assert_eq!((kind, a.events, a.byte_share), (other, b.events, b.byte_share));
    }
    // Estimates are near.
    let (a, b) = (&whole.all, &part.all);
    let median_ratio = b.json_bytes.p50 as f64 / a.json_bytes.p50 as f64;
    assert!((0.9..1.1).contains(&median_ratio), "{median_ratio}");
    assert!((a.ratios.zstd3_per_event - b.ratios.zstd3_per_event).abs() < 0.03);
}

#[test]
fn shares_and_quantiles_are_those_of_the_events() {
    let corpus = Corpus::bundled();
    let mut analyzer = Analyzer::default();
    let mut json_bytes = 0;
    for event in &corpus.events {
        analyzer.add(event);
        json_bytes += crate::json(event).len() as u64;
    }
    let analysis = analyzer.finish();
    let lists = analysis.kind(3).expect("the sample has follow lists");
    let mut tags: Vec<_> =
        corpus.events.iter().filter(|event| event.kind == 3).map(|event| event.tags.len()).collect();
    tags.sort_unstable();
    assert_eq!((lists.events, lists.tags.max), (tags.len() as u64, tags[tags.len() - 1]));
    assert_eq!(lists.tags.p50, tags[tags.len() / 2]);
    assert_eq!(lists.tag_names[0].name, "p");
    assert!(lists.hex64_value_share > 0.8 && lists.hex_byte_share > 0.8);
    assert_eq!(analysis.size_classes.iter().map(|class| class.json_bytes).sum::<u64>(), json_bytes);
    assert!((analysis.all.json_bytes_mean - json_bytes as f64 / 5_000.0).abs() < 1e-6);
    assert!((analysis.kinds.iter().map(|(_, shape)| shape.event_share).sum::<f64>() - 1.0).abs() < 1e-9);
    let ratios = &analysis.kind(1059).expect("the sample has gift wraps").ratios;
    // Base64 carries 6 bits a byte and hex 4: no compressor gets below.
    assert!((0.70..0.80).contains(&ratios.zstd3_per_event), "{ratios:?}");
    assert!(ratios.deflate6_no_takeover < ratios.gzip6_per_event);
}

#[test]
fn nothing_is_described_as_nothing() {
    let analysis = Analyzer::default().finish();
    assert_eq!((analysis.events, analysis.kinds.len(), analysis.all.json_bytes.max), (0, 0, 0));
}
