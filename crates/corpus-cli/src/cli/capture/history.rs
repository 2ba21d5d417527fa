//! How far back a filter was requested, and where its next page begins.

use codecs::Filter;

use super::{filter_text, provenance::Settled};

/// Gift wraps are dated back by two days at most (NIP-59), and six hours allow for clocks. Every
/// capture requests events that are at most this much older than the newest.
pub(super) const OVERLAP_SECONDS: i64 = (2 * 24 + 6) * 3_600;

/// The past of one filter, requested down to `until`.
#[derive(Debug)]
pub(super) struct History {
    filter: Filter,
    text: String,
    /// None before the first page, unless the filter has it: no clock decides what is newest.
    until: Option<i64>,
    /// The newest of all events received.
    pub(super) newest: Option<i64>,
    /// The rest of the filter's own limit.
    left: Option<u64>,
    /// The most events in one answer so far.
    largest_page: u64,
    /// The newest second of which events may be missing. What is older is asked for again.
    gap: Option<i64>,
    pub(super) done: bool,
}

/// The outcome of a page.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) matching: u64,
    /// Events rejected here, with a time that was requested.
    pub(super) rejected: u64,
    /// Refused here: without a time that can be read, or not requested.
    pub(super) strange: u64,
    pub(super) new: u64,
    /// The oldest of all events with a time.
    pub(super) oldest: Option<i64>,
    pub(super) newest: Option<i64>,
    /// Whether an event came behind an older one.
    pub(super) is_mixed: bool,
    /// The relay refused it.
    pub(super) refused: bool,
    pub(super) ended: bool,
}

impl Page {
    /// Events of the page, kept or refused.
    pub(super) fn events(&self) -> u64 {
        self.matching + self.rejected + self.strange
    }

    /// Counts an invalid event, with its time or without one. A time that was not requested is
    /// ignored, because it could end the paging early.
    pub(super) fn reject(&mut self, time: Option<Option<i64>>, asked: &Filter) {
        match time {
            None => {}
            Some(None) => self.strange += 1,
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
        self.is_mixed |= self.oldest.is_some_and(|oldest| oldest < created_at);
        self.oldest = Some(self.oldest.map_or(created_at, |oldest| oldest.min(created_at)));
        self.newest = self.newest.max(Some(created_at));
    }
}

impl History {
    pub(super) fn new(filter: Filter) -> History {
        let (text, until, left) = (filter_text(&filter), filter.until, filter.limit);
        let (newest, largest_page, gap, done) = (None, 0, None, false);
        let mut history = History { filter, text, until, newest, left, largest_page, gap, done };
        history.done = history.is_over();
        history
    }

    pub(super) fn request(&self, page: u64) -> Filter {
        let limit = self.left.map_or(page, |left| left.min(page));
        Filter { until: self.until, limit: Some(limit), ..self.filter.clone() }
    }

    fn end(&self) -> i64 {
        self.filter.since.unwrap_or(0)
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until < self.end()) || self.left == Some(0)
    }

    /// Continues after the ranges that earlier sessions settled. Returns the newest second that is
    /// left out thereby.
    pub(super) fn skip(&mut self, settled: &[Settled]) -> Option<i64> {
        let mut left_out = None;
        while let Some(until) = self.until.filter(|_| !self.done)
            && let Some(known) = settled
                .iter()
                .find(|known| known.filter == self.text && known.to < until && until <= known.from)
        {
            left_out = left_out.max(Some(until));
            self.until = Some(known.to);
            self.done = self.is_over() || (known.to <= 0 && self.end() == 0);
        }
        left_out
    }

    /// Records a page. Returns a second of which the relay may have more events than it sends at
    /// once. A page whose events have no time does not give the next one's beginning: nothing older
    /// is settled. Neither is the time of one without an end that did not begin with the newest: any
    /// of its events may be missing.
    pub(super) fn advance(&mut self, page: &Page) -> Option<i64> {
        self.left = self.left.map(|left| left.saturating_sub(page.matching));
        self.newest = self.newest.max(page.newest);
        let Some(oldest) = page.oldest else {
            self.done = true;
            if !page.refused && page.strange == 0 {
                self.until = Some(self.end());
            }
            return None;
        };
        // `until` includes its second, so that events which did not fit into this page come in the
        // next one.
        let stuck = self.until == Some(oldest);
        let crowded = stuck && page.events() > 1 && page.events() >= self.largest_page;
        self.largest_page = self.largest_page.max(page.events());
        let until = if stuck { oldest.saturating_sub(1) } else { oldest };
        let before = self.until.replace(until).unwrap_or(i64::MAX);
        let is_torn = page.is_mixed && !page.ended;
        self.gap = self.gap.or(is_torn.then_some(before)).or(crowded.then_some(oldest));
        self.done = page.refused || self.is_over();
        crowded.then_some(oldest)
    }

    /// The span that needs no further request. Left out: the time too close to the newest event, or
    /// to an earlier `now`, and what is older than a gap.
    pub(super) fn settled(self, now: i64) -> Option<Settled> {
        let from = self.newest?.min(now).saturating_sub(OVERLAP_SECONDS);
        let to = self.gap.unwrap_or(self.until?.max(self.end()));
        (to < from).then_some(Settled { filter: self.text, from, to })
    }
}
