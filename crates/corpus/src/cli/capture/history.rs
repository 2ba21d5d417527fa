//! How far back a filter was requested, and where its next page begins.

use codecs::Filter;

use super::{filter_text, provenance::Covered};

/// Seconds with more events than a page that are told apart; nothing older is covered.
const MAX_GAPS: usize = 1_000;

/// The past of one filter, requested down to `cursor`.
#[derive(Debug)]
pub(super) struct History {
    filter: Filter,
    text: String,
    cursor: i64,
    /// Of the filter's own limit.
    left: Option<u64>,
    /// The most events in one answer so far.
    largest_page: u64,
    /// Down to the last second that has more events than a page.
    covered: Vec<Covered>,
    /// The newest second that is in none of them.
    uncovered: i64,
    pub(super) done: bool,
}

/// The outcome of a page.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) matching: u64,
    /// Refused here, with a time that was asked for.
    pub(super) rejected: u64,
    /// Refused here, without a time that can be read.
    pub(super) undated: u64,
    pub(super) new: u64,
    /// Of all that have a time.
    pub(super) oldest: Option<i64>,
    /// The relay refused it.
    pub(super) refused: bool,
    pub(super) ended: bool,
}

impl Page {
    /// Events of the page, kept or refused.
    pub(super) fn events(&self) -> u64 {
        self.matching + self.rejected + self.undated
    }

    /// Counts an event that is none by NIP-01, with its time or without one. A time that was not
    /// asked for counts as nothing: it could end the paging early.
    pub(super) fn reject(&mut self, time: Option<Option<i64>>, asked: &Filter) {
        match time {
            None => {}
            Some(None) => self.undated += 1,
            Some(Some(time)) if asked.since.is_some_and(|since| time < since) => {}
            Some(Some(time)) if asked.until.is_some_and(|until| time > until) => {}
            Some(Some(time)) => {
                self.reaches(time);
                self.rejected += 1;
            }
        }
    }

    /// Counts an event's time for paging.
    pub(super) fn reaches(&mut self, created_at: i64) {
        self.oldest = Some(self.oldest.map_or(created_at, |oldest| oldest.min(created_at)));
    }
}

impl History {
    pub(super) fn new(filter: Filter, started: i64) -> History {
        let cursor = filter.until.map_or(started, |until| until.min(started));
        let text = filter_text(&filter);
        let left = filter.limit;
        let (largest_page, covered) = (0, Vec::new());
        History { text, cursor, left, largest_page, covered, uncovered: cursor, done: false, filter }
    }

    pub(super) fn request(&self, page: u64) -> Filter {
        let limit = self.left.map_or(page, |left| left.min(page));
        Filter { until: Some(self.cursor), limit: Some(limit), ..self.filter.clone() }
    }

    fn end(&self) -> i64 {
        self.filter.since.unwrap_or(0)
    }

    /// Continues behind the ranges that earlier sessions covered.
    pub(super) fn skip(&mut self, covered: &[Covered]) {
        while let Some(known) = covered
            .iter()
            .find(|known| known.filter == self.text && known.to < self.cursor && self.cursor <= known.from)
        {
            self.cursor = known.to;
        }
        // A filter with a limit asks for so many, and has them.
        self.done = self.cursor < self.end() || self.left == Some(0) || (self.cursor <= 0 && self.end() == 0);
    }

    /// Notes what a page brought. Returns the second of which the relay may have more than it sends
    /// at once. A page whose events have no time does not say where the next one begins: nothing
    /// older is covered.
    pub(super) fn advance(&mut self, page: &Page) -> Option<i64> {
        self.left = self.left.map(|left| left.saturating_sub(page.matching));
        let Some(oldest) = page.oldest else {
            self.done = true;
            if !page.refused && page.undated == 0 {
                self.cursor = self.end();
            }
            return None;
        };
        // `until` includes its second, so that events which did not fit into this page come in the
        // next one.
        let stuck = oldest == self.cursor;
        let crowded = stuck && page.events() > 1 && page.events() >= self.largest_page;
        self.largest_page = self.largest_page.max(page.events());
        self.cursor = if stuck { oldest - 1 } else { oldest };
        if crowded && self.covered.len() < MAX_GAPS {
            self.covered.push(self.range(oldest));
            self.uncovered = self.cursor;
        }
        self.done = page.refused || self.cursor < self.end() || self.left == Some(0);
        crowded.then_some(oldest)
    }

    /// The spans that need not be asked for again: all but the seconds that have more events than a
    /// page, for which a larger page may be asked.
    pub(super) fn covered(mut self) -> Vec<Covered> {
        if self.covered.len() < MAX_GAPS {
            self.covered.push(self.range(self.cursor.max(self.end())));
        }
        self.covered
    }

    fn range(&self, to: i64) -> Covered {
        Covered { filter: self.text.clone(), from: self.uncovered, to }
    }
}
