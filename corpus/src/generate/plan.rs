//! Who publishes what and when, before any event exists.

use super::{GenerateError, calibration::Calibration};
use crate::{
    keys::AUTHOR_KEYS,
    random::{Random, Weighted},
};

/// 2025-09-20, when the audited archive begins; it spans eight days.
const FIRST_CREATED_AT: i64 = 1_758_326_400;
const SPAN_SECONDS: usize = 8 * 86_400;

/// An event to be.
pub(super) struct Planned {
    pub(super) kind: u16,
    pub(super) created_at: i64,
    /// Which author; `None` for a gift wrap, which has a key of its own.
    pub(super) author: Option<usize>,
    /// Place in the distribution of content lengths of its kind, 0..1.
    pub(super) content_place: f64,
    /// Place in the distribution of tag counts of its kind, 0..1.
    pub(super) tags_place: f64,
}

/// Plans `count` events in order of time.
pub(super) fn plan(count: usize, seed: u64) -> Result<Vec<Planned>, GenerateError> {
    let calibration = Calibration::get();
    let counts = calibration.apportion(count);
    if counts.iter().any(|(&kind, &n)| has_one_per_author(kind) && n > AUTHOR_KEYS) {
        return Err(GenerateError::TooMany { asked: count, max: most_events(calibration) });
    }
    let mut random = Random::new("relay-sim plan", seed);
    let mut authors = Authors::new(count);
    let mut plan = Vec::with_capacity(count);
    for (kind, n) in counts {
        let content_places = strata(n, &mut random);
        let tags_places = strata(n, &mut random);
        let mut once = has_one_per_author(kind).then(|| authors.each_once(&mut random));
        for (content_place, tags_place) in content_places.into_iter().zip(tags_places) {
            let author = match &mut once {
                _ if kind == 1059 => None,
                Some(once) => Some(once.pop().expect("checked above")),
                None => Some(authors.draw(&mut random)),
            };
            plan.push(Planned { kind, created_at: 0, author, content_place, tags_place });
        }
    }
    random.shuffle(&mut plan);
    for (i, planned) in plan.iter_mut().enumerate() {
        let seconds = i64::try_from(i * SPAN_SECONDS / count).expect("less than eight days");
        planned.created_at = FIRST_CREATED_AT + seconds;
    }
    Ok(plan)
}

/// NIP-01: a relay keeps only the newest event of such a kind and author.
fn has_one_per_author(kind: u16) -> bool {
    matches!(kind, 0 | 3 | 10_000..=19_999)
}

/// The largest plan: beyond it the commonest such kind needs more authors than there are.
fn most_events(calibration: &Calibration) -> usize {
    let counts = &calibration.kind_counts;
    let total: usize = counts.values().sum();
    let commonest = counts.iter().filter(|&(&kind, _)| has_one_per_author(kind)).map(|(_, &n)| n).max();
    AUTHOR_KEYS * total / commonest.unwrap_or(1)
}

/// One random place in each of `n` equal parts of 0..1, shuffled: even a few events follow the distribution.
fn strata(n: usize, random: &mut Random) -> Vec<f64> {
    let mut places: Vec<_> = (0..n).map(|i| (i as f64 + random.unit()) / n as f64).collect();
    random.shuffle(&mut places);
    places
}

/// Few write much and many write once: ten authors write a sixth of real events, and 100 events have 56 authors.
struct Authors {
    pool: usize,
    by_activity: Weighted,
}

impl Authors {
    fn new(count: usize) -> Authors {
        let pool = count.clamp(100, AUTHOR_KEYS);
        let by_activity = Weighted::new((1..=pool).map(|rank| 1.0 / rank as f64));
        Authors { pool, by_activity }
    }

    fn draw(&self, random: &mut Random) -> usize {
        match random.chance(0.5) {
            true => self.by_activity.draw(random),
            false => random.below(self.pool),
        }
    }

    /// All authors in random order, to be taken from the end.
    fn each_once(&mut self, random: &mut Random) -> Vec<usize> {
        let mut authors: Vec<_> = (0..AUTHOR_KEYS).collect();
        random.shuffle(&mut authors);
        authors
    }
}
