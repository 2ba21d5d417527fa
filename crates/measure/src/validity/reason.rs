//! Reasons not to believe the numbers of a run: a table of problems with their cause and the numbers that
//! they spoil, and the one renderer of their sentences.

use std::fmt;

use derive_more::Display;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::PinnedCores;

/// Achieved ÷ offered rate. A generator that falls behind its plan measures itself. 1 % covers the last,
/// partly answered second of a ten-second block. With 3 % the load is no longer the requested one.
pub(crate) const RATE_SUSPECT_BELOW: f64 = 0.99;
pub(crate) const RATE_INVALID_BELOW: f64 = 0.97;

/// p99 of send lag. The first is above one wait for a slice of another task (3 to 4 ms). Beyond the
/// second the schedule is no longer the planned one.
pub(crate) const LAG_SUSPECT_ABOVE_NS: u64 = 10_000_000;
pub(crate) const LAG_INVALID_ABOVE_NS: u64 = 50_000_000;

/// Generator CPU ÷ its cores. Queueing delay grows without bound near 1: at 0.8 it is already four
/// service times. Decoding is part of it and differs between cells, so no block is left out for it.
pub(crate) const CPU_SUSPECT_ABOVE: f64 = 0.80;

/// Time runnable without running ÷ elapsed time of its cores: the host gave them to others.
pub(crate) const WAIT_SUSPECT_ABOVE: f64 = 0.05;
pub(crate) const WAIT_INVALID_ABOVE: f64 = 0.20;

/// The relay's CPU time ÷ envelopes. Writing one takes a few hundred nanoseconds, a system call or
/// its part of one and the copy of its bytes: with less the clock is that of another process.
pub(crate) const RELAY_SUSPECT_BELOW_NS: f64 = 100.0;
pub(crate) const RELAY_INVALID_BELOW_NS: f64 = 10.0;

/// Deliveries that light readers decode. A relay that spoils 3 % of all goes unseen by 100 in one
/// run of twenty.
pub(crate) const DECODED_SUSPECT_BELOW: u64 = 100;

/// Deliveries that differ from those of a recording, as a share of these. A few are events that were
/// on their way when a subscription opened or closed; beyond that it is another load.
pub(crate) const DIVERGED_SUSPECT_ABOVE: f64 = 0.001;
pub(crate) const DIVERGED_INVALID_ABOVE: f64 = 0.01;

/// Share of publications without an OK, and of requests without an EOSE: NIP-01 promises both. A few
/// may be late; beyond that the run did not measure its plan.
pub(crate) const UNANSWERED_INVALID_ABOVE: f64 = 0.01;

/// Share of the last ten seconds, in percent, in which some task of the host waited for a CPU.
pub(crate) const PRESSURE_SUSPECT_ABOVE: f64 = 20.0;
pub(crate) const PRESSURE_INVALID_ABOVE: f64 = 60.0;

/// Share of its cores' time, while work is outstanding, from which a process counts as full.
pub const FULL_FROM: f64 = 0.90;

/// Share of its CPUs' time that the hypervisor gave to other guests: as for waits of the generator.
pub(crate) const STEAL_SUSPECT_ABOVE: f64 = 0.05;
pub(crate) const STEAL_INVALID_ABOVE: f64 = 0.20;

/// One rule that fired.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// The agent whose run it is, where several played together.
    pub agent: Option<u16>,
    /// What it is about.
    pub subject: Subject,
    /// What follows from it.
    pub class: ValidityClass,
    /// What is wrong, with its numbers.
    #[serde(flatten)]
    pub kind: ReasonKind,
}

/// What follows from reasons, best first.
#[derive(
    Debug, Display, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[display(rename_all = "snake_case")]
pub enum ValidityClass {
    /// No rule fired.
    #[default]
    Valid,
    /// Usable with the reasons beside it.
    Suspect,
    /// Stays in the file, leaves the tables.
    Invalid,
}

/// What a [`Reason`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The run as a whole, and its ledger.
    Run,
    /// The process of the clients, which generates the load.
    Clients,
    /// The relay's process.
    Relay,
    /// The emulation of access links.
    Link,
    /// The machine of the clients, which had other things to do.
    Host,
    /// The machine of the relay, where that is another one.
    RelayHost,
}

/// The process that had no time to spare.
#[derive(Debug, Display, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Full {
    /// The relay; with full clients, too, where clients were not asked for.
    #[display("the relay was full first")]
    Relay,
    /// The clients.
    #[display("the clients were full first")]
    Clients,
    /// Neither, so that something else is the limit, or nothing is.
    #[display("neither relay nor clients were full")]
    Neither,
    /// Not the clients; the relay's CPU time is not known.
    #[display("the relay's CPU time is not known")]
    Unknown,
}

/// Which numbers a reason spoils.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoils {
    /// Every number.
    All,
    /// Latencies and CPU times: events and bytes are counted the same on any host.
    Times,
}

impl Reason {
    /// A suspicion about another subject than its kind's own.
    pub fn about(subject: Subject, kind: ReasonKind) -> Reason {
        Reason { agent: None, subject, class: ValidityClass::Suspect, kind }
    }

    /// Whether it is that the machine, or the relay's, had other things to do.
    pub fn blames_host(&self) -> bool {
        matches!(self.subject, Subject::Host | Subject::RelayHost)
    }
}

impl From<ReasonKind> for Reason {
    fn from(kind: ReasonKind) -> Reason {
        Reason::about(kind.about().0, kind)
    }
}

/// How the sentence about a busy machine begins.
const HOST_BUSY: &str = "host busy: ";

/// Rows: numbers, subject, what is spoilt, and the sentence, in which `whose` is the subject.
macro_rules! reasons {
    (|$whose:ident| $(
        $name:ident { $($number:ident: $type:ty),* } of $subject:ident spoils $spoils:ident:
        $sentence:literal $(, $key:ident = $value:expr)*;
    )*) => {
        /// What is wrong, with its numbers.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "kind", content = "numbers", rename_all = "snake_case")]
        #[allow(missing_docs, reason = "the sentence names each number")]
        pub enum ReasonKind {
            $(#[doc = $sentence] $name { $($number: $type),* },)*
        }

        impl ReasonKind {
            /// What it is about, and which numbers it spoils.
            pub(crate) fn about(&self) -> (Subject, Spoils) {
                match self {
                    $(ReasonKind::$name { .. } => (Subject::$subject, Spoils::$spoils),)*
                }
            }
        }

        impl fmt::Display for Reason {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if let Some(index) = self.agent {
                    write!(f, "agent {index}: ")?;
                }
                let $whose = match self.subject {
                    Subject::Run => "the run",
                    Subject::Clients => "the clients",
                    Subject::Relay => "the relay",
                    Subject::Link => "the link",
                    Subject::Host => "the host",
                    Subject::RelayHost => "the relay's host",
                };
                if self.subject == Subject::RelayHost {
                    write!(f, "{}: ", $whose)?;
                }
                if self.blames_host() {
                    f.write_str(HOST_BUSY)?;
                }
                match &self.kind {
                    $(ReasonKind::$name { $($number),* } => {
                        $(let $number = $number.to_owned();)*
                        write!(f, $sentence $(, $key = $value)*)
                    })*
                }
            }
        }
    };
}

reasons! { |whose|
    // What the ledger and the scenario take away.
    NothingPlanned {} of Run spoils All: "nothing was planned, so nothing was measured";
    Unbalanced { why: String } of Run spoils All: "the ledger does not balance: {why}";
    FewDecoded { decoded: u64, deliveries: u64 } of Run spoils All:
        "light readers decoded {decoded} of {deliveries} deliveries (suspect below {DECODED_SUSPECT_BELOW}): lower \
         decode_every";
    Unacknowledged { open: u64, planned: u64 } of Relay spoils All:
        "{open} of {planned} planned events got no OK (suspect above 0, invalid above {percent:.0} %)",
        percent = UNANSWERED_INVALID_ABOVE * 100.0;
    Unanswered { open: u64, requests: u64 } of Relay spoils All:
        "{open} of {requests} requests were closed by the relay or got no EOSE (suspect above 0, invalid above \
         {percent:.0} %)",
        percent = UNANSWERED_INVALID_ABOVE * 100.0;
    Diverged { diverged: u64, recorded: u64 } of Relay spoils All:
        "{diverged} deliveries differ from the {recorded} of the recording (suspect above {suspect} %, invalid above \
         {invalid} %): does the relay refuse, hold or withhold other events?",
        suspect = DIVERGED_SUSPECT_ABOVE * 100.0,
        invalid = DIVERGED_INVALID_ABOVE * 100.0;
    QueueFull { dropped: u64, planned: u64 } of Clients spoils All:
        "the generator dropped {dropped} of {planned} planned events: its queue was full";
    SessionsNotBegun { sessions: u64 } of Clients spoils All:
        "the generator did not begin {sessions} sessions: its queue was full, or this machine had no port or \
         descriptor for their connection";
    NotConnected { sessions: u64 } of Run spoils All:
        "{sessions} sessions were not connected when the run ended: the relay, its host, the network or busy clients \
         took too long";
    NotSent { not_sent: u64, planned: u64 } of Run spoils All:
        "{not_sent} of {planned} planned events were not sent: the run, their connection or their reconciliation \
         ended before";
    SubscriptionsClosed { subscriptions: u64 } of Relay spoils All:
        "the relay ended {subscriptions} live subscriptions (CLOSED), which got nothing more";
    RefusedAmongAgents { rejected: u64 } of Relay spoils All:
        "the relay refused {rejected} events; whether other agents got them cannot be judged";
    BelowExpected { figure: String, value: f64, min: f64 } of Run spoils All:
        "{figure} is {value:.1}, expected at least {min}";
    AboveExpected { figure: String, value: f64, max: f64 } of Run spoils All:
        "{figure} is {value:.1}, expected at most {max}";
    TooFew { figure: String } of Run spoils All:
        "{figure} is expected, but there are too few values to tell";
    Faulty { faults: String } of Relay spoils All: "the relay misbehaved because it was told to: {faults}";
    AllocationsCounted {} of Run spoils All:
        "allocations were counted, which slows both ends: latencies and CPU times are no evidence";
    ClientEnded { why: String } of Clients spoils All: "{why}";
    PacketsMissing { why: String } of Link spoils All: "the link's packets do not add up: {why}";

    // What the clients take away.
    Clipped { samples: u64 } of Run spoils Times: "{samples} samples exceeded the histogram's 60 s";
    SlowRate { offered: f64, sent: f64 } of Clients spoils Times:
        "sent {sent:.1} of {offered:.1} planned events/s ({ratio:.3}; suspect below {RATE_SUSPECT_BELOW}, invalid \
         below {RATE_INVALID_BELOW})",
        ratio = sent / offered;
    SendLag { ns_p99: u64, burst_ns: u64, sends: u64 } of Clients spoils Times:
        "send lag p99 {lag:.3} ms (suspect above {suspect:.0} ms, invalid above {invalid:.0} ms, {burst:.0} ms of \
         each for {sends} sends due at one instant)",
        lag = ms(ns_p99),
        suspect = ms(LAG_SUSPECT_ABOVE_NS.saturating_add(burst_ns)),
        invalid = ms(LAG_INVALID_ABOVE_NS.saturating_add(burst_ns)),
        burst = ms(burst_ns);
    CpuFull { used_ns: u64, active_ns: u64, cores: u64 } of Clients spoils Times:
        "the generator used {share:.0} % of its {cores} core(s) while work was outstanding (suspect above {most:.0} %)",
        share = percent(used_ns, active_ns, cores as f64),
        most = CPU_SUSPECT_ABOVE * 100.0;
    QuotaThrottled { quota_cores: f64, periods: u64, throttled_ns: u64, elapsed_ns: u64 } of Run spoils Times:
        "{whose} has a CPU quota of {quota_cores:.2} cores and was throttled {periods} times, for {throttled:.1} ms in \
         {elapsed:.1} ms (suspect above 0)",
        throttled = ms(throttled_ns),
        elapsed = ms(elapsed_ns);
    QuotaUsed { quota_cores: f64, used_ns: u64, elapsed_ns: u64 } of Run spoils Times:
        "{whose} has a CPU quota of {quota_cores:.2} cores and used {share:.0} % of it (suspect above {most:.0} %)",
        share = percent(used_ns, elapsed_ns, quota_cores),
        most = CPU_SUSPECT_ABOVE * 100.0;
    PageHidden {} of Clients spoils Times: "the page was hidden, and browsers slow down hidden pages";
    CoarseClock { took_ns: u64, clock_ns: u64 } of Clients spoils Times:
        "a step of {took:.1} ms by a clock that moves every {clock:.3} ms",
        took = ms(took_ns),
        clock = ms(clock_ns);
    Logs { level: String } of Run spoils Times:
        "the log level of {whose} is {level}, which takes CPU time (suspect above info): set RUST_LOG=info or leave \
         it out";
    EventsUsedUp { after_ns: u64, of_ns: u64 } of Clients spoils Times:
        "the events to publish lasted {after:.2} of {of:.2} s: raise --rate, by which as many are prepared",
        after = ms(after_ns) / 1e3,
        of = ms(of_ns) / 1e3;
    NotFull { asked: String, full: Full, relay: Option<f64>, clients: f64 } of Run spoils Times:
        "no throughput of the {asked}: {full} (relay {relay}, clients {clients:.0} % of their cores while work was \
         outstanding; full from {from:.0} %)",
        relay = relay.map_or_else(|| "unknown".to_owned(), |share| format!("{:.0} %", share * 100.0)),
        clients = clients * 100.0,
        from = FULL_FROM * 100.0;

    // What the relay's process takes away.
    CheapRelay { cpu_ns: u64, envelopes: u64 } of Relay spoils Times:
        "the relay's CPU time is {each:.0} ns an envelope (suspect below {RELAY_SUSPECT_BELOW_NS:.0}, invalid below \
         {RELAY_INVALID_BELOW_NS:.0}): is --relay-pid the relay?",
        each = cpu_ns as f64 / envelopes as f64;
    RelayUnproven { doubt: String } of Relay spoils Times: "{doubt}";
    RelayCpuIncomplete {} of Relay spoils Times:
        "the relay's CPU time lacks that of processes which ended, and which nobody waited for";

    // What the emulation takes away.
    LinkLate { ns_p99: u64, may_be_ns: u64 } of Link spoils Times:
        "the emulator of links was late: p99 {late:.3} ms (invalid above {most:.1} ms)",
        late = ms(ns_p99),
        most = ms(may_be_ns);
    PacketsDropped { packets: u64 } of Link spoils Times:
        "the kernel dropped {packets} packets that the link would have carried";
    TcpMetricsKept {} of Link spoils Times:
        "tcp_no_metrics_save is not set, so a connection begins with what an earlier one learnt";

    // What the machine takes away.
    WaitedForCore { wait_ns: u64, elapsed_ns: u64, cores: u64 } of Host spoils Times:
        "the generator waited {wait:.1} ms for a core in {elapsed:.1} ms, {share:.0} % of its {cores} core(s) \
         (suspect above {suspect:.0} %, invalid above {invalid:.0} %)",
        wait = ms(wait_ns),
        elapsed = ms(elapsed_ns),
        share = percent(wait_ns, elapsed_ns, cores as f64),
        suspect = WAIT_SUSPECT_ABOVE * 100.0,
        invalid = WAIT_INVALID_ABOVE * 100.0;
    CpuPressure { percent: f64 } of Host spoils Times:
        "CPU pressure (some, 10 s) {percent:.1} % (suspect above {PRESSURE_SUSPECT_ABOVE:.0} %, invalid above \
         {PRESSURE_INVALID_ABOVE:.0} %)";
    AcceptOverflow { overflows: u64 } of Run spoils Times:
        "an accept queue in the relay's network namespace overflowed: the kernel dropped {overflows} finished handshakes (ListenOverflows, suspect above \
         0), and their clients wait a second or more for the next try: raise the relay's listen backlog and \
         net.core.somaxconn, or let clients arrive more slowly";
    Stolen { share: f64 } of Host spoils Times:
        "the hypervisor gave {percent:.0} % of the CPUs' time to other guests (steal, suspect above {suspect:.0} %, \
         invalid above {invalid:.0} %)",
        percent = share * 100.0,
        suspect = STEAL_SUSPECT_ABOVE * 100.0,
        invalid = STEAL_INVALID_ABOVE * 100.0;
    Siblings { relay_cpu: u32, clients_cpu: u32 } of Run spoils Times:
        "relay and clients share a core: CPU {relay_cpu} of the relay and CPU {clients_cpu} of the clients are sibling \
         threads of one core, so each slows the other";
    Repinned { before: PinnedCores, now: PinnedCores } of Run spoils Times:
        "the cores were changed during the run (cpuset or taskset): relay {relay:?} and clients {clients:?}, at the end \
         relay {relay_now:?} and clients {clients_now:?}",
        relay = before.relay,
        clients = before.clients,
        relay_now = now.relay,
        clients_now = now.clients;
    PressureUnknown {} of Run spoils Times:
        "this kernel reports no CPU pressure (/proc/pressure/cpu), so a busy host may go unnoticed: boot with psi=1, or \
         let the program read /proc/pressure";
    Said { sentence: String } of Run spoils Times: "{sentence}";
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn percent(used_ns: u64, elapsed_ns: u64, cores: f64) -> f64 {
    used_ns as f64 / (elapsed_ns as f64 * cores) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Validity;

    #[test]
    fn reasons_are_read_as_written() {
        let mut validity = Validity::default();
        let lag = ReasonKind::SendLag { ns_p99: 60_000_000, burst_ns: 0, sends: 1 };
        for reason in
            [lag.into(), Reason::about(Subject::Relay, ReasonKind::Logs { level: "trace".to_owned() })]
        {
            validity.add(ValidityClass::Suspect, Reason { agent: Some(2), ..reason });
        }
        validity.add(ValidityClass::Invalid, ReasonKind::NothingPlanned {});
        let json = serde_json::to_value(&validity).unwrap();
        assert_eq!(json["reasons"][0]["numbers"]["ns_p99"], 60_000_000);
        assert_eq!(serde_json::from_value::<Validity>(json).unwrap(), validity);
    }
}
