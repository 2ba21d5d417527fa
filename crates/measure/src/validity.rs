//! May the numbers of a run be believed? A pure function from signals to a class, every reason with
//! its numbers. No rule about the generator or the host refers to the cell's own latencies or costs
//! (docs/decisions/validity.md).

use std::{fmt, ops::Add};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Counts, CpuQuota, Quantile};

/// Achieved ÷ offered rate. A generator that falls behind its own plan measures itself; 1 % covers
/// the last partly answered second of a ten-second block, 3 % is no longer the load that was asked
/// for.
const RATE_SUSPECT_BELOW: f64 = 0.99;
const RATE_INVALID_BELOW: f64 = 0.97;

/// Fewest publications with a rate: with fewer, the instants of the first and the last decide it.
const FEWEST_PUBLICATIONS: u64 = 100;

/// p99 of send lag. One wait for a slice of another task (3 to 4 ms) is below the first; beyond the
/// second the schedule is no longer the one that was planned.
const LAG_SUSPECT_ABOVE_NS: u64 = 10_000_000;
const LAG_INVALID_ABOVE_NS: u64 = 50_000_000;

/// Delay by the plan itself: one core serves sends that are due at one instant in turn, each with
/// the answers that come meanwhile.
const BURST_NS_PER_SEND: u64 = 1_000_000;

/// Generator CPU ÷ its cores. Queueing delay grows without bound near 1: at 0.8 it is already four
/// service times. Decoding is part of it and differs between cells, so no block is left out for it.
const CPU_SUSPECT_ABOVE: f64 = 0.80;

/// Time runnable without running ÷ elapsed time of its cores: the host gave them to others.
const WAIT_SUSPECT_ABOVE: f64 = 0.05;
const WAIT_INVALID_ABOVE: f64 = 0.20;

/// The relay's CPU time ÷ envelopes. Writing one takes a few hundred nanoseconds, a system call or
/// its part of one and the copy of its bytes: with less the clock is that of another process.
const RELAY_SUSPECT_BELOW_NS: f64 = 100.0;
const RELAY_INVALID_BELOW_NS: f64 = 10.0;

/// Deliveries that light readers decode. A relay that spoils 3 % of all goes unseen by 100 in one
/// run of twenty.
const DECODED_SUSPECT_BELOW: u64 = 100;

/// Share of publications without an OK, and of requests without an EOSE: NIP-01 promises both. A few
/// may be late; beyond that the run did not measure its plan.
const UNANSWERED_INVALID_ABOVE: f64 = 0.01;

/// Share of the last ten seconds, in percent, in which some task of the host waited for a CPU.
const PRESSURE_SUSPECT_ABOVE: f64 = 20.0;
const PRESSURE_INVALID_ABOVE: f64 = 60.0;

/// How a reason begins that blames the machine, not one of the programs.
pub const HOST_BUSY: &str = "host busy: ";

/// How a reason begins that is of one agent; its number follows, and a colon.
const AGENT: &str = "agent ";

/// How a reason begins that is of the relay's host.
const RELAY: &str = "the relay's host: ";

/// Whether a run's numbers may be used, and why not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Validity {
    /// The worst of the reasons: what latencies and CPU times need.
    pub class: ValidityClass,
    /// The worst of those about the ledger: what counts of events, bytes and allocations need.
    pub counts: ValidityClass,
    /// One sentence with numbers for each rule that fired; empty when valid.
    pub reasons: Vec<String>,
}

/// The classes of [`Validity`], best first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ValidityClass {
    /// No rule fired.
    #[default]
    Valid,
    /// Usable with the reasons beside it.
    Suspect,
    /// Stays in the file, leaves the tables.
    Invalid,
}

impl fmt::Display for ValidityClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ValidityClass::Valid => "valid",
            ValidityClass::Suspect => "suspect",
            ValidityClass::Invalid => "invalid",
        })
    }
}

impl Validity {
    /// Adds a reason that concerns every number.
    pub fn add(&mut self, class: ValidityClass, reason: String) {
        self.counts = self.counts.max(class);
        self.add_timing(class, reason);
    }

    /// Adds a reason that concerns latencies and CPU times, such as a busy host; events and bytes
    /// are counted the same on any host.
    pub fn add_timing(&mut self, class: ValidityClass, reason: String) {
        self.class = self.class.max(class);
        self.reasons.push(reason);
    }

    /// Whether one of the reasons is that the machine, or an agent's, had other things to do.
    pub fn blames_host(&self) -> bool {
        let of_agent = |reason: &str| Some(reason.strip_prefix(AGENT)?.split_once(": ")?.1.to_owned());
        let of_relay = |reason: &str| reason.strip_prefix(RELAY).map(str::to_owned);
        let own = |reason: &String| of_agent(reason).or_else(|| of_relay(reason));
        self.reasons.iter().any(|reason| own(reason).as_ref().unwrap_or(reason).starts_with(HOST_BUSY))
    }

    /// Judges the relay's host by its [`crate::cpu_pressure_percent`] at the end of the block.
    pub(crate) fn judge_relay(&mut self, cpu_pressure_percent: Option<f64>) {
        let mut host = Validity::default();
        judge_pressure(cpu_pressure_percent, &mut host);
        host.reasons.into_iter().for_each(|reason| self.add_timing(host.class, format!("{RELAY}{reason}")));
    }

    /// Judges a block of `elapsed_ns` by the CPU quota of who used so much CPU time. What exhausts
    /// a quota is the cell's own cost, so no block is left out for it.
    pub(crate) fn judge_quota(&mut self, quota: CpuQuota, whose: &str, used_ns: u64, elapsed_ns: u64) {
        let CpuQuota { cores, throttled_periods, throttled_ns } = quota;
        let limited = format!("{whose} has a CPU quota of {cores:.2} cores");
        if throttled_ns > 0 || throttled_periods > 0 {
            let reason = format!(
                "{limited} and was throttled {throttled_periods} times, for {:.1} ms in {:.1} ms (suspect above 0)",
                throttled_ns as f64 / 1e6,
                elapsed_ns as f64 / 1e6
            );
            self.add_timing(ValidityClass::Suspect, reason);
        }
        let share = used_ns as f64 / (cores * elapsed_ns as f64);
        let reason = format!(
            "{limited} and used {:.0} % of it (suspect above {:.0} %)",
            share * 100.0,
            CPU_SUSPECT_ABOVE * 100.0
        );
        judge(self, share, CPU_SUSPECT_ABOVE, f64::INFINITY, reason);
    }

    /// Judges how much light readers compared: of what they counted unread only the number is
    /// known.
    pub(crate) fn judge_light(&mut self, counts: &Counts) {
        let decoded = counts.deliveries.saturating_sub(counts.deliveries_unread);
        if counts.deliveries_unread > 0 && decoded < DECODED_SUSPECT_BELOW {
            let reason = format!(
                "light readers decoded {decoded} of {} deliveries (suspect below {DECODED_SUSPECT_BELOW}): lower \
                 decode_every",
                counts.deliveries
            );
            self.add(ValidityClass::Suspect, reason);
        }
    }

    /// Judges what the relay left unanswered.
    pub(crate) fn judge_unanswered(&mut self, counts: &Counts) {
        for (open, of, what) in [
            (counts.timed_out, counts.planned, "planned events got no OK"),
            (counts.requests_failed, counts.requests, "requests were closed by the relay or got no EOSE"),
        ] {
            let is_invalid = open as f64 > of as f64 * UNANSWERED_INVALID_ABOVE;
            let class = if is_invalid { ValidityClass::Invalid } else { ValidityClass::Suspect };
            if open > 0 {
                let percent = UNANSWERED_INVALID_ABOVE * 100.0;
                self.add(
                    class,
                    format!("{open} of {of} {what} (suspect above 0, invalid above {percent:.0} %)"),
                );
            }
        }
    }

    /// Judges what a process logs. Lines for each message are CPU time that nobody asked for, by
    /// far the most of it at `trace`; `info` is a line for each start and end.
    pub fn judge_log(&mut self, whose: &str, level: Option<&str>) {
        if let Some(level) = level.filter(|level| ["debug", "trace"].contains(level)) {
            let reason = format!(
                "the log level of {whose} is {level}, which takes CPU time (suspect above info): set RUST_LOG=info or \
                 leave it out"
            );
            self.add_timing(ValidityClass::Suspect, reason);
        }
    }

    /// A reason as a record of several agents names it.
    pub(crate) fn of_agent(index: u16, reason: &str) -> String {
        format!("{AGENT}{index}: {reason}")
    }
}

/// Signals of how one run went.
#[derive(Debug, Clone, PartialEq)]
pub struct Signals {
    /// The ledger.
    pub counts: Counts,
    /// Whether other processes play the rest of the plan: one may have nothing to do.
    pub is_share: bool,
    /// Whether the user ended the run, so that what was on its way did not arrive.
    pub interrupted: bool,
    /// Samples beyond the histograms' range, summed over all of them.
    pub clipped: u64,
    /// Events a second by plan, and as sent; `None` in closed-loop scenarios, which plan no rate.
    pub rate_per_second: Option<Rate>,
    /// p99 of sent − intended.
    pub send_lag_ns_p99: Quantile,
    /// The most sends that the plan has due at one instant.
    pub burst_sends: u64,
    /// CPU time of this process in the block.
    pub generator_cpu_ns: u64,
    /// How long its threads were runnable without running, where the kernel tells.
    pub generator_wait_ns: Option<u64>,
    /// Cores this process may use: those it is pinned to, or its worker threads, whichever is
    /// fewer.
    pub generator_cores: u64,
    /// CPU time of the relay's processes in the block, where their clocks are known.
    pub relay_cpu_ns: Option<u64>,
    /// How long the block took.
    pub elapsed_ns: u64,
    /// How long work was outstanding in it.
    pub active_ns: u64,
    /// Whether loops were to bring one of the processes to its limit: [`crate::Saturated`] says then
    /// what was full.
    pub saturates: bool,
    /// [`crate::cpu_pressure_percent`] at the end of the block.
    pub cpu_pressure_percent: Option<f64>,
    /// The CPU quota of this process and of a relay of our own, with what it took in the block.
    pub quota: Option<CpuQuota>,
    /// CPU time of these two in the block.
    pub quota_cpu_ns: u64,
    /// The quota of a relay that is not our own.
    pub relay_quota: Option<CpuQuota>,
}

/// Events a second, planned and sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// By plan.
    pub offered: f64,
    /// As it came out.
    pub sent: f64,
}

impl Rate {
    /// Judges whether the plan's rate was kept.
    pub(crate) fn judge(self, validity: &mut Validity) {
        let Rate { offered, sent } = self;
        let ratio = if offered > 0.0 { sent / offered } else { 1.0 };
        let reason = format!(
            "sent {sent:.1} of {offered:.1} planned events/s ({ratio:.3}; suspect below \
             {RATE_SUSPECT_BELOW}, invalid below {RATE_INVALID_BELOW})"
        );
        // Negated, because here low is bad.
        judge(validity, -ratio, -RATE_SUSPECT_BELOW, -RATE_INVALID_BELOW, reason);
    }
}

/// Publications at planned instants, from which a [`Rate`] follows. Those of agents add up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pace {
    /// Publications by plan.
    pub planned: u64,
    /// Of those, given to their connections.
    pub sent: u64,
    /// From the instant at which the whole plan's first publication is due to that of its last.
    pub span_ns: u64,
    /// From the first of these instants to the last send.
    pub sent_span_ns: u64,
}

impl Pace {
    /// The planned and the sent rate; `None` for fewer than 100 publications, and for publications
    /// that are all due at one instant.
    pub fn rate(self) -> Option<Rate> {
        if self.planned < FEWEST_PUBLICATIONS || self.span_ns == 0 {
            return None;
        }
        let per_s = |events: u64, ns: u64| events as f64 * 1e9 / ns as f64;
        Some(Rate {
            offered: per_s(self.planned, self.span_ns),
            sent: per_s(self.sent, self.sent_span_ns.max(self.span_ns)),
        })
    }
}

impl Add for Pace {
    type Output = Pace;

    fn add(self, other: Pace) -> Pace {
        Pace {
            planned: self.planned + other.planned,
            sent: self.sent + other.sent,
            span_ns: self.span_ns.max(other.span_ns),
            sent_span_ns: self.sent_span_ns.max(other.sent_span_ns),
        }
    }
}

/// Sends that the plan has due at one instant, and the cores that serve them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Burst {
    pub(crate) sends: u64,
    pub(crate) cores: u64,
}

impl Burst {
    /// The time that the sends after the first take.
    pub(crate) fn takes_ns(self) -> u64 {
        (self.sends.saturating_sub(1) / self.cores.max(1)).saturating_mul(BURST_NS_PER_SEND)
    }

    /// Judges the p99 of send lag; too few samples have none.
    pub(crate) fn judge_lag(self, p99: Quantile, validity: &mut Validity) {
        let Some(lag) = p99.ns() else { return };
        let burst = self.takes_ns();
        let ms = |ns: u64| ns as f64 / 1e6;
        let beyond = |limit: u64| ms(limit.saturating_add(burst));
        let (suspect, invalid) = (beyond(LAG_SUSPECT_ABOVE_NS), beyond(LAG_INVALID_ABOVE_NS));
        let reason = format!(
            "send lag p99 {:.3} ms (suspect above {suspect:.0} ms, invalid above {invalid:.0} ms, {:.0} ms of \
             each for {} sends due at one instant)",
            ms(lag),
            ms(burst),
            self.sends,
        );
        judge(validity, ms(lag), suspect, invalid, reason);
    }
}

impl Signals {
    /// Applies every rule.
    pub fn judge(&self) -> Validity {
        let mut validity = Validity::default();
        self.judge_ledger(&mut validity);
        self.judge_generator(&mut validity);
        self.judge_relay(&mut validity);
        self.judge_host(&mut validity);
        if let Some(quota) = self.quota {
            validity.judge_quota(quota, "the run", self.quota_cpu_ns, self.elapsed_ns);
        }
        if let Some(quota) = self.relay_quota {
            validity.judge_quota(quota, "the relay", self.relay_cpu_ns.unwrap_or(0), self.elapsed_ns);
        }
        validity
    }

    fn judge_ledger(&self, validity: &mut Validity) {
        let counts = &self.counts;
        if !self.is_share && counts.planned + counts.requests + counts.deliveries_expected == 0 {
            validity.add(ValidityClass::Invalid, "nothing was planned, so nothing was measured".to_owned());
        }
        let balanced = if self.interrupted { counts.as_awaited().balanced() } else { counts.balanced() };
        if let Err(failure) = balanced {
            validity.add(ValidityClass::Invalid, format!("the ledger does not balance: {failure}"));
        }
        if !self.is_share {
            validity.judge_light(counts);
            // What the user did not wait for is no fault.
            if !self.interrupted {
                validity.judge_unanswered(counts);
            }
        }
        if counts.dropped_by_generator > 0 {
            let (dropped, planned) = (counts.dropped_by_generator, counts.planned);
            let reason =
                format!("the generator dropped {dropped} of {planned} planned events: its queue was full");
            validity.add(ValidityClass::Invalid, reason);
        }
        if counts.sessions_dropped_by_generator > 0 {
            let reason = format!(
                "the generator did not begin {} sessions: its queue was full, or this machine had no port or \
                 descriptor for their connection",
                counts.sessions_dropped_by_generator
            );
            validity.add(ValidityClass::Invalid, reason);
        }
        if counts.sessions_not_connected > 0 {
            let reason = format!(
                "{} sessions were not connected when the run ended: the relay or its host did not take their connection",
                counts.sessions_not_connected
            );
            validity.add(ValidityClass::Invalid, reason);
        }
        if counts.not_sent > 0 {
            let (not_sent, planned) = (counts.not_sent, counts.planned);
            let reason = format!(
                "{not_sent} of {planned} planned events were not sent: the run, their connection or their \
                 reconciliation ended before"
            );
            validity.add(ValidityClass::Invalid, reason);
        }
        if counts.subscriptions_closed > 0 {
            let reason = format!(
                "the relay ended {} live subscriptions (CLOSED), which got nothing more",
                counts.subscriptions_closed
            );
            validity.add(ValidityClass::Suspect, reason);
        }
        if self.clipped > 0 {
            let reason = format!("{} samples exceeded the histogram's 60 s", self.clipped);
            validity.add_timing(ValidityClass::Invalid, reason);
        }
    }

    fn judge_generator(&self, validity: &mut Validity) {
        if let Some(rate) = self.rate_per_second {
            rate.judge(validity);
        }
        let burst = Burst { sends: self.burst_sends, cores: self.generator_cores };
        burst.judge_lag(self.send_lag_ns_p99, validity);
        // Pauses between bursts leave a core that is full in each of them idle over the block.
        let capacity_ns = self.generator_cores as f64 * self.active_ns as f64;
        if capacity_ns > 0.0 && !self.saturates {
            let ratio = self.generator_cpu_ns as f64 / capacity_ns;
            let reason = format!(
                "the generator used {:.0} % of its {} core(s) while work was outstanding (suspect above {:.0} %)",
                ratio * 100.0,
                self.generator_cores,
                CPU_SUSPECT_ABOVE * 100.0
            );
            judge(validity, ratio, CPU_SUSPECT_ABOVE, f64::INFINITY, reason);
        }
    }

    /// Judges whether the relay's clock is that of what sent the envelopes.
    fn judge_relay(&self, validity: &mut Validity) {
        let envelopes = self.counts.envelopes();
        if let Some(cpu_ns) = self.relay_cpu_ns
            && envelopes > 0
        {
            let each = cpu_ns as f64 / envelopes as f64;
            let reason = format!(
                "the relay's CPU time is {each:.0} ns an envelope (suspect below {RELAY_SUSPECT_BELOW_NS:.0}, invalid \
                 below {RELAY_INVALID_BELOW_NS:.0}): is --relay-pid the relay?"
            );
            // Negated, because here low is bad.
            judge(validity, -each, -RELAY_SUSPECT_BELOW_NS, -RELAY_INVALID_BELOW_NS, reason);
        }
    }

    /// CPU time that the generator's cores could have given.
    fn capacity_ns(&self) -> f64 {
        self.generator_cores as f64 * self.elapsed_ns as f64
    }

    fn judge_host(&self, validity: &mut Validity) {
        let capacity_ns = self.capacity_ns();
        if let Some(wait_ns) = self.generator_wait_ns
            && capacity_ns > 0.0
        {
            // Its quota's time is its own cost, for which the host is not blamed.
            let wait_ns = wait_ns.saturating_sub(self.quota.map_or(0, |quota| quota.throttled_ns));
            let ratio = wait_ns as f64 / capacity_ns;
            let reason = format!(
                "{HOST_BUSY}the generator waited {:.1} ms for a core in {:.1} ms, {:.0} % of its {} core(s) {}",
                wait_ns as f64 / 1e6,
                self.elapsed_ns as f64 / 1e6,
                ratio * 100.0,
                self.generator_cores,
                limits(WAIT_SUSPECT_ABOVE, WAIT_INVALID_ABOVE)
            );
            judge(validity, ratio, WAIT_SUSPECT_ABOVE, WAIT_INVALID_ABOVE, reason);
        }
        judge_pressure(self.cpu_pressure_percent, validity);
    }
}

fn judge_pressure(percent: Option<f64>, validity: &mut Validity) {
    let Some(percent) = percent else { return };
    let reason = format!(
        "{HOST_BUSY}CPU pressure (some, 10 s) {percent:.1} % {}",
        limits(PRESSURE_SUSPECT_ABOVE / 100.0, PRESSURE_INVALID_ABOVE / 100.0)
    );
    judge(validity, percent, PRESSURE_SUSPECT_ABOVE, PRESSURE_INVALID_ABOVE, reason);
}

fn limits(suspect: f64, invalid: f64) -> String {
    format!("(suspect above {:.0} %, invalid above {:.0} %)", suspect * 100.0, invalid * 100.0)
}

fn judge(validity: &mut Validity, value: f64, suspect_above: f64, invalid_above: f64, reason: String) {
    if value > invalid_above {
        validity.add_timing(ValidityClass::Invalid, reason);
    } else if value > suspect_above {
        validity.add_timing(ValidityClass::Suspect, reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calm() -> Signals {
        Signals {
            counts: Counts {
                planned: 1_000,
                acked: 1_000,
                deliveries_expected: 5_000,
                deliveries: 5_000,
                ..Counts::default()
            },
            is_share: false,
            interrupted: false,
            clipped: 0,
            rate_per_second: Some(Rate { offered: 100.0, sent: 99.5 }),
            send_lag_ns_p99: Quantile::Exact(50_000),
            burst_sends: 1,
            generator_cpu_ns: 2_000_000_000,
            generator_wait_ns: Some(100_000_000),
            generator_cores: 1,
            relay_cpu_ns: Some(1_000_000_000),
            elapsed_ns: 10_000_000_000,
            active_ns: 10_000_000_000,
            saturates: false,
            cpu_pressure_percent: Some(10.0),
            quota: None,
            quota_cpu_ns: 3_000_000_000,
            relay_quota: None,
        }
    }

    fn quota(cores: f64, throttled_ms: u64) -> CpuQuota {
        CpuQuota { cores, throttled_periods: throttled_ms, throttled_ns: throttled_ms * 1_000_000 }
    }

    #[test]
    fn a_quota_that_is_used_up_or_nearly_is_suspect_and_never_invalid() {
        let judged = |quota, used_ns| {
            let mut validity = Validity::default();
            validity.judge_quota(quota, "the run", used_ns, 1_000_000_000);
            validity
        };
        assert_eq!(judged(quota(0.5, 0), 400_000_000), Validity::default());
        let used = judged(quota(0.5, 0), 500_000_000);
        assert_eq!((used.class, used.counts), (ValidityClass::Suspect, ValidityClass::Valid));
        assert_eq!(
            used.reasons,
            ["the run has a CPU quota of 0.50 cores and used 100 % of it (suspect above 80 %)"]
        );
        let found = judged(quota(0.5, 600), 0);
        assert_eq!(found.class, ValidityClass::Suspect);
        assert!(found.reasons[0].contains("throttled 600 times, for 600.0 ms in 1000.0 ms"), "{found:?}");
        assert_eq!(judged(quota(0.0, 0), 0), Validity::default(), "what an agent says of itself");
    }

    #[test]
    fn publications_and_requests_without_an_answer_are_suspect_and_beyond_a_hundredth_invalid() {
        let judged = |timed_out, requests_failed| {
            let counts = Counts { acked: 1_000 - timed_out, timed_out, ..calm().counts };
            let counts = Counts {
                requests: 100,
                requests_completed: 100 - requests_failed,
                requests_failed,
                ..counts
            };
            let signals = Signals { counts, ..calm() };
            let ended = Signals { interrupted: true, ..signals.clone() };
            assert_eq!(ended.judge().reasons, [""; 0], "nobody waited for an answer");
            signals.judge().counts
        };
        assert_eq!(judged(0, 0), ValidityClass::Valid);
        assert_eq!([judged(10, 0), judged(0, 1)], [ValidityClass::Suspect; 2]);
        assert_eq!([judged(11, 0), judged(0, 2)], [ValidityClass::Invalid; 2]);
    }

    #[test]
    fn what_a_quota_took_is_no_wait_that_the_host_is_blamed_for() {
        let mut signals = Signals { generator_wait_ns: Some(2_100_000_000), ..calm() };
        assert!(signals.judge().blames_host());
        signals.quota = Some(quota(1.0, 1_700));
        let found = signals.judge();
        assert!(found.class == ValidityClass::Suspect && !found.blames_host(), "{found:?}");
        assert_eq!(found.reasons.len(), 1);
        signals.quota = Some(quota(8.0, 0));
        assert!(signals.judge().blames_host(), "a quota that took nothing");
    }

    #[test]
    fn a_log_of_every_message_is_suspect() {
        for (level, class) in [
            (Some("trace"), ValidityClass::Suspect),
            (Some("debug"), ValidityClass::Suspect),
            (Some("info"), ValidityClass::Valid),
            (Some("off"), ValidityClass::Valid),
            (None, ValidityClass::Valid),
        ] {
            let mut validity = Validity::default();
            validity.judge_log("the relay", level);
            assert_eq!((validity.class, validity.counts), (class, ValidityClass::Valid), "{level:?}");
            assert_eq!(validity.reasons.is_empty(), class == ValidityClass::Valid, "{level:?}");
        }
    }

    #[test]
    fn a_generator_is_busy_by_the_time_with_work_outstanding_unless_it_is_to_be_full() {
        let burst = Signals { generator_cpu_ns: 900_000_000, active_ns: 1_000_000_000, ..calm() };
        let found = burst.judge();
        assert!(
            found.reasons[0].contains("used 90 % of its 1 core(s) while work was outstanding"),
            "{found:?}"
        );
        assert_eq!(Signals { saturates: true, ..burst }.judge(), Validity::default());
    }

    #[test]
    fn a_calm_run_is_valid_without_reasons() {
        assert_eq!(calm().judge(), Validity::default());
    }

    #[test]
    fn missing_signals_are_not_judged() {
        let mut signals = calm();
        signals.rate_per_second = None;
        signals.send_lag_ns_p99 = Quantile::Missing;
        signals.generator_wait_ns = None;
        signals.relay_cpu_ns = None;
        signals.cpu_pressure_percent = None;
        assert_eq!(signals.judge().class, ValidityClass::Valid);
    }

    #[test]
    fn every_rule_fires_at_its_two_thresholds() {
        use ValidityClass::{Invalid, Suspect};
        type Change = fn(&mut Signals);
        let cases: [(Change, ValidityClass, &str); 25] = [
            (|s| s.rate_per_second.as_mut().unwrap().sent = 98.0, Suspect, "sent 98.0 of 100.0"),
            (|s| s.rate_per_second.as_mut().unwrap().sent = 96.9, Invalid, "sent 96.9 of 100.0"),
            (|s| s.send_lag_ns_p99 = Quantile::Bracketed(10_100_000), Suspect, "send lag p99 10.100 ms"),
            (|s| s.send_lag_ns_p99 = Quantile::Exact(50_100_000), Invalid, "invalid above 50 ms"),
            (|s| s.generator_cpu_ns = 8_100_000_000, Suspect, "used 81 % of its 1 core"),
            (|s| s.generator_cpu_ns = 9_900_000_000, Suspect, "used 99 % of its 1 core"),
            (
                |s| s.generator_wait_ns = Some(600_000_000),
                Suspect,
                "waited 600.0 ms for a core in 10000.0 ms, 6 % of its 1 core",
            ),
            (|s| s.generator_wait_ns = Some(2_100_000_000), Invalid, "21 %"),
            (|s| s.relay_cpu_ns = Some(499_000), Suspect, "CPU time is 100 ns an envelope"),
            (|s| s.relay_cpu_ns = Some(49_000), Invalid, "invalid below 10): is --relay-pid the relay?"),
            (|s| s.relay_cpu_ns = Some(0), Invalid, "CPU time is 0 ns an envelope"),
            (|s| s.cpu_pressure_percent = Some(20.1), Suspect, "CPU pressure (some, 10 s) 20.1 %"),
            (|s| s.cpu_pressure_percent = Some(60.1), Invalid, "(suspect above 20 %, invalid above 60 %)"),
            (|s| s.quota = Some(quota(0.35, 0)), Suspect, "quota of 0.35 cores and used 86 % of it"),
            (
                |s| s.quota = Some(quota(1.0, 1)),
                Suspect,
                "the run has a CPU quota of 1.00 cores and was throttled",
            ),
            (|s| s.relay_quota = Some(quota(0.1, 0)), Suspect, "the relay has a CPU quota of 0.10 cores"),
            (|s| s.clipped = 1, Invalid, "1 samples exceeded"),
            (|s| (s.counts.acked, s.counts.dropped_by_generator) = (990, 10), Invalid, "dropped 10 of 1000"),
            (
                |s| (s.counts.acked, s.counts.not_sent) = (990, 10),
                Invalid,
                "10 of 1000 planned events were not",
            ),
            (|s| s.counts.sessions_not_connected = 2, Invalid, "2 sessions were not connected"),
            (|s| s.counts.decode_errors = 1, Invalid, "decode_errors is 1"),
            (|s| s.counts.deliveries_duplicated = 1, Invalid, "deliveries_duplicated is 1"),
            (|s| s.counts.deliveries -= 1, Invalid, "the ledger does not balance"),
            (|s| s.counts.subscriptions_closed = 2, Suspect, "ended 2 live subscriptions"),
            (|s| s.counts = Counts::default(), Invalid, "nothing was planned"),
        ];
        for (change, class, reason) in cases {
            let mut signals = calm();
            change(&mut signals);
            let validity = signals.judge();
            assert_eq!(validity.class, class, "{:?}", validity.reasons);
            assert_eq!(validity.reasons.len(), 1, "{:?}", validity.reasons);
            assert!(validity.reasons[0].contains(reason), "{:?}", validity.reasons);
        }
    }

    #[test]
    fn what_a_user_did_not_wait_for_is_nobodys_loss_and_damage_stays_damage() {
        let mut signals = Signals { interrupted: true, ..calm() };
        signals.counts.deliveries -= 3;
        signals.counts.deliveries_lost += 3;
        assert_eq!(signals.judge(), Validity::default());
        signals.counts.deliveries_altered = 1;
        assert_eq!(
            signals.judge().reasons,
            ["the ledger does not balance: deliveries_altered is 1, must be 0"]
        );
        signals.interrupted = false;
        assert!(signals.judge().reasons[0].contains("deliveries_lost is 3"));
    }

    #[test]
    fn a_share_of_a_plan_may_have_nothing_to_do_and_is_judged_by_all_else() {
        let mut signals = Signals { is_share: true, counts: Counts::default(), ..calm() };
        assert_eq!(signals.judge(), Validity::default());
        signals.counts.decode_errors = 1;
        assert_eq!(signals.judge().counts, ValidityClass::Invalid);
    }

    #[test]
    fn a_rate_needs_a_hundred_publications_of_all_agents_together() {
        let part = Pace { planned: 60, sent: 54, span_ns: 1_000_000_000, sent_span_ns: 900_000_000 };
        assert!(part.rate().is_none());
        let late = Pace { sent_span_ns: 2_000_000_000, ..part };
        assert_eq!((part + part).rate(), Some(Rate { offered: 120.0, sent: 108.0 }));
        assert_eq!((part + late).rate(), Some(Rate { offered: 120.0, sent: 54.0 }));
        assert_eq!(Pace { span_ns: 0, ..part + part }.rate(), None, "all due at one instant");
    }

    #[test]
    fn a_burst_has_the_time_that_its_sends_take() {
        use ValidityClass::{Invalid, Suspect, Valid};
        // 51 sends at one instant: the last is due 50 sends before its turn.
        for (cores, lag_ms, class) in
            [(1, 59, Valid), (1, 61, Suspect), (1, 101, Invalid), (2, 34, Valid), (2, 76, Invalid)]
        {
            let lag = Quantile::Exact(lag_ms * 1_000_000);
            let signals = Signals { burst_sends: 51, generator_cores: cores, send_lag_ns_p99: lag, ..calm() };
            let found = signals.judge();
            assert_eq!(found.class, class, "{cores} {lag_ms} {found:?}");
        }
    }

    #[test]
    fn only_the_ledger_takes_away_counts() {
        type Change = fn(&mut Signals);
        let cases: [(Change, ValidityClass); 7] = [
            (|s| s.cpu_pressure_percent = Some(60.1), ValidityClass::Valid),
            (|s| s.generator_wait_ns = Some(2_100_000_000), ValidityClass::Valid),
            (|s| s.send_lag_ns_p99 = Quantile::Exact(50_100_000), ValidityClass::Valid),
            (|s| s.clipped = 1, ValidityClass::Valid),
            (|s| (s.counts.acked, s.counts.dropped_by_generator) = (990, 10), ValidityClass::Invalid),
            (|s| s.counts.deliveries -= 1, ValidityClass::Invalid),
            (|s| s.counts = Counts::default(), ValidityClass::Invalid),
        ];
        for (change, counts) in cases {
            let mut signals = calm();
            change(&mut signals);
            let validity = signals.judge();
            assert_eq!((validity.class, validity.counts), (ValidityClass::Invalid, counts), "{validity:?}");
        }
    }

    #[test]
    fn the_host_is_blamed_for_what_it_did() {
        type Change = fn(&mut Signals);
        let cases: [(Change, bool); 4] = [
            (|s| s.generator_wait_ns = Some(2_100_000_000), true),
            (|s| s.cpu_pressure_percent = Some(60.1), true),
            (|s| s.clipped = 1, false),
            (|s| s.rate_per_second = Some(Rate { offered: 100.0, sent: 50.0 }), false),
        ];
        for (change, blamed) in cases {
            let mut signals = calm();
            change(&mut signals);
            let validity = signals.judge();
            assert_eq!(validity.class, ValidityClass::Invalid);
            assert_eq!(validity.blames_host(), blamed, "{:?}", validity.reasons);
        }
    }

    #[test]
    fn the_worst_reason_decides_and_every_reason_is_kept() {
        let mut signals = calm();
        signals.clipped = 2;
        signals.cpu_pressure_percent = Some(30.0);
        let validity = signals.judge();
        assert_eq!((validity.class, validity.reasons.len()), (ValidityClass::Invalid, 2));
    }
}
