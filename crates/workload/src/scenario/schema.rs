//! The tables and keys of a scenario file. `scenarios/README.md` explains every key; a test
//! compares the two.

use std::{collections::BTreeMap, fmt::Display, str::FromStr, sync::Arc, time::Duration};

use codecs::Format;
use corpus::{Rules, Signing};
use link::{Link, LinkError};
use measure::NO_LINK;
use serde::{Deserialize, Deserializer, de};
use terms::Compression;

use crate::recorded::Recorded;

/// A scenario file. Unknown keys are errors.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// File name without `.toml`.
    #[serde(skip)]
    pub name: String,
    /// Whether only newly made events are published. A relay that stays between runs may have the
    /// corpus's events, and delivers an event once.
    #[serde(skip)]
    pub only_new: bool,
    /// The rules of the relay: events that it refuses are set aside.
    #[serde(skip)]
    pub rules: Rules,
    /// Who signs new events, and with how much work.
    #[serde(skip)]
    pub signing: Signing,
    /// How many times the file's clients and rates ([`Scenario::set_load`]).
    #[serde(skip, default = "once")]
    pub load: f64,
    /// Whether every arrival is a closed loop that time ends ([`Scenario::set_cell`]).
    #[serde(skip)]
    pub saturated: bool,
    /// The recording that is played, instead of populations.
    #[serde(skip)]
    pub replay: Option<Replay>,
    /// The question that the scenario answers.
    pub question: String,
    /// The lesson for a NIP author.
    pub learn: String,
    /// Where the parameters come from.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Seconds in which work is started; the sum of the phases where there are any.
    #[serde(default)]
    pub seconds: f64,
    /// Whether every client answers the relay's AUTH challenge (NIP-42) before anything else.
    #[serde(default)]
    pub auth: bool,
    /// Parts of the run, one after the other.
    #[serde(default)]
    pub phase: Vec<Phase>,
    /// Clients that request stored events.
    #[serde(default)]
    pub request: Vec<Request>,
    /// Clients that publish.
    #[serde(default)]
    pub publish: Vec<Publish>,
    /// Clients that keep live subscriptions.
    #[serde(default)]
    pub subscribe: Vec<Subscribe>,
    /// Clients that read the same events from several relays.
    #[serde(default)]
    pub fan_in: Vec<FanIn>,
    /// Clients that reconcile their events with the relay (NIP-77).
    #[serde(default)]
    pub reconcile: Vec<Reconcile>,
    /// Figures that a run must reach to count as evidence, by name.
    #[serde(default)]
    pub expect: BTreeMap<String, Bound>,
}

/// A recording that is played as a scenario.
#[derive(Debug, Clone)]
pub struct Replay {
    /// What was recorded.
    pub recorded: Arc<Recorded>,
    /// The seconds after which nothing more of it is begun; all of it is played without.
    pub cut_s: Option<f64>,
}

fn once() -> f64 {
    1.0
}

/// A part of the run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// The name by which populations refer to it.
    pub name: String,
    /// How long it lasts, in seconds.
    pub seconds: f64,
    /// The share of every rate at the start and at the end of the phase; [1, 1] when absent.
    #[serde(default = "full_load")]
    pub load: [f64; 2],
    /// Whether latencies of what is due in this phase are left out.
    #[serde(default)]
    pub warm_up: bool,
}

fn full_load() -> [f64; 2] {
    [1.0, 1.0]
}

/// A table of clients: the keys that all of them have, and its own.
macro_rules! population {
    ($(#[$doc:meta])* $population:ident { $($own:tt)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $population {
            /// Sets these clients' latencies apart in the result.
            pub name: Option<String>,
            /// The wire format of these clients, instead of the run's.
            #[serde(default, deserialize_with = "parsed")]
            pub format: Option<Format>,
            /// Their compression, instead of the run's.
            #[serde(default, deserialize_with = "parsed")]
            pub compression: Option<Compression>,
            /// The link of these clients' users, instead of the run's.
            #[serde(default, deserialize_with = "parsed")]
            pub link: Option<Access>,
            $($own)*
        }

        impl $population {
            /// What all tables have, with so many connections that stay for the run.
            fn population(&self, table: &'static str, connections: usize) -> Population<'_> {
                Population {
                    table,
                    name: self.name.as_deref(),
                    format: self.format,
                    compression: self.compression,
                    link: self.link.as_ref(),
                    connections,
                    arrival: None,
                    phases: None,
                }
            }
        }
    };
}

/// What all tables of clients have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Population<'s> {
    /// The table's name in the file.
    pub(crate) table: &'static str,
    pub(crate) name: Option<&'s str>,
    pub(crate) format: Option<Format>,
    pub(crate) compression: Option<Compression>,
    pub(crate) link: Option<&'s Access>,
    pub(crate) connections: usize,
    /// When its clients are due; subscribers stay for the run.
    pub(crate) arrival: Option<Arrival>,
    pub(crate) phases: Option<&'s [String]>,
}

impl<'s> Population<'s> {
    fn due(self, arrival: Arrival, phases: &'s Option<Vec<String>>) -> Population<'s> {
        Population { arrival: Some(arrival), phases: phases.as_deref(), ..self }
    }
}

/// Clients, arrival and phases.
type Arriving<'a> = (&'a mut usize, &'a mut Arrival, &'a mut Option<Vec<String>>);

population! {
    /// Clients that request stored events: each arrival is a session that runs through all steps.
    Request {
        /// How many clients.
        pub connections: usize,
        /// When sessions start.
        pub arrival: Arrival,
        /// The phases in which they do; all when absent.
        pub phases: Option<Vec<String>>,
        /// Which connection a session uses.
        #[serde(default)]
        pub connect: Connect,
        /// The steps of a session, one after the other.
        #[serde(default)]
        pub step: Vec<Step>,
        /// Live subscriptions that a session opens after its last step.
        #[serde(default)]
        pub live: Vec<LiveFilter>,
        /// How long it keeps them.
        pub stay_ms: Option<u64>,
        /// Light readers: they decode every n-th delivery and count the others; all are decoded
        /// when absent.
        pub decode_every: Option<u32>,
    }
}

/// The connection of a session: kept, or made anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Connect {
    /// Every client connects before the start and stays connected.
    #[default]
    Before,
    /// Every client connects before the start; each session ends that connection without a Close
    /// frame, as when a relay restarts, and makes a new one.
    Again,
    /// A client connects when its session starts and closes the connection when the session ends.
    PerSession,
}

/// One step of a session: requests sent together; the step ends with the EOSE of the last.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Kinds asked for; any when absent.
    pub kinds: Option<Vec<u16>>,
    /// Authors asked for, drawn anew for every session; anyone when absent.
    pub authors: Option<usize>,
    /// How many of the authors, or else of the values of the tag, have stored events; all when
    /// absent.
    pub known: Option<usize>,
    /// Authors, or else values of the tag, in one REQ; all in one when absent.
    pub chunk: Option<usize>,
    /// A tag condition.
    pub tag: Option<TagChoice>,
    /// The `limit` of the filter (NIP-01).
    pub limit: Option<u64>,
    /// Asks with a `since` that about this many of the newest matching events meet.
    pub newest: Option<usize>,
    /// Pages of `limit` events, each requested with `until` after the EOSE of the one before.
    pub pages: Option<usize>,
    /// How many such requests in one step, each drawn anew; 1 when absent.
    pub times: Option<usize>,
    /// Whether the requests are sent together with those of the step before.
    #[serde(default)]
    pub with_previous: bool,
}

/// A tag condition of a filter, `#e` or another.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TagChoice {
    /// A single letter.
    pub name: char,
    /// How many values.
    pub values: usize,
    /// Which values are drawn.
    #[serde(default)]
    pub draw: Draw,
}

/// How values are drawn from those that occur.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Draw {
    /// All with the same probability.
    #[default]
    Any,
    /// From the quarter of the values that occur most.
    Popular,
}

population! {
    /// Clients that publish.
    Publish {
        /// How many clients share the rate.
        pub connections: usize,
        /// When events are due.
        pub arrival: Arrival,
        /// The phases in which events are due; all when absent.
        pub phases: Option<Vec<String>>,
        /// Which kinds of the corpus; all when absent.
        pub kinds: Option<Vec<u16>>,
        /// The share of each kind, instead of the corpus's own mix.
        pub shares: Option<Shares>,
        /// Makes every event refer to one of a few notes.
        pub hot: Option<Hot>,
        /// With closed arrivals, how many events of a client may be unanswered.
        pub window: Option<usize>,
    }
}

/// How the users of a population reach the relay: over a link of their own each, or over none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// No emulated link: `none`.
    None,
    /// An emulated link, as behind `--link`.
    Link(Box<Link>),
}

impl FromStr for Access {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Access, LinkError> {
        match text {
            NO_LINK => Ok(Access::None),
            text => text.parse().map(|link| Access::Link(Box::new(link))),
        }
    }
}

/// A value that is written as its name.
fn parsed<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    String::deserialize(deserializer)?.parse().map(Some).map_err(de::Error::custom)
}

/// Shares by kind; TOML's keys are text.
#[derive(Debug, Clone, PartialEq)]
pub struct Shares(pub BTreeMap<u16, f64>);

impl<'de> Deserialize<'de> for Shares {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let named = BTreeMap::<String, f64>::deserialize(deserializer)?;
        let parsed = named.into_iter().map(|(kind, share)| {
            let number = u16::from_str(&kind)
                .map_err(|_| de::Error::custom(format!("{kind:?} is not a kind; expected 0 to 65535")))?;
            Ok((number, share))
        });
        Ok(Shares(parsed.collect::<Result<_, _>>()?))
    }
}

/// A few notes to which every event refers: the last tag of this name gets the id of one of them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hot {
    /// The tag, `e` as a rule.
    pub tag: char,
    /// How many notes; the nth is drawn n times less often than the first.
    pub values: usize,
}

population! {
    /// Clients that keep live subscriptions.
    Subscribe {
        /// How many clients.
        pub connections: usize,
        /// The filters, each a subscription of its own.
        pub filter: Vec<LiveFilter>,
        /// How fast they read until all other work is done; 0 reads nothing. At full speed when
        /// absent.
        pub read_bytes_per_s: Option<u64>,
        /// Light readers, as in [`Request::decode_every`].
        pub decode_every: Option<u32>,
    }
}

population! {
    /// Clients that read the same events from several relays, each a connection of its own to the
    /// relay under test. Each arrival is a session of a client on all its connections.
    FanIn {
        /// How many clients.
        pub clients: usize,
        /// Connections of each client.
        pub relays: usize,
        /// When sessions start.
        pub arrival: Arrival,
        /// The phases in which they do; all when absent.
        pub phases: Option<Vec<String>>,
        /// Kinds of the events; any when absent.
        pub kinds: Option<Vec<u16>>,
        /// How many different events a session brings.
        pub events: usize,
        /// The share of deliveries that bring an event again.
        pub duplicates: f64,
        /// Ids in one REQ.
        #[serde(default = "fan_in_chunk")]
        pub chunk: usize,
        /// How a client recognises an event that it has.
        #[serde(default)]
        pub on_duplicate: OnDuplicate,
    }
}

fn fan_in_chunk() -> usize {
    100
}

/// How a client recognises an event that it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDuplicate {
    /// By the id in the message, without decoding the rest.
    #[default]
    Peek,
    /// After decoding the event.
    Decode,
}

population! {
    /// Clients that have a part of the relay's events, reconcile (NIP-77) and fetch the rest.
    Reconcile {
        /// How many clients.
        pub connections: usize,
        /// When reconciliations start; each client has another part.
        pub arrival: Arrival,
        /// The phases in which they do; all when absent.
        pub phases: Option<Vec<String>>,
        /// Kinds of the events; any when absent.
        pub kinds: Option<Vec<u16>>,
        /// The share of the relay's events that a client has, drawn event by event.
        pub have: f64,
        /// How many events only the client has. It publishes them after the reconciliation.
        #[serde(default)]
        pub extra: usize,
        /// The most bytes of a negentropy message, in both directions.
        pub frame_bytes: usize,
        /// Ids in one REQ for what the client lacks.
        #[serde(default = "reconcile_chunk")]
        pub chunk: usize,
    }
}

fn reconcile_chunk() -> usize {
    500
}

/// A live subscription.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveFilter {
    /// Kinds subscribed to; any when absent.
    pub kinds: Option<Vec<u16>>,
    /// How many of the publishing authors, drawn anew for each connection; any author when absent.
    pub authors: Option<usize>,
    /// A tag condition, over the values that are published.
    pub tag: Option<TagChoice>,
}

/// When sessions or events are due. The whole schedule is computed from the seed before the run.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(tag = "shape", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Arrival {
    /// All connections at the same instant, periodically.
    Burst {
        /// Milliseconds from one burst to the next.
        period_ms: u64,
    },
    /// Evenly spaced over all connections together.
    Constant {
        /// Arrivals per second over all connections together.
        rate_per_s: f64,
    },
    /// Independent arrivals: exponential gaps.
    Poisson {
        /// Mean arrivals per second over all connections together.
        rate_per_s: f64,
    },
    /// Each connection once, at a random instant after the start of each phase.
    Spread {
        /// The length of that window in milliseconds.
        over_ms: u64,
    },
    /// Closed loop: each connection starts with its first phase, and goes on when it is answered.
    Closed {
        /// How many sessions, or events, of each connection.
        rounds: usize,
        /// Milliseconds that a client pauses before its next session.
        #[serde(default)]
        think_ms: u64,
    },
}

impl Arrival {
    /// About how many sessions or events start within `spans`, of all connections together.
    pub(crate) fn expected(self, connections: usize, spans: &[Span]) -> f64 {
        let length_s = |span: &Span| (span.to - span.from).as_secs_f64();
        let connections = connections as f64;
        match self {
            Arrival::Burst { period_ms } => {
                let bursts = |span: &Span| (length_s(span) * 1e3 / (period_ms.max(1) as f64)).ceil();
                connections * spans.iter().map(bursts).sum::<f64>()
            }
            Arrival::Constant { rate_per_s } | Arrival::Poisson { rate_per_s } => {
                let work_s = |span: &Span| length_s(span) * (span.load[0] + span.load[1]) / 2.0;
                rate_per_s * spans.iter().map(work_s).sum::<f64>()
            }
            Arrival::Spread { .. } => connections * spans.len() as f64,
            Arrival::Closed { rounds, .. } => connections * rounds as f64,
        }
    }
}

/// The bounds of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// The least value allowed.
    pub min: Option<f64>,
    /// The greatest value allowed.
    pub max: Option<f64>,
}

/// A span of time in which a population is at work, and the share of its rate at both ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// From the start of the run.
    pub from: Duration,
    /// From the start of the run.
    pub to: Duration,
    /// At `from` and at `to`.
    pub load: [f64; 2],
}

impl LiveFilter {
    /// Whether it takes the same part of all that is published, whoever publishes it.
    pub(crate) fn takes_from_anyone(&self) -> bool {
        self.authors.is_none() && self.tag.is_none()
    }
}

impl Scenario {
    /// The spans of these phases; of all phases when `None`.
    pub fn spans(&self, phases: Option<&[String]>) -> Vec<Span> {
        if self.phase.is_empty() {
            return vec![Span { from: Duration::ZERO, to: seconds(self.seconds), load: full_load() }];
        }
        let mut from = Duration::ZERO;
        let mut spans = Vec::new();
        for phase in &self.phase {
            let to = from + seconds(phase.seconds);
            if phases.is_none_or(|names| names.contains(&phase.name)) {
                spans.push(Span { from, to, load: phase.load });
            }
            from = to;
        }
        spans
    }

    /// The spans whose latencies are left out.
    pub fn warm_up(&self) -> Vec<(Duration, Duration)> {
        let names: Vec<_> = self.phase.iter().filter(|p| p.warm_up).map(|p| p.name.clone()).collect();
        if names.is_empty() {
            return Vec::new();
        }
        self.spans(Some(&names)).into_iter().map(|span| (span.from, span.to)).collect()
    }

    /// Clients, arrival and phases of each table that has them.
    pub(super) fn arriving(&mut self) -> impl Iterator<Item = Arriving<'_>> {
        let publish =
            self.publish.iter_mut().map(|one| (&mut one.connections, &mut one.arrival, &mut one.phases));
        let request =
            self.request.iter_mut().map(|one| (&mut one.connections, &mut one.arrival, &mut one.phases));
        let fan_in = self.fan_in.iter_mut().map(|one| (&mut one.clients, &mut one.arrival, &mut one.phases));
        let reconcile =
            self.reconcile.iter_mut().map(|one| (&mut one.connections, &mut one.arrival, &mut one.phases));
        publish.chain(request).chain(fan_in).chain(reconcile)
    }

    /// Every table of clients, in the order of a plan's connections.
    pub(crate) fn populations(&self) -> impl Iterator<Item = Population<'_>> {
        let publish = self.publish.iter();
        let publish =
            publish.map(|one| one.population("publish", one.connections).due(one.arrival, &one.phases));
        let reconcile = self.reconcile.iter();
        let reconcile =
            reconcile.map(|one| one.population("reconcile", one.connections).due(one.arrival, &one.phases));
        let subscribe = self.subscribe.iter().map(|one| one.population("subscribe", one.connections));
        let request = self.request.iter();
        let request =
            request.map(|one| one.population("request", one.connections).due(one.arrival, &one.phases));
        let fan_in = self.fan_in.iter().map(|one| {
            one.population("fan_in", one.clients.saturating_mul(one.relays)).due(one.arrival, &one.phases)
        });
        publish.chain(reconcile).chain(subscribe).chain(request).chain(fan_in)
    }

    /// The formats that populations speak instead of the run's.
    pub fn formats(&self) -> impl Iterator<Item = Format> {
        self.populations().filter_map(|population| population.format)
    }

    /// The compressions that populations speak instead of the run's.
    pub fn compressions(&self) -> impl Iterator<Item = Compression> {
        self.populations().filter_map(|population| population.compression)
    }

    /// Whether users of a population have links of their own.
    pub fn has_links(&self) -> bool {
        self.populations().any(|population| matches!(population.link, Some(Access::Link(_))))
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}
