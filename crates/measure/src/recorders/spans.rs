//! Spans of time: their union, and how a record stores them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::AddUp;

/// Spans of a record at most: some 50 KB in a file.
const MOST_SPANS: usize = 1 << 11;

/// Disjoint spans in ascending order, in nanoseconds from the plan's time zero: each its two ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Vec<(u64, u64)>")]
pub struct Spans(Vec<(u64, u64)>);

impl From<Vec<(u64, u64)>> for Spans {
    /// What an agent says may be in any order, and many.
    fn from(spans: Vec<(u64, u64)>) -> Spans {
        Spans::to_store(spans)
    }
}

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
}

impl AddUp for Spans {
    fn add_up(&mut self, other: &Self) {
        *self = Spans::to_store(self.iter().chain(other.iter()));
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
    fn spans_come_back_and_hostile_ones_are_put_in_order() {
        for (text, spans) in
            [("[]", vec![]), ("[[3,5],[7,18446744073709551615]]", vec![(3, 5), (7, u64::MAX)])]
        {
            let read: Spans = serde_json::from_str(text).unwrap();
            assert_eq!((serde_json::to_string(&read).unwrap().as_str(), &read.0), (text, &spans));
        }
        let hostile: Spans = serde_json::from_str("[[7,9],[5,3],[1,4],[2,6]]").unwrap();
        assert_eq!(hostile.0, [(1, 6), (7, 9)]);
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
