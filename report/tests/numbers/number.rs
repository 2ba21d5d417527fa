//! Numbers of a text, each with what it stands for.

/// Words that are numbers, longest first.
const WORDS: [(&str, f64); 18] = [
    ("three and a half", 3.5),
    ("three quarters", 0.75),
    ("two thirds", 2.0 / 3.0),
    ("seven times", 7.0),
    ("three times", 3.0),
    ("eight times", 8.0),
    ("four times", 4.0),
    ("five times", 5.0),
    ("a quarter", 0.25),
    ("an eighth", 0.125),
    ("six times", 6.0),
    ("a third", 1.0 / 3.0),
    ("a fifth", 0.2),
    ("a sixth", 1.0 / 6.0),
    ("a tenth", 0.1),
    ("a ninth", 1.0 / 9.0),
    ("twice", 2.0),
    ("half", 0.5),
];

/// What stands before digits that are a name.
const NAMES: [&str; 4] = ["RFC ", "section ", "§", "#"];

const UNITS: [&str; 15] =
    ["ns", "µs", "us", "ms", "s", "min", "h", "B", "bytes", "KiB", "MiB", "GiB", "Mbit/s", "times", "x"];

/// How far a word may be from what it says, as a share.
const WORD: f64 = 0.1;

/// A number and the values that it may stand for: those that round to it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Number {
    /// As it was read.
    pub(crate) said: String,
    low: f64,
    high: f64,
}

impl Number {
    /// A value that was not rounded.
    pub(crate) fn exactly(value: f64) -> Number {
        Number { said: value.to_string(), low: value, high: value }
    }

    fn around(said: &str, value: f64, reach: f64) -> Number {
        Number { said: said.to_owned(), low: value - reach, high: value + reach }
    }

    /// Whether some value rounds to both.
    pub(crate) fn agrees(&self, other: &Number) -> bool {
        // Limits that only touch differ by a whole last digit.
        let margin = 1e-9 * self.high.abs().max(1.0);
        self.low + margin < other.high && other.low + margin < self.high
            || (self.low - other.low).abs() < margin && (self.high - other.high).abs() < margin
    }

    pub(crate) fn middle(&self) -> f64 {
        f64::midpoint(self.low, self.high)
    }

    /// The middle alone, for what was not rounded.
    fn exact(&self) -> Number {
        Number { said: self.said.clone(), low: self.middle(), high: self.middle() }
    }

    /// Times a positive factor.
    pub(crate) fn times(&self, factor: f64) -> Number {
        Number { said: self.said.clone(), low: self.low * factor, high: self.high * factor }
    }

    /// Divided by a positive number.
    pub(crate) fn over(&self, other: &Number) -> Number {
        let said = format!("{} ÷ {}", self.said, other.said);
        Number { said, low: self.low / other.high, high: self.high / other.low }
    }

    /// The share that is more or less than one as a multiple of it.
    fn beside_one(self, sign: f64, word: &str) -> Number {
        let ends = [1.0 + sign * self.low, 1.0 + sign * self.high];
        Number { said: format!("{}{word}", self.said), low: ends[0].min(ends[1]), high: ends[0].max(ends[1]) }
    }
}

/// Whether a word is what numbers are counted in.
pub(crate) fn is_unit(word: &str) -> bool {
    UNITS.contains(&word) || word.ends_with("/s")
}

/// The numbers of a text in their order. Parts of names are none (`p99`, `NIP-11`, `1.95.0`,
/// `RFC 7692`).
pub(crate) fn numbers(text: &str) -> Vec<Number> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        match number_at(text, at) {
            Some((number, end)) => {
                found.extend(number);
                at = end;
            }
            None => at += first.len_utf8(),
        }
    }
    found
}

/// The numbers of code in their order. They are exact, and products and shifts are computed.
pub(crate) fn of_code(code: &str) -> Vec<Number> {
    // Thousands of Rust, and the ends of a range.
    let code = code.replace('_', ",").replace("..", " .. ");
    let mut words: Vec<String> = Vec::new();
    for word in code.split(' ') {
        let computed = match words.as_slice() {
            [.., one, sign] => computed(one, sign, word),
            _ => None,
        };
        words.truncate(words.len() - if computed.is_some() { 2 } else { 0 });
        words.push(computed.unwrap_or_else(|| word.to_owned()));
    }
    numbers(&words.join(" ")).iter().map(Number::exact).collect()
}

/// A product or a shift of whole numbers, with what stands behind it.
fn computed(one: &str, sign: &str, other: &str) -> Option<String> {
    let digits = other.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(other.len());
    let (other, behind) = other.split_at(digits);
    let whole = |digits: &str| digits.replace(',', "").parse::<u64>().ok();
    let value = match sign {
        "*" => whole(one)?.checked_mul(whole(other)?),
        "<<" => whole(one)?.checked_shl(u32::try_from(whole(other)?).ok()?),
        _ => None,
    };
    Some(format!("{}{behind}", value?))
}

/// What begins at a place, if it is a number or the digits of a name, and where it ends.
fn number_at(text: &str, at: usize) -> Option<(Option<Number>, usize)> {
    let (before, rest) = text.split_at(at);
    let follows_a_letter = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let is_ordinal = ["first ", "second "].iter().any(|which| before.ends_with(which));
    let word = WORDS.iter().find(|(word, _)| {
        !follows_a_letter
            && (*word != "half" || !is_ordinal)
            && rest.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word))
            && !rest[word.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '-')
    });
    if let Some((word, value)) = word {
        let number = Number::around(word, *value, value * WORD);
        return Some(with_more_or_less(number, text, at + word.len()));
    }
    if !rest.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let length = rest.find(|c: char| !c.is_ascii_digit() && c != ',' && c != '.').unwrap_or(rest.len());
    if let Some(end) = date(rest) {
        return Some((None, at + end));
    }
    let digits = rest[..length].trim_end_matches([',', '.']);
    let end = at + digits.len();
    let in_a_name = follows_a_letter
        || NAMES.iter().any(|name| before.ends_with(name))
        || before.strip_suffix('-').is_some_and(|name| name.ends_with(|c: char| c.is_ascii_alphabetic()))
        || is_name(&text[end..]);
    let plain = digits.replace(',', "");
    let value = plain.parse::<f64>().ok().filter(|_| !in_a_name && is_grouped(digits));
    let Some(value) = value else {
        let name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let length = text[end..].find(|c| !name(c)).unwrap_or(text.len() - end);
        return Some((None, end + length));
    };
    let number = Number::around(digits, value, reach(&plain));
    let sign = |at: usize| [" %", "%"].into_iter().find(|sign| text[at..].starts_with(sign));
    Some(match sign(end) {
        None if other_end(text, end).is_some_and(|end| sign(end).is_some()) => {
            let mut number = number.times(0.01);
            number.said.push_str(" %");
            (Some(number), end)
        }
        Some(sign) => {
            let mut number = number.times(0.01);
            number.said.push_str(" %");
            with_more_or_less(number, text, end + sign.len())
        }
        None => (Some(number), end),
    })
}

/// Whether letters follow digits that are no unit of theirs.
fn is_name(behind: &str) -> bool {
    let word = behind.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
    word.starts_with(|c: char| c.is_alphabetic() || c == '_') && !is_unit(word)
}

/// Where a date ends that begins here.
fn date(text: &str) -> Option<usize> {
    let date = text.get(.."2026-01-01".len())?;
    let is_date = date.char_indices().all(|(place, c)| match place {
        4 | 7 => c == '-',
        _ => c.is_ascii_digit(),
    });
    is_date.then_some(date.len())
}

/// Where the other number of a range ends, whose percent sign is that of both.
fn other_end(text: &str, end: usize) -> Option<usize> {
    let other = text[end..].strip_prefix(" to ")?;
    let digits = other.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|length| *length > 0)?;
    Some(text.len() - other.len() + digits)
}

/// Whether commas stand where thousands end.
fn is_grouped(digits: &str) -> bool {
    let whole = digits.split('.').next().unwrap_or(digits);
    let mut groups = whole.split(',');
    groups.next().is_some_and(|first| first.len() <= 3 || !whole.contains(','))
        && groups.all(|group| group.len() == 3)
}

/// Half of the last digit.
fn reach(digits: &str) -> f64 {
    match digits.split_once('.') {
        Some((_, decimals)) => 0.5 / decimals.bytes().fold(1.0, |scale, _| scale * 10.0),
        None => 0.5,
    }
}

/// A share with the word behind it, which makes it a multiple.
fn with_more_or_less(number: Number, text: &str, end: usize) -> (Option<Number>, usize) {
    let words = [(" more", 1.0), (" less", -1.0), (" fewer", -1.0)];
    let follows = |(word, _): &&(&str, f64)| {
        let behind = text[end..].strip_prefix(word);
        behind.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-'))
    };
    match words.iter().find(follows) {
        Some((word, sign)) => (Some(number.beside_one(*sign, word)), end + word.len()),
        None => (Some(number), end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_with_what_they_stand_for() {
        let read = |text: &str| -> Vec<(String, f64)> {
            let rounded = |number: &Number| (number.middle() * 1e6).round() / 1e6;
            numbers(text).iter().map(|number| (number.said.clone(), rounded(number))).collect()
        };
        let one = |said: &str, value: f64| vec![(said.to_owned(), value)];
        assert_eq!(read("×0.49."), one("0.49", 0.49));
        assert_eq!(read("1,219 bytes"), one("1,219", 1_219.0));
        assert_eq!(read("(57 %)"), one("57 %", 0.57));
        assert_eq!(read("84 to 93.5 %")[0], ("84 %".to_owned(), 0.84));
        assert_eq!(read("84 to 93.5")[0], ("84".to_owned(), 84.0));
        assert_eq!(read("6 % more bytes"), one("6 % more", 1.06));
        assert_eq!(read("a tenth less"), one("a tenth less", 0.9));
        assert_eq!(read("Half of it"), one("half", 0.5));
        assert_eq!(read("three and a half times"), one("three and a half", 3.5));
        assert_eq!(read("0.95 [0.91, 1.00]").len(), 3);
        assert_eq!(read("9/1.5 Mbit/s").len(), 2);
        assert_eq!(read("3x"), one("3", 3.0));
        assert_eq!(read("1.5ms,"), one("1.5", 1.5));
        for name in [
            "p99",
            "NIP-11",
            "1.95.0",
            "f4c8655",
            "245523f",
            "slow-4g",
            "zstd_1",
            "behalf",
            "2026-11-27",
            "RFC 7692 section 6",
            "RFC 6455 §5.5.2",
            "#1134",
            "the second half",
        ] {
            assert_eq!(read(name), Vec::new(), "{name}");
        }
    }

    #[test]
    fn numbers_of_code_are_exact_and_computed() {
        let read = |code: &str| -> Vec<f64> { of_code(code).iter().map(Number::middle).collect() };
        assert_eq!(read("const MOST: usize = 1_024;"), [1_024.0]);
        assert_eq!(read("MOST_SPANS: usize = 1 << 11;"), [2_048.0]);
        assert_eq!(read("SPARE: usize = 4 * 80;"), [320.0]);
        assert_eq!(read("BYTES: u64 = 2 * 3 * 5, 7"), [30.0, 7.0]);
        assert_eq!(read("(0..20)"), [0.0, 20.0]);
        assert_eq!(read("PING_NS: u64 = 200 * MS;"), [200.0]);
        let agree = |said: &str, code: &str| numbers(said)[0].agrees(&of_code(code)[0]);
        assert!(agree("90 %", "ABOVE: f64 = 0.9;") && agree("2,048", "1 << 11"));
        assert!(!agree("93 %", "ABOVE: f64 = 0.9;") && !agree("2,049", "1 << 11"));
    }

    #[test]
    fn numbers_agree_where_they_round_to_the_same() {
        let agree = |one: &str, other: &str| numbers(one)[0].agrees(&numbers(other)[0]);
        for (one, other) in [
            ("0.49", "0.49"),
            ("6.1", "6.05"),
            ("0.5", "0.49"),
            ("an eighth more", "1.12"),
            ("10 %", "0.098"),
            ("half", "0.52"),
        ] {
            assert!(agree(one, other) && agree(other, one), "{one} {other}");
        }
        for (one, other) in [
            ("0.49", "0.50"),
            ("6.2", "6.05"),
            ("10 %", "11 %"),
            ("an eighth more", "1.15"),
            ("36,000", "36,127"),
            ("1,219", "1,220"),
            ("half", "0.57"),
        ] {
            assert!(!agree(one, other) && !agree(other, one), "{one} {other}");
        }
        assert!(numbers("10 %")[0].agrees(&Number::exactly(0.0986)));
        assert!(!numbers("10 %")[0].agrees(&Number::exactly(0.106)));
    }
}
