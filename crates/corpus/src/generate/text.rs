//! Text that compresses like notes and articles do.
//!
//! Random words alone are too hard to compress, for people repeat phrases, names and links. The
//! shares below were fitted to real notes (gzip and zstd, per event and as a stream); none of the
//! words is from them.

use std::sync::LazyLock;

use recording::nip19;
use serde::Deserialize;

use crate::random::{Random, Weighted};

const WORDS: usize = 1_500;
const PHRASES: usize = 400;

/// Which share of notes is in another script.
const FOREIGN_NOTES: f64 = 0.04;

/// `nostr:npub1…` (NIP-21): a prefix, then 52 digits of data and six of a checksum.
const REFERENCE_BYTES: usize = 69;

/// Draws per 1,000 of each kind of fragment; all other draws are single words.
#[derive(Debug, Clone, Copy)]
struct Shares {
    /// An address with a random tail.
    addresses: usize,
    /// An emoji or a word not in Latin letters.
    exotic: usize,
    /// A span of 3 to 10 words from earlier in the text.
    repeats: usize,
    /// One of the fixed phrases.
    phrases: usize,
    /// A person or note that the text refers to, if there is room for one.
    references: usize,
    /// A word in quotation marks, which JSON escapes.
    quotes: usize,
    /// A line break before the next draw, which JSON escapes too; an empty line comes before 20 of
    /// 1,000 anyway.
    breaks: usize,
}

/// The script that people write in; addresses, emoji and phrases are mixed into every script.
#[derive(Debug, Clone, Copy)]
enum Script {
    Latin,
    /// One of [`Vocabulary::foreign`].
    Foreign(usize),
}

/// What text and tags are made of: `data/words.json`, described in `data/README.md`.
#[derive(Debug, Deserialize)]
pub(super) struct Pieces {
    syllables: Vec<String>,
    /// Equally frequent ones that are not in the list above.
    syllables_elsewhere: Vec<String>,
    /// Of other scripts, whose words have one to four.
    foreign_syllables: Vec<Vec<String>>,
    exotic: Vec<String>,
    pub(super) hosts: Vec<String>,
    pub(super) clients: Vec<String>,
}

pub(super) static PIECES: LazyLock<Pieces> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../../data/words.json"))
        .expect("a test generates from the words in the repository")
});

/// Words of each other script.
const FOREIGN_WORDS: usize = 400;

/// The words and phrases of generated events.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    words: Vec<String>,
    /// Words of other scripts.
    foreign: Vec<Vec<String>>,
    phrases: Vec<String>,
    by_foreign_rank: Weighted,
    by_word_rank: Weighted,
    by_phrase_rank: Weighted,
}

impl Vocabulary {
    pub(super) fn new() -> Vocabulary {
        Vocabulary::of(&PIECES.syllables, &Vocabulary::default(), 0)
    }

    /// Another one, which has none of its words.
    pub(super) fn elsewhere(&self) -> Vocabulary {
        Vocabulary::of(&PIECES.syllables_elsewhere, self, 1)
    }

    fn of(syllables: &[String], other: &Vocabulary, seed: u64) -> Vocabulary {
        let mut random = Random::new("relay-sim vocabulary", seed);
        let mut words: Vec<String> = Vec::with_capacity(WORDS);
        while words.len() < WORDS {
            // Frequent words are short, as in languages.
            let (first, last) = match words.len() {
                0..30 => (1, 1),
                30..300 => (1, 2),
                _ => (2, 4),
            };
            let word: String = (0..random.between(first, last)).map(|_| random.pick(syllables)).collect();
            if !words.contains(&word) && !other.words.contains(&word) {
                words.push(word);
            }
        }
        let by_word_rank = zipf(WORDS);
        let phrases = (0..PHRASES)
            .map(|_| {
                let length = random.between(3, 9);
                let words: Vec<_> = (0..length).map(|_| &*words[by_word_rank.draw(&mut random)]).collect();
                words.join(" ")
            })
            .collect();
        let is_taken = |word: &String| other.foreign.iter().any(|words| words.contains(word));
        let foreign = PIECES.foreign_syllables.iter().map(|syllables| {
            let word = || (0..random.between(1, 4)).map(|_| random.pick(syllables)).collect();
            std::iter::repeat_with(word).filter(|word| !is_taken(word)).take(FOREIGN_WORDS).collect()
        });
        let foreign = foreign.collect();
        Vocabulary {
            words,
            foreign,
            phrases,
            by_foreign_rank: zipf(FOREIGN_WORDS),
            by_word_rank,
            by_phrase_rank: zipf(PHRASES),
        }
    }

    /// A word in lower case.
    pub(super) fn word(&self, random: &mut Random) -> &str {
        &self.words[self.by_word_rank.draw(random)]
    }

    /// One of the rarer, longer words, for names.
    pub(super) fn name(&self, random: &mut Random) -> &str {
        &self.words[random.between(300, WORDS - 1)]
    }

    /// Several words joined by hyphens, of exactly `bytes` bytes.
    pub(super) fn slug(&self, random: &mut Random, bytes: usize) -> String {
        let mut slug = String::new();
        while slug.len() < bytes {
            slug.push_str(self.word(random));
            slug.push('-');
        }
        slug.truncate(bytes);
        slug
    }

    /// Text of exactly `bytes` bytes; `exotic` of 100 words are emoji or not in Latin letters.
    pub(super) fn text(&self, random: &mut Random, bytes: usize, exotic: usize) -> String {
        let exotic = 10 * exotic;
        let shares = Shares { addresses: 30, exotic, repeats: 100, phrases: 150, ..Shares::NONE };
        self.write(random, bytes, shares, Script::Latin)
    }

    /// A post: as [`Vocabulary::text`], with lines, quotations and references, some of it
    /// in other scripts.
    pub(super) fn note(&self, random: &mut Random, bytes: usize) -> String {
        let shares = Shares { addresses: 28, exotic: 30, repeats: 100, phrases: 150, ..Shares::POSTED };
        if random.chance(FOREIGN_NOTES) {
            let script = Script::Foreign(random.below(self.foreign.len()));
            self.write(random, bytes, Shares { phrases: 10, ..shares }, script)
        } else {
            self.write(random, bytes, shares, Script::Latin)
        }
    }

    /// As [`Vocabulary::text`]; long texts repeat less of themselves.
    pub(super) fn article(&self, random: &mut Random, bytes: usize) -> String {
        let shares = Shares { addresses: 40, exotic: 10, repeats: 30, phrases: 60, ..Shares::NONE };
        self.write(random, bytes, shares, Script::Latin)
    }

    /// Strings drawn by `shares`, with separators between them, cut to `bytes` bytes.
    fn write(&self, random: &mut Random, bytes: usize, shares: Shares, script: Script) -> String {
        let mut text = String::with_capacity(bytes + 64);
        // Where each word starts, so that later draws can repeat earlier words.
        let mut starts = Vec::new();
        while text.len() < bytes {
            if !text.is_empty() {
                text.push_str(match random.below(1_000) {
                    0..60 => ". ",
                    60..90 => ", ",
                    90..110 => "\n\n",
                    110..120 => "! ",
                    draw if draw < 120 + shares.breaks => "\n",
                    _ => " ",
                });
            }
            let start = text.len();
            self.push_draw(&mut text, &starts, random, shares, script, bytes);
            starts.push(start);
            let spaces = text[start..].match_indices(' ').map(|(space, _)| start + space + 1);
            starts.extend(spaces);
        }
        cut(&mut text, bytes);
        text
    }

    /// Adds one string, of a kind drawn by `shares`.
    fn push_draw(
        &self,
        text: &mut String,
        starts: &[usize],
        random: &mut Random,
        shares: Shares,
        script: Script,
        bytes: usize,
    ) {
        let mut draw = random.below(1_000);
        let mut falls_in = |share: usize| {
            let falls = draw < share;
            draw = draw.wrapping_sub(share);
            falls
        };
        if falls_in(shares.addresses) {
            text.push_str(&address(random, "jpg"));
        } else if falls_in(shares.exotic) {
            text.push_str(random.pick(&PIECES.exotic));
        } else if falls_in(shares.repeats) && starts.len() > 4 {
            let first = random.below(starts.len() - 4);
            let length = random.between(3, 10).min(starts.len() - 1 - first);
            let said = text[starts[first]..starts[first + length]].trim_end().to_owned();
            text.push_str(&said);
        } else if falls_in(shares.phrases) {
            text.push_str(&self.phrases[self.by_phrase_rank.draw(random)]);
        } else if falls_in(shares.references) && text.len() + REFERENCE_BYTES <= bytes {
            text.push_str(&reference(random));
        } else if falls_in(shares.quotes) {
            text.push_str(&format!("\"{}\"", self.word(random)));
        } else {
            text.push_str(match script {
                Script::Latin => self.word(random),
                Script::Foreign(script) => &self.foreign[script][self.by_foreign_rank.draw(random)],
            });
        }
    }
}

impl Shares {
    const NONE: Shares =
        Shares { addresses: 0, exotic: 0, repeats: 0, phrases: 0, references: 0, quotes: 0, breaks: 0 };
    /// In 1,000 real notes 80 to 130 refer to somebody or something, 30 to 70 quote, 410 to 570
    /// have several lines.
    const POSTED: Shares = Shares { references: 9, quotes: 5, breaks: 28, ..Shares::NONE };
}

/// A mention of a person or a note: `nostr:npub1…`, `nostr:note1…` (NIP-19, NIP-21).
fn reference(random: &mut Random) -> String {
    let prefix = random.pick(&["npub", "npub", "note"]);
    format!("nostr:{}", nip19::encode(prefix, &random.bytes32()))
}

/// An https address with a tail that no dictionary has.
pub(super) fn address(random: &mut Random, extension: &str) -> String {
    let host = random.pick(&PIECES.hosts);
    let length = random.between(8, 24);
    format!("https://{host}/{}.{extension}", digits(random, 36, length))
}

/// The address of an uploaded picture: hosts name files by long random names.
pub(super) fn upload(random: &mut Random) -> String {
    let host = random.pick(&PIECES.hosts);
    let length = random.between(24, 44);
    format!("https://{host}/{}.jpg", digits(random, 62, length))
}

/// Random digits of this base (at most 62).
pub(super) fn digits(random: &mut Random, base: usize, length: usize) -> String {
    const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    (0..length).map(|_| char::from(DIGITS[random.below(base)])).collect()
}

/// Shortens to exactly `bytes`. If that splits a character, full stops fill the place.
fn cut(text: &mut String, bytes: usize) {
    while text.len() > bytes {
        text.pop();
    }
    while text.len() < bytes {
        text.push('.');
    }
}

/// Ranks with weight 1 / rank.
fn zipf(ranks: usize) -> Weighted {
    Weighted::new((1..=ranks).map(|rank| 1.0 / rank as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vocabularies_share_no_word() {
        let sample = Vocabulary::new();
        let words =
            |of: &Vocabulary| of.foreign.iter().flatten().chain(&of.words).cloned().collect::<Vec<_>>();
        let elsewhere = words(&sample.elsewhere());
        assert_eq!(elsewhere.len(), WORDS + 3 * FOREIGN_WORDS);
        assert!(words(&sample).iter().all(|word| !elsewhere.contains(word)));
    }

    #[test]
    fn text_has_exactly_the_bytes_asked_for() {
        let vocabulary = Vocabulary::new();
        let mut random = Random::new("test", 1);
        for bytes in (0..300).chain([9_186]) {
            assert_eq!(vocabulary.text(&mut random, bytes, 20).len(), bytes);
            assert_eq!(vocabulary.note(&mut random, bytes).len(), bytes);
        }
    }
}
