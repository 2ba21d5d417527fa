//! Batches of events: the offer and the limits.

use std::{fmt, str::FromStr};

use terms::BatchLimits;

/// Each event is a message of its own.
pub(crate) const NO_BATCHES: &str = "off";

/// The relay puts several events of a subscription into one message.
const BATCHES: &str = "on";

/// The limits that a relay keeps, where they differ from its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Batching {
    /// How many milliseconds a live event waits for others.
    pub ms: Option<u16>,
    /// Most events.
    pub n: Option<u16>,
    /// Most bytes of encoded events.
    pub bytes: Option<u32>,
}

impl Batching {
    /// Reads [`NO_BATCHES`], `on`, or `on` with limits behind colons: `on:ms=2:n=16:bytes=8192`.
    pub(crate) fn read(text: &str) -> Result<Option<Batching>, String> {
        let known = || format!("known: {NO_BATCHES} {BATCHES} (or: on:ms=2:n=16:bytes=8192)");
        if text == NO_BATCHES {
            return Ok(None);
        }
        let limits = text.strip_prefix(BATCHES).ok_or_else(known)?;
        if !limits.is_empty() && !limits.starts_with(':') {
            return Err(known());
        }
        let mut batching = Batching::default();
        for limit in limits.split(':').skip(1) {
            let (name, value) = limit.split_once('=').unwrap_or((limit, ""));
            match name {
                "ms" => batching.ms = Some(number(limit, value)?),
                "n" => batching.n = Some(number(limit, value)?),
                "bytes" => batching.bytes = Some(number(limit, value)?),
                _ => return Err(no_limit(limit)),
            }
        }
        Ok(Some(batching))
    }

    /// Whether it is left to the relay which limits it keeps.
    pub fn leaves_limits(self) -> bool {
        self == Batching::default()
    }

    /// The limits that are stated, each with the name of its parameter.
    pub fn limits(self) -> impl Iterator<Item = (&'static str, u32)> {
        let Batching { ms, n, bytes } = self;
        let limits = [("ms", ms.map(u32::from)), ("n", n.map(u32::from)), ("bytes", bytes)];
        limits.into_iter().filter_map(|(name, limit)| Some((name, limit?)))
    }

    /// Every limit, as records have them.
    pub(crate) fn in_full(self) -> String {
        let BatchLimits { hold, events, bytes } = self.of_the_relay();
        format!("ms={} n={events} bytes={bytes}", hold.as_millis())
    }

    /// The limits that a relay of our own keeps.
    pub fn of_the_relay(self) -> BatchLimits {
        let standing = BatchLimits::default();
        BatchLimits {
            hold: self.ms.map_or(standing.hold, |ms| std::time::Duration::from_millis(ms.into())),
            events: self.n.map_or(standing.events, usize::from),
            bytes: self.bytes.map_or(standing.bytes, |bytes| bytes as usize),
        }
    }
}

impl fmt::Display for Batching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(BATCHES)?;
        self.limits().try_for_each(|(name, limit)| write!(f, ":{name}={limit}"))
    }
}

fn number<N: FromStr>(limit: &str, value: &str) -> Result<N, String> {
    value.parse().map_err(|_| no_limit(limit))
}

fn no_limit(limit: &str) -> String {
    format!("{limit:?} is not a limit; known: ms, n and bytes, each with a whole number behind =")
}
