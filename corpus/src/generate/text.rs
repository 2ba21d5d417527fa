//! Text that compresses like notes and articles do.
//!
//! Random words alone are too hard to compress, for people repeat phrases, names and links. The shares below were
//! fitted to real notes (gzip and zstd, per event and as a stream); none of the words is from them.

use crate::random::{Random, Weighted};

const WORDS: usize = 1_500;
const PHRASES: usize = 400;

/// Of 100 draws, how many are what; the rest are single words.
#[derive(Debug, Clone, Copy)]
struct Shares {
    /// An address with a random tail.
    addresses: usize,
    /// An emoji or a word not in Latin letters.
    exotic: usize,
    /// A span of 3 to 10 words said before in the same text.
    repeats: usize,
    /// One of the fixed phrases.
    phrases: usize,
}

const SYLLABLES: [&str; 40] = [
    "a", "be", "ca", "do", "e", "fi", "go", "ha", "in", "ju", "ka", "lo", "me", "no", "or", "pa", "qui",
    "re", "so", "ta", "un", "va", "we", "yo", "zi", "an", "ber", "con", "der", "en", "for", "gen", "ist",
    "lan", "men", "nos", "per", "stra", "ten", "ver",
];

const EXOTIC: [&str; 30] = [
    "🤙",
    "😂",
    "🔥",
    "🚀",
    "💜",
    "🫂",
    "⚡",
    "👀",
    "🙏",
    "☕",
    "🧡",
    "✅",
    "👉",
    "—",
    "…",
    "“gm”",
    "それは",
    "です",
    "日本",
    "今日は",
    "ありがとう",
    "привет",
    "это",
    "что",
    "für",
    "más",
    "não",
    "está",
    "你好",
    "한국",
];

pub(super) const HOSTS: [&str; 16] = [
    "example.com",
    "image.example.org",
    "media.example.net",
    "blossom.example.com",
    "video.example.org",
    "news.example.com",
    "blog.example.net",
    "cdn.example.org",
    "wiki.example.com",
    "files.example.net",
    "pod.example.com",
    "shop.example.org",
    "git.example.net",
    "mint.example.com",
    "map.example.org",
    "social.example.net",
];

/// The words and phrases of every generated corpus.
#[derive(Debug)]
pub(super) struct Vocabulary {
    words: Vec<String>,
    phrases: Vec<String>,
    by_word_rank: Weighted,
    by_phrase_rank: Weighted,
}

impl Vocabulary {
    pub(super) fn new() -> Vocabulary {
        let mut random = Random::new("relay-sim vocabulary", 0);
        let mut words: Vec<String> = Vec::with_capacity(WORDS);
        while words.len() < WORDS {
            // Frequent words are short, as in languages.
            let (first, last) = match words.len() {
                0..30 => (1, 1),
                30..300 => (1, 2),
                _ => (2, 4),
            };
            let word: String = (0..random.between(first, last)).map(|_| random.pick(&SYLLABLES)).collect();
            if !words.contains(&word) {
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
        Vocabulary { words, phrases, by_word_rank, by_phrase_rank: zipf(PHRASES) }
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
        self.write(random, bytes, Shares { addresses: 3, exotic, repeats: 10, phrases: 15 })
    }

    /// As [`Vocabulary::text`]; long texts repeat less of themselves.
    pub(super) fn article(&self, random: &mut Random, bytes: usize) -> String {
        self.write(random, bytes, Shares { addresses: 4, exotic: 1, repeats: 3, phrases: 6 })
    }

    fn write(&self, random: &mut Random, bytes: usize, shares: Shares) -> String {
        let mut text = String::with_capacity(bytes + 64);
        // Of words.
        let mut starts = Vec::new();
        while text.len() < bytes {
            if !text.is_empty() {
                text.push_str(match random.below(100) {
                    0..6 => ". ",
                    6..9 => ", ",
                    9..11 => "\n\n",
                    11..12 => "! ",
                    _ => " ",
                });
            }
            let start = text.len();
            self.push_draw(&mut text, &starts, random, shares);
            starts.push(start);
            let spaces = text[start..].match_indices(' ').map(|(space, _)| start + space + 1);
            starts.extend(spaces);
        }
        cut(&mut text, bytes);
        text
    }

    fn push_draw(&self, text: &mut String, starts: &[usize], random: &mut Random, shares: Shares) {
        let mut draw = random.below(100);
        let mut falls_in = |share: usize| {
            let falls = draw < share;
            draw = draw.wrapping_sub(share);
            falls
        };
        if falls_in(shares.addresses) {
            text.push_str(&address(random, "jpg"));
        } else if falls_in(shares.exotic) {
            text.push_str(random.pick(&EXOTIC));
        } else if falls_in(shares.repeats) && starts.len() > 4 {
            let first = random.below(starts.len() - 4);
            let length = random.between(3, 10).min(starts.len() - 1 - first);
            let said = text[starts[first]..starts[first + length]].trim_end().to_owned();
            text.push_str(&said);
        } else if falls_in(shares.phrases) {
            text.push_str(&self.phrases[self.by_phrase_rank.draw(random)]);
        } else {
            text.push_str(self.word(random));
        }
    }
}

/// An https address with a tail that no dictionary knows.
pub(super) fn address(random: &mut Random, extension: &str) -> String {
    let host = random.pick(&HOSTS);
    let length = random.between(8, 24);
    format!("https://{host}/{}.{extension}", digits(random, 36, length))
}

/// The address of an uploaded picture: hosts name files by long random names.
pub(super) fn upload(random: &mut Random) -> String {
    let host = random.pick(&HOSTS);
    let length = random.between(24, 44);
    format!("https://{host}/{}.jpg", digits(random, 62, length))
}

/// Random digits of this base (at most 62).
pub(super) fn digits(random: &mut Random, base: usize, length: usize) -> String {
    const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    (0..length).map(|_| char::from(DIGITS[random.below(base)])).collect()
}

/// Shortens to exactly `bytes`; where that would split a character, full stops fill the place.
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
    fn text_has_exactly_the_bytes_asked_for() {
        let vocabulary = Vocabulary::new();
        let mut random = Random::new("test", 1);
        for bytes in (0..300).chain([9_186]) {
            assert_eq!(vocabulary.text(&mut random, bytes, 20).len(), bytes);
        }
    }
}
