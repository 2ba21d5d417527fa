//! Access links by name or by their parameters: rates, round trip, queue, loss and jitter.

use std::{fmt, fs, path::PathBuf, str::FromStr, sync::Arc};

use codecs::UnknownName;

use crate::trace::{MTU, Trace};

/// The source of most profiles' rates.
const WEBPAGETEST: &str = "WebPageTest connectivity list (github.com/catchpoint/WebPageTest, \
                           www/settings/connectivity.ini.sample)";

/// The profiles of Lighthouse.
const LIGHTHOUSE: &str = "Lighthouse throttling (github.com/GoogleChrome/lighthouse, docs/throttling.md)";

/// A link that has a name.
#[derive(Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name after `--link`.
    pub name: &'static str,
    /// Its rates and its round trip, queues apart.
    pub parameters: &'static str,
    /// Source of the figures, or that they are an assumption of this repository.
    pub source: &'static str,
}

const fn profile(name: &'static str, parameters: &'static str, source: &'static str) -> Profile {
    Profile { name, parameters, source }
}

/// The profiles, fastest first.
pub static PROFILES: &[Profile] = &[
    profile("datacenter", "down=1gbit,up=1gbit,rtt=10ms", "an assumption of this repository: relay to relay"),
    profile("wifi", "down=20mbit,up=5mbit,rtt=30ms", "an assumption of this repository"),
    profile("lte", "down=12mbit,up=12mbit,rtt=70ms", WEBPAGETEST),
    profile("4g", "down=9mbit,up=9mbit,rtt=170ms", WEBPAGETEST),
    profile("cable", "down=5mbit,up=1mbit,rtt=28ms", WEBPAGETEST),
    profile("slow-4g", "down=1.6mbit,up=750kbit,rtt=150ms", LIGHTHOUSE),
    profile("regular-3g", "down=700kbit,up=700kbit,rtt=300ms", LIGHTHOUSE),
    profile("slow-3g", "down=400kbit,up=400kbit,rtt=400ms", WEBPAGETEST),
    profile("edge", "down=240kbit,up=200kbit,rtt=840ms", WEBPAGETEST),
];

/// The rate of a direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Capacity {
    /// No limit: the unshaped addresses.
    Unlimited,
    /// A constant rate, of IP packets with their headers.
    BitsPerSecond(u64),
    /// A trace of a radio link, and its file.
    Trace(PathBuf, Arc<Trace>),
}

impl Capacity {
    /// Bits a second, of a trace the mean; `None` without a limit.
    pub fn mean_bits_per_s(&self) -> Option<u64> {
        match self {
            Capacity::Unlimited => None,
            Capacity::BitsPerSecond(rate) => Some(*rate),
            Capacity::Trace(_, trace) => Some(trace.mean_bits_per_s()),
        }
    }
}

/// One direction of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Direction {
    /// The rate of the direction.
    pub capacity: Capacity,
    /// Propagation delay.
    pub delay_ns: u64,
    /// Upper bound on the extra delay of a packet, drawn evenly from zero; packets keep their
    /// order.
    pub jitter_ns: u64,
    /// Bytes of IP packets that wait or are on their way out; a packet beyond is dropped (drop
    /// tail).
    pub queue_bytes: u64,
    /// Share of packets that are lost after the queue, in millionths.
    pub loss_ppm: u32,
}

impl Direction {
    /// A direction that delays nothing and drops nothing.
    pub const UNSHAPED: Direction = Direction {
        capacity: Capacity::Unlimited,
        delay_ns: 0,
        jitter_ns: 0,
        queue_bytes: u64::MAX,
        loss_ppm: 0,
    };
}

/// An access link of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// From relay to user.
    pub down: Direction,
    /// From user to relay.
    pub up: Direction,
    given: Given,
}

/// The values that the text of a link gives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Given {
    profile: Option<&'static Profile>,
    down: Option<Capacity>,
    up: Option<Capacity>,
    rtt_ns: Option<u64>,
    jitter_ns: Option<u64>,
    queue_ns: Option<u64>,
    loss_ppm: Option<u32>,
}

/// Why a text is no link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("link {text:?}: {why}")]
pub struct LinkError {
    text: String,
    why: String,
}

impl LinkError {
    /// The reason without the text.
    pub fn why(&self) -> &str {
        &self.why
    }
}

const KEYS: &str = "down=1.6mbit, up=750kbit, rtt=150ms, loss=1%, jitter=5ms and queue=100ms, separated by commas or \
                    colons; down=@FILE and up=@FILE take a trace in mahimahi's format";

/// Between these a timer of tens of microseconds and a histogram of a minute still resolve a
/// packet.
const RATES: std::ops::RangeInclusive<u64> = 1_000..=10_000_000_000;

/// Longer than any round trip of an access link, shorter than every timeout of a run.
const LONGEST_NS: u64 = 10_000_000_000;

/// The most bytes in one queue: ten times the bandwidth-delay product of `datacenter`.
const MOST_QUEUE_BYTES: u64 = 16 << 20;

/// The initial window of a connection (RFC 6928: ten segments), in full packets.
const INITIAL_WINDOW_BYTES: u64 = 10 * MTU as u64;

impl FromStr for Link {
    type Err = LinkError;

    /// Reads a profile's name, parameters (`down=…,up=…,rtt=…`), or a name with parameters that
    /// differ from it.
    fn from_str(text: &str) -> Result<Link, LinkError> {
        let bad = |why: String| LinkError { text: text.to_owned(), why };
        let mut given = Given::default();
        for (place, part) in text.split([',', ':']).map(str::trim).enumerate() {
            match part.split_once('=') {
                Some((key, value)) => given.set(key, value).map_err(bad)?,
                None if place == 0 => {
                    let profile = PROFILES.iter().find(|profile| profile.name == part);
                    let names = PROFILES.iter().map(|profile| profile.name);
                    let unknown = || bad(format!("{}; or {KEYS}", UnknownName::new("profile", part, names)));
                    given.profile = Some(profile.ok_or_else(unknown)?);
                }
                None => return Err(bad(format!("{part:?} has no value; known: {KEYS}"))),
            }
        }
        Link::from_given(given).map_err(bad)
    }
}

impl Given {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let twice = match key {
            "down" => self.down.replace(capacity(value)?).is_some(),
            "up" => self.up.replace(capacity(value)?).is_some(),
            "rtt" => self.rtt_ns.replace(duration_ns(value)?).is_some(),
            "jitter" => self.jitter_ns.replace(duration_ns(value)?).is_some(),
            "queue" => self.queue_ns.replace(duration_ns(value)?).is_some(),
            "loss" => self.loss_ppm.replace(share_ppm(value)?).is_some(),
            _ => return Err(format!("unknown parameter {key:?}; known: {KEYS}")),
        };
        if twice { Err(format!("{key} is given twice")) } else { Ok(()) }
    }
}

impl Link {
    fn from_given(given: Given) -> Result<Link, String> {
        let mut named = Given::default();
        for parameter in given.profile.iter().flat_map(|profile| profile.parameters.split(',')) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            named.set(key, value)?;
        }
        let missing = |key: &str| format!("{key} is missing; needed without a profile: down, up and rtt");
        let down = given.down.clone().or(named.down).ok_or_else(|| missing("down"))?;
        let up = given.up.clone().or(named.up).ok_or_else(|| missing("up"))?;
        let rtt_ns = given.rtt_ns.or(named.rtt_ns).ok_or_else(|| missing("rtt"))?;
        let one_way = |capacity: Capacity, delay_ns| {
            let bits_per_s = capacity.mean_bits_per_s().unwrap_or(u64::MAX);
            let queue_bytes = match given.queue_ns {
                Some(queue_ns) => bytes_in(bits_per_s, queue_ns),
                None => bytes_in(bits_per_s, rtt_ns).max(INITIAL_WINDOW_BYTES),
            };
            if !(MTU as u64..=MOST_QUEUE_BYTES).contains(&queue_bytes) {
                return Err(format!(
                    "a queue of {queue_bytes} bytes; allowed: {MTU} to {MOST_QUEUE_BYTES}, set queue=…ms"
                ));
            }
            Ok(Direction {
                capacity,
                delay_ns,
                jitter_ns: given.jitter_ns.unwrap_or(0),
                queue_bytes,
                loss_ppm: given.loss_ppm.unwrap_or(0),
            })
        };
        let up_delay_ns = rtt_ns / 2;
        Ok(Link { down: one_way(down, rtt_ns - up_delay_ns)?, up: one_way(up, up_delay_ns)?, given })
    }

    /// The name of the link in results: the profile, the parameters that differ from it, and of a
    /// trace its file's name.
    pub fn label(&self) -> String {
        self.text(|path| {
            path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        })
    }

    /// The text that makes the same link in another process.
    pub fn spelled_out(&self) -> String {
        self.text(|path| path.display().to_string())
    }

    fn text(&self, file: fn(&std::path::Path) -> String) -> String {
        let Given { profile, down, up, rtt_ns, jitter_ns, queue_ns, loss_ppm } = &self.given;
        let speed = |key: &str, capacity: &Capacity| match capacity {
            Capacity::Trace(path, _) => format!("{key}=@{}", file(path)),
            rate => format!("{key}={}", Bits(rate.mean_bits_per_s().unwrap_or(u64::MAX))),
        };
        let time = |key: &str, ns: &u64| format!("{key}={}", Nanoseconds(*ns));
        let parts = [
            profile.map(|profile| profile.name.to_owned()),
            down.as_ref().map(|down| speed("down", down)),
            up.as_ref().map(|up| speed("up", up)),
            rtt_ns.as_ref().map(|ns| time("rtt", ns)),
            loss_ppm.map(|ppm| format!("loss={}%", f64::from(ppm) / 10_000.0)),
            jitter_ns.as_ref().map(|ns| time("jitter", ns)),
            queue_ns.as_ref().map(|ns| time("queue", ns)),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(":")
    }

    /// Everything that the emulator goes by, in words.
    pub fn parameters(&self) -> String {
        let way = |way: &Direction| {
            let rate = match &way.capacity {
                Capacity::Unlimited => "unlimited".to_owned(),
                Capacity::BitsPerSecond(rate) => Bits(*rate).to_string(),
                Capacity::Trace(_, trace) => format!("a trace of {trace}"),
            };
            format!("{rate}, {} one way, queue {} bytes", Nanoseconds(way.delay_ns), way.queue_bytes)
        };
        let mut text = format!("down {}; up {}", way(&self.down), way(&self.up));
        if self.down.loss_ppm > 0 {
            text.push_str(&format!("; loss {} %", f64::from(self.down.loss_ppm) / 10_000.0));
        }
        if self.down.jitter_ns > 0 {
            text.push_str(&format!("; jitter {}", Nanoseconds(self.down.jitter_ns)));
        }
        text
    }
}

/// A rate with the unit of tc(8) that needs the fewest digits.
struct Bits(u64);

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.0 as f64;
        match self.0 {
            1_000_000.. => write!(f, "{}mbit", rate / 1e6),
            1_000.. => write!(f, "{}kbit", rate / 1e3),
            _ => write!(f, "{rate}bit"),
        }
    }
}

/// A duration in the largest unit that leaves it whole.
struct Nanoseconds(u64);

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns % 1_000_000 == 0 => write!(f, "{}ms", ns / 1_000_000),
            ns if ns % 1_000 == 0 => write!(f, "{}us", ns / 1_000),
            ns => write!(f, "{}ms", ns as f64 / 1e6),
        }
    }
}

/// The bytes that a rate carries in a span.
fn bytes_in(bits_per_s: u64, ns: u64) -> u64 {
    let bytes = u128::from(bits_per_s) * u128::from(ns) / 8_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn capacity(value: &str) -> Result<Capacity, String> {
    if let Some(path) = value.strip_prefix('@') {
        let text =
            fs::read_to_string(path).map_err(|error| format!("cannot read the trace {path}: {error}"))?;
        let trace = text.parse::<Trace>().map_err(|error| format!("trace {path}, {error}"))?;
        return Ok(Capacity::Trace(path.into(), Arc::new(trace)));
    }
    let units = [("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];
    let rate =
        number(value, &units).ok_or_else(|| format!("{value:?} is not a rate, as 1.6mbit or 750kbit"))?;
    if !RATES.contains(&rate) {
        return Err(format!("{value} is out of range; allowed: 1kbit to 10gbit"));
    }
    Ok(Capacity::BitsPerSecond(rate))
}

fn duration_ns(value: &str) -> Result<u64, String> {
    let units = [("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let ns = number(value, &units).ok_or_else(|| format!("{value:?} is not a duration, as 150ms"))?;
    if ns > LONGEST_NS {
        return Err(format!("{value} is too long; allowed: up to 10s"));
    }
    Ok(ns)
}

fn share_ppm(value: &str) -> Result<u32, String> {
    let ppm = number(value, &[("%", 10_000.0)]).filter(|ppm| *ppm < 1_000_000);
    let ppm = ppm.and_then(|ppm| u32::try_from(ppm).ok());
    ppm.ok_or_else(|| format!("{value:?} is not a share below 100%, as 0.5%"))
}

/// A number of at least zero with one of the units, in the base unit.
fn number(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let (digits, factor) =
        units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let value = digits.parse::<f64>().ok().filter(|_| plain)? * factor;
    Some(measure::whole(value.round()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(text: &str) -> Link {
        text.parse().unwrap()
    }

    #[test]
    fn every_profile_is_a_link_with_a_source() {
        for profile in PROFILES {
            let (found, spelled_out) = (link(profile.name), link(profile.parameters));
            assert_eq!((&found.down, &found.up), (&spelled_out.down, &spelled_out.up));
            assert_eq!(found.label(), profile.name);
            assert!((found.down.loss_ppm, found.down.jitter_ns) == (0, 0), "published profiles lose nothing");
            assert!(profile.source.len() > 10, "{}", profile.name);
        }
    }

    #[test]
    fn parameters_make_a_link_of_their_own_or_change_a_profile() {
        let own = link("down=1.6mbit,up=750kbit,rtt=150ms,loss=1%,jitter=2ms,queue=100ms");
        assert_eq!(own.down.capacity, Capacity::BitsPerSecond(1_600_000));
        assert_eq!((own.down.queue_bytes, own.up.queue_bytes), (20_000, 9_375));
        assert_eq!((own.down.loss_ppm, own.up.loss_ppm, own.up.jitter_ns), (10_000, 10_000, 2_000_000));
        assert_eq!(own.label(), "down=1.6mbit:up=750kbit:rtt=150ms:loss=1%:jitter=2ms:queue=100ms");
        assert_eq!(link(&own.spelled_out()), own);
        let changed = link("slow-4g:loss=0.5%");
        assert_eq!((changed.label().as_str(), changed.up.loss_ppm), ("slow-4g:loss=0.5%", 5_000));
        assert_eq!(link("slow-4g").down.capacity, changed.down.capacity);
        assert_eq!(link("down=1mbit:up=1mbit:rtt=1.001ms").up.delay_ns, 500_500);
    }

    #[test]
    fn the_queue_holds_a_bandwidth_delay_product_and_an_initial_window() {
        assert_eq!(link("4g").down.queue_bytes, 9_000_000 * 170 / 8_000);
        assert_eq!(link("cable").up.queue_bytes, 15_000);
    }

    #[test]
    fn a_mistake_is_named_with_what_is_known() {
        for (text, says) in [
            ("5g", "unknown profile \"5g\"; known: datacenter wifi lte 4g cable"),
            ("slow4g", "unknown profile \"slow4g\" (did you mean slow-4g?); known: datacenter"),
            ("", "unknown profile"),
            ("down=1mbit,up=1mbit", "rtt is missing"),
            ("rtt=1ms", "down is missing"),
            ("slow-4g,colour=red", "unknown parameter \"colour\"; known: down=1.6mbit"),
            ("slow-4g,4g", "\"4g\" has no value"),
            ("slow-4g,rtt=1ms,rtt=2ms", "rtt is given twice"),
            ("slow-4g,rtt=-1ms", "is not a duration"),
            ("slow-4g,rtt=1e3ms", "is not a duration"),
            ("slow-4g,rtt=20s", "too long"),
            ("slow-4g,down=0bit", "out of range"),
            ("slow-4g,down=11gbit", "out of range"),
            ("slow-4g,down=fast", "is not a rate"),
            ("slow-4g,loss=100%", "not a share below 100%"),
            ("slow-4g,loss=1", "not a share"),
            ("slow-4g,queue=1us", "a queue of 0 bytes"),
            ("down=10gbit,up=1mbit,rtt=10s", "allowed: 1500 to 16777216"),
            ("slow-4g,down=@/no/such/file", "cannot read the trace /no/such/file"),
        ] {
            let error = text.parse::<Link>().unwrap_err().to_string();
            assert!(error.contains(says) && error.starts_with("link "), "{text}: {error}");
        }
    }
}
