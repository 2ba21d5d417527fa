//! Spans of time: their union, and how a record stores them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::AddUp;

/// Spans of a record at most: some 50 KB in a file.
const MOST_SPANS: usize = 1 << 11;

/// Disjoint spans in ascending order, in nanoseconds from the plan's time zero. In a file they are
/// one text, each with `-` between its ends and a comma between spans.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "StoredSpans", into = "StoredSpans")]
#[schemars(with = "String")]
pub struct Spans(Vec<(u64, u64)>);

impl Spans {
    /// Keeps the union of spans. Where that has more than 2,048, those with the shortest pauses
    /// between them become one, so that the sum becomes longer by these pauses.
    pub fn to_store(spans: impl IntoIterator<Item = (u64, u64)>) -> Spans {
        let spans = union_of_spans(spans);
        let mut pauses: Vec<u64> = spans.array_windows().map(|[one, next]| next.0 - one.1).collect();
        let Some(surplus) = spans.len().checked_sub(MOST_SPANS + 1) else { return Spans(spans) };
        let (_, longest, _) = pauses.select_nth_unstable(surplus);
        let longest = *longest;
        let mut kept: Vec<(u64, u64)> = Vec::with_capacity(MOST_SPANS);
        for (from, to) in spans {
            match kept.last_mut().filter(|last| from - last.1 <= longest) {
                Some(last) => last.1 = to,
                None => kept.push((from, to)),
            }
        }
        Spans(kept)
    }

    /// Each span, from and to.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    /// The end of the last span; 0 without spans.
    pub(crate) fn end_ns(&self) -> u64 {
        self.0.last().map_or(0, |(_, to)| *to)
    }
}

impl AddUp for Spans {
    fn add_up(&mut self, other: &Self) {
        *self = Spans::to_store(self.iter().chain(other.iter()));
    }
}

/// How [`Spans`] stand in a file.
#[derive(Serialize, Deserialize)]
struct StoredSpans(String);

impl From<Spans> for StoredSpans {
    fn from(spans: Spans) -> StoredSpans {
        let texts: Vec<String> = spans.iter().map(|(from, to)| format!("{from}-{to}")).collect();
        StoredSpans(texts.join(","))
    }
}

/// Why stored spans cannot be read.
#[derive(Debug, thiserror::Error)]
enum SpansError {
    #[error("more than {MOST_SPANS} spans")]
    Many,
    #[error("not a span, or one that begins before the one before it ends: {0:?}")]
    Span(String),
}

impl TryFrom<StoredSpans> for Spans {
    type Error = SpansError;

    fn try_from(StoredSpans(text): StoredSpans) -> Result<Spans, SpansError> {
        let mut spans = Spans::default();
        for one in text.split(',').filter(|_| !text.is_empty()) {
            if spans.0.len() == MOST_SPANS {
                return Err(SpansError::Many);
            }
            let ends =
                one.split_once('-').and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
            let follows =
                |(from, to): &(u64, u64)| from < to && (spans.0.is_empty() || *from > spans.end_ns());
            let span = ends.filter(follows);
            spans.0.push(span.ok_or_else(|| SpansError::Span(one.chars().take(40).collect()))?);
        }
        Ok(spans)
    }
}

/// The union of spans: disjoint, in ascending order.
pub fn union_of_spans(spans: impl IntoIterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut spans: Vec<_> = spans.into_iter().filter(|(from, to)| from < to).collect();
    spans.sort_unstable();
    let mut union: Vec<(u64, u64)> = Vec::new();
    for (from, to) in spans {
        match union.last_mut().filter(|last| from <= last.1) {
            Some(last) => last.1 = last.1.max(to),
            None => union.push((from, to)),
        }
    }
    union
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_spans_count_once() {
        assert_eq!(union_of_spans([]), []);
        assert_eq!(
            union_of_spans([(10, 20), (0, 5), (12, 15), (18, 30), (7, 7), (9, 8)]),
            [(0, 5), (10, 30)]
        );
        assert_eq!(union_of_spans([(0, 5), (5, 9)]), [(0, 9)], "no pause between them");
    }

    #[test]
    fn spans_come_back_and_hostile_ones_are_refused() {
        let stored = |spans: &Spans| serde_json::to_string(spans).unwrap();
        for spans in [vec![], vec![(0, 5)], vec![(3, 5), (7, u64::MAX)]] {
            let spans = Spans::to_store(spans);
            assert_eq!(serde_json::from_str::<Spans>(&stored(&spans)).unwrap(), spans);
        }
        assert_eq!(stored(&Spans::to_store([(7, 9), (3, 5)])), "\"3-5,7-9\"");
        let many: Vec<String> = (0..=2_048).map(|n| format!("{}-{}", 2 * n, 2 * n + 1)).collect();
        let many = many.join(",");
        for (text, says) in [
            ("5", "not a span"),
            ("5-", "not a span"),
            ("-5", "not a span"),
            ("5-5", "not a span"),
            ("9-5", "not a span"),
            ("1-2-3", "not a span"),
            ("1-2,", "not a span"),
            ("1-5,5-9", "begins before the one before it ends: \"5-9\""),
            ("5-9,1-2", "not a span"),
            (&many, "more than 2048 spans"),
        ] {
            let error = serde_json::from_str::<Spans>(&format!("\"{text}\"")).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn too_many_spans_become_fewer_over_the_shortest_pauses() {
        // A pause of 1 after every tenth span, else of 5.
        let mut at = 0;
        let spans = (0..2_100).map(|n| {
            let from = at + if n % 10 == 0 { 1 } else { 5 };
            at = from + 10;
            (from, at)
        });
        let all: Vec<(u64, u64)> = spans.collect();
        let few = Spans::to_store(all.iter().copied());
        assert_eq!(
            few.iter().count(),
            2_100 - 209,
            "every pause of 1 is closed, the first span follows none"
        );
        let sum = |spans: &[(u64, u64)]| spans.iter().map(|(from, to)| to - from).sum::<u64>();
        assert_eq!(sum(&few.iter().collect::<Vec<_>>()), sum(&all) + 209);
        let fits = Spans::to_store(all[..2_048].iter().copied());
        assert_eq!(fits.iter().collect::<Vec<_>>(), all[..2_048]);
    }
}
