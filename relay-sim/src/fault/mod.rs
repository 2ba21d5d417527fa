//! Misbehaves on request, so that a test of an instrument (`compare selftest`) or of a client
//! (docs/test-relay.md) has something to find.
//!
//! A relay with faults names them in its log, its announcement, its totals and its information
//! document (NIP-11). To add a fault, add an entry to [`registry::REGISTRY`] and ask
//! [`Planted::next`] for it where it acts.

use std::{fmt, str::FromStr, time::Duration};

use codecs::UnknownName;

mod draw;
mod frames;
mod planted;
mod process;
mod registry;
mod when;

pub(crate) use draw::{Draw, with_altered_sig};
pub(crate) use frames::SpoiltFrames;
use planted::Hit;
pub(crate) use planted::{Faults, Planted};
pub(crate) use process::{Burner, behind_a_delay, stall};
pub(crate) use registry::Kind;
use registry::{ActsOn, Entry, Parameter, REGISTRY};
use when::When;

/// One way to misbehave, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The fault as it was written, by which logs and records name it.
    text: String,
    kind: Kind,
    /// Nanoseconds, seconds or a number, as its [`Parameter`] has it; 0 where that is a share.
    value: i64,
    when: When,
}

impl Fault {
    fn acts_on(&self) -> ActsOn {
        self.kind.entry().acts_on
    }

    /// Whether it is about the process, which takes it up at its start.
    pub(crate) fn is_of_the_process(&self) -> bool {
        self.acts_on() == ActsOn::Process
    }

    /// Whether it stands between the clients and the relay, which then sees no addresses.
    pub(crate) fn is_a_delay(&self) -> bool {
        self.kind == Kind::Delay
    }

    /// The time that is its value.
    fn time(&self) -> Duration {
        Duration::from_nanos(self.value.unsigned_abs())
    }

    fn parse(entry: &'static Entry, text: &str) -> Result<Fault, String> {
        let mut parts = text.split(':');
        let value = parts.next().and_then(|named| Some(named.split_once('=')?.1));
        let mut when = When::default();
        let value = read_value(entry, value, &mut when)
            .ok_or_else(|| format!("write it as {}{}", entry.example, units(entry.parameter)))?;
        let mut seen = Vec::new();
        for key in parts {
            let (key, value) = key.split_once('=').ok_or_else(|| format!("{key:?} is no KEY=VALUE"))?;
            if !entry.acts_on.takes(key) {
                return Err(format!(
                    "{} acts on {} and takes no {key:?}",
                    entry.name(),
                    entry.acts_on.noun()
                ));
            }
            if seen.contains(&key) {
                return Err(format!("{key:?} stands twice"));
            }
            seen.push(key);
            when.set(key, value)?;
        }
        Ok(Fault { text: text.to_owned(), kind: entry.kind, value, when })
    }
}

/// Reads the value of a fault. A share, and the time behind an `@`, are keys by another place.
fn read_value(entry: &Entry, value: Option<&str>, when: &mut When) -> Option<i64> {
    let ns = |text| i64::try_from(duration(text)?.as_nanos()).ok();
    match entry.parameter {
        Parameter::Share => {
            if let Some(share) = value {
                when.rate = share.parse().ok()?;
            }
            Some(0)
        }
        Parameter::Time => ns(value?),
        Parameter::TimeAt => {
            let (length, after) = value?.split_once('@')?;
            when.after = duration(after)?;
            ns(length)
        }
        Parameter::Offset => offset(value?),
        Parameter::Number(least, most) => {
            let number = value?.parse().ok()?;
            (least..=most).contains(&number).then_some(number.into())
        }
    }
}

fn units(parameter: Parameter) -> String {
    match parameter {
        Parameter::Share => " or without a share, for all".to_owned(),
        Parameter::Time | Parameter::TimeAt => ", with ns, us, ms or s, at most 60s".to_owned(),
        Parameter::Offset => ", with s, m, h or d".to_owned(),
        Parameter::Number(least, most) => format!(", {least} to {most}"),
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a text does not name a fault, with the form that would.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnknownFault(String);

impl FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Fault, UnknownFault> {
        let short = |text: &str| text.chars().take(100).collect::<String>();
        let name = text.split([':', '=']).next().unwrap_or_default();
        let Some(entry) = REGISTRY.iter().find(|entry| entry.name() == name) else {
            let known = UnknownName::new("fault", &short(name), REGISTRY.iter().map(|entry| entry.example));
            return Err(UnknownFault(format!("{known}; each with keys such as :connection=2:message=3")));
        };
        Fault::parse(entry, text).map_err(|why| UnknownFault(format!("{:?} is no fault; {why}", short(text))))
    }
}

/// One of each fault that takes all keys, in a small number where it has one.
#[cfg(test)]
pub(crate) fn examples() -> impl Iterator<Item = String> {
    let takes_all = |entry: &&Entry| entry.acts_on.takes("message");
    REGISTRY.iter().filter(takes_all).map(|entry| match entry.parameter {
        Parameter::Number(least, _) => format!("{}={}", entry.name(), least.max(3)),
        Parameter::Share => entry.name().to_owned(),
        _ => entry.example.to_owned(),
    })
}

/// The help of `--fault`, by what the faults act on.
pub(crate) fn help() -> String {
    let mut text = String::from(
        "Misbehave, for tests of an instrument or of a client; may be repeated\n\n\
         A fault is NAME or NAME=VALUE and, each behind a colon, keys that say when it acts: connection=2 (by \
         handshakes, from 1), message=2-5 (of what it acts on, in its connection), after=3s, for=2s, probability=10%, \
         seed=7. Without keys it acts always. docs/test-relay.md says what a good client does.\n",
    );
    for (place, entry) in REGISTRY.iter().enumerate() {
        if place == 0 || REGISTRY[place - 1].acts_on != entry.acts_on {
            text.push_str(&format!("\nOn {}:\n", entry.acts_on.noun()));
        }
        text.push_str(&format!("  {}: {}\n", entry.example, entry.does));
    }
    text.push_str("\nThe relay names its faults in its announcement, totals and NIP-11 document.");
    text
}

/// A whole number and a unit; nothing beyond a minute, which no test waits for.
fn duration(text: &str) -> Option<Duration> {
    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let ns = with_unit(text, &units)?;
    Some(Duration::from_nanos(ns)).filter(|duration| *duration <= Duration::from_secs(60))
}

/// Seconds ahead, or behind with a minus; at most ten years.
fn offset(text: &str) -> Option<i64> {
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |text| (-1, text));
    let units = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)];
    let seconds = i64::try_from(with_unit(text, &units)?).ok()?;
    (seconds <= 3_650 * 86_400).then_some(sign * seconds)
}

fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(known, _)| *known == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_has_several_spellings() {
        for (text, other) in [
            ("lose=0.01", "lose=1%:seed=1"),
            ("lose", "lose=100%"),
            ("no-eose:probability=5%", "no-eose=5%"),
            ("delay=1000us", "delay=1ms"),
            ("clock=2d", "clock=172800s"),
            ("close=4000:message=2-2", "close=4000:message=2"),
            ("late-ok=2s:connection=2-5:after=3s", "late-ok=2s:after=3000ms:connection=2-5"),
        ] {
            let [one, other]: [Fault; 2] = [text, other].map(|text| text.parse().unwrap());
            assert_eq!((one.kind, one.value, &one.when), (other.kind, other.value, &other.when), "{text}");
            assert_eq!(one.to_string(), text);
        }
        assert!(REGISTRY.iter().all(|entry| entry.example.parse::<Fault>().is_ok()));
    }

    #[test]
    fn what_is_no_fault_is_told_with_a_way_out() {
        for (text, expected) in [
            ("", "known: stall=500ms@3s"),
            ("burn", "write it as burn=20us"),
            ("burn=5", "with ns, us, ms or s"),
            ("stall=1s", "write it as stall=500ms@3s"),
            ("delay=99999999999999999999s", "at most 60s"),
            ("delay=50ms:connection=1", "acts on the process and takes no \"connection\""),
            ("lose=0%", "write it as lose=1%"),
            ("lose=101%", "write it as lose=1%"),
            ("lose=1e-3", "write it as lose=1%"),
            ("lose=nan", "write it as lose=1%"),
            ("lose=1%:seed=", "seed= is no whole number"),
            ("lose=1%:colour=red", "known: connection, message"),
            ("no-eose:message=0", "message=0 is no number such as"),
            ("flood=0", "1 to 100000"),
            ("close=999", "1000 to 4999"),
        ] {
            let error = text.parse::<Fault>().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!("x".repeat(1 << 20).parse::<Fault>().unwrap_err().to_string().len() < 2_000);
    }
}
