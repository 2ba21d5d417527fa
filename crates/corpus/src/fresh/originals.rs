//! The templates, the events embedded in them, and the references between them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
};

use codecs::Event;

use super::references;

/// Deepest nesting of reposts that is parsed; deeper ones stay text.
const MAX_DEPTH: usize = 3;

/// Every event that fresh ones are made of, by number: the templates, then the events inside them.
#[derive(Debug)]
pub(super) struct Originals<'t> {
    originals: Vec<Original<'t>>,
    /// Originals by id.
    numbers: HashMap<[u8; 32], usize>,
    authors: HashSet<[u8; 32]>,
    /// For each template: its original, and the number of earlier occurrences.
    uses: Vec<(usize, usize)>,
}

/// An event by its id.
#[derive(Debug)]
struct Original<'t> {
    /// The events as given; the caller may have changed some, so duplicates may differ.
    given: Vec<Cow<'t, Event<'t>>>,
    /// The originals that it refers to, by number.
    refers_to: Vec<usize>,
    /// Greater than the wave of every original that it refers to.
    wave: usize,
}

impl<'t> Originals<'t> {
    pub(super) fn from_templates(templates: &[&'t Event<'_>]) -> Originals<'t> {
        let mut all = Originals {
            originals: Vec::new(),
            numbers: HashMap::new(),
            authors: HashSet::new(),
            uses: Vec::new(),
        };
        for &template in templates {
            let number = all.add(Cow::Borrowed(template));
            all.uses.push((number, all.originals[number].given.len() - 1));
        }
        for template in templates {
            all.add_embedded(template, 1);
        }
        all.find_references();
        all.order();
        all
    }

    fn add(&mut self, event: Cow<'t, Event<'t>>) -> usize {
        self.authors.insert(event.pubkey);
        let next = self.originals.len();
        let number = *self.numbers.entry(event.id).or_insert(next);
        if number == next {
            self.originals.push(Original { given: Vec::new(), refers_to: Vec::new(), wave: 0 });
        }
        self.originals[number].given.push(event);
        number
    }

    fn add_embedded(&mut self, event: &Event<'_>, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        let values = event.tags.iter().flat_map(|tag| tag.iter().skip(1));
        for inner in values.chain([&event.content]).filter_map(|text| references::embedded(text)) {
            if !self.numbers.contains_key(&inner.id) {
                self.add_embedded(&inner, depth + 1);
                self.add(Cow::Owned(inner));
            }
        }
    }

    /// Notes for each original the other originals whose ids stand in it.
    fn find_references(&mut self) {
        for original in &mut self.originals {
            let hashes = original.given.iter().flat_map(|event| references::hashes(event));
            original.refers_to = hashes.filter_map(|hash| self.numbers.get(&hash).copied()).collect();
            original.refers_to.sort_unstable();
            original.refers_to.dedup();
        }
    }

    /// Finds the wave of every event. An id is a hash of the event, so two events cannot refer to each
    /// other. Files are not verified, though: events in a circle of made-up ids are not referred to.
    fn order(&mut self) {
        let mut referred_by: Vec<Vec<usize>> = vec![Vec::new(); self.originals.len()];
        for (number, original) in self.originals.iter().enumerate() {
            original.refers_to.iter().for_each(|&target| referred_by[target].push(number));
        }
        let mut waiting_for: Vec<_> =
            self.originals.iter().map(|original| original.refers_to.len()).collect();
        let mut ready: Vec<_> =
            (0..self.originals.len()).filter(|&number| waiting_for[number] == 0).collect();
        while let Some(number) = ready.pop() {
            let wave = self.originals[number].wave + 1;
            for &other in &referred_by[number] {
                self.originals[other].wave = self.originals[other].wave.max(wave);
                waiting_for[other] -= 1;
                if waiting_for[other] == 0 {
                    ready.push(other);
                }
            }
        }
        let in_circles = |number: usize| waiting_for[number] > 0;
        self.numbers.retain(|_, number| !in_circles(*number));
        for original in &mut self.originals {
            original.refers_to.retain(|&target| !in_circles(target));
        }
    }

    /// The original and the round of the event at this place. A template given twice counts as two
    /// rounds; otherwise both would become the same event.
    pub(super) fn use_of(&self, place: usize) -> (usize, u64) {
        let (number, nth) = self.uses[place % self.uses.len()];
        let rounds_before = place / self.uses.len() * self.uses_of(number);
        (number, (rounds_before + nth + 1) as u64)
    }

    fn uses_of(&self, number: usize) -> usize {
        self.originals[number].given.len()
    }

    /// The template of the original's event in this round.
    pub(super) fn template(&self, number: usize, round: u64) -> &Event<'t> {
        let given = &self.originals[number].given;
        let nth = (round - 1) % given.len() as u64;
        &given[usize::try_from(nth).expect("below a length")]
    }

    pub(super) fn number_of(&self, id: &[u8; 32]) -> Option<usize> {
        self.numbers.get(id).copied()
    }

    pub(super) fn is_author(&self, key: &[u8; 32]) -> bool {
        self.authors.contains(key)
    }

    /// The wanted originals and all that they name, directly or not, in an order in which they can
    /// be made.
    pub(super) fn waves(&self, wanted: impl Iterator<Item = usize>) -> Vec<Vec<usize>> {
        let mut todo: Vec<_> = wanted.collect();
        let mut found: HashSet<usize> = todo.iter().copied().collect();
        let mut waves: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        while let Some(number) = todo.pop() {
            let original = &self.originals[number];
            waves.entry(original.wave).or_default().push(number);
            todo.extend(original.refers_to.iter().copied().filter(|&target| found.insert(target)));
        }
        waves.into_values().collect()
    }
}
