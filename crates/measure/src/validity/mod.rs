//! May the numbers of a run be believed? A pure function from signals to a class, every reason with
//! its numbers. No rule about the generator or the host refers to the cell's own latencies or costs
//! (docs/decisions/validity.md).

pub(crate) mod bounds;
mod host;
pub(crate) mod reason;
pub(crate) mod saturated;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::reason::{
    CPU_SUSPECT_ABOVE, DECODED_SUSPECT_BELOW, DIVERGED_INVALID_ABOVE, DIVERGED_SUSPECT_ABOVE,
    LAG_INVALID_ABOVE_NS, LAG_SUSPECT_ABOVE_NS, PRESSURE_INVALID_ABOVE, PRESSURE_SUSPECT_ABOVE,
    RATE_INVALID_BELOW, RATE_SUSPECT_BELOW, RELAY_INVALID_BELOW_NS, RELAY_SUSPECT_BELOW_NS, Spoils,
    UNANSWERED_INVALID_ABOVE, WAIT_INVALID_ABOVE, WAIT_SUSPECT_ABOVE,
};
use crate::{Counts, CpuQuota, Quantile, Reason, ReasonKind, Subject, ValidityClass};

/// Fewest publications with a rate: with fewer, the instants of the first and the last decide it.
const FEWEST_PUBLICATIONS: u64 = 100;

/// Delay by the plan itself: one core serves sends that are due at one instant in turn, each with
/// the answers that come meanwhile.
const BURST_NS_PER_SEND: u64 = 1_000_000;

/// Whether a run's numbers may be used, and why not.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Validity {
    /// The worst of the reasons: what latencies and CPU times need.
    pub class: ValidityClass,
    /// The worst of those about the ledger: what counts of events, bytes and allocations need.
    pub counts: ValidityClass,
    /// One for each rule that fired; empty when valid.
    pub reasons: Vec<Reason>,
}

impl fmt::Display for Validity {
    /// The sentences of the reasons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, reason) in self.reasons.iter().enumerate() {
            write!(f, "{}{reason}", if place > 0 { "; " } else { "" })?;
        }
        Ok(())
    }
}

crate::sums! {
    Validity { ; most class, counts }
    Pace { planned, sent; most span_ns, sent_span_ns }
}

impl Validity {
    /// Adds a reason.
    pub fn add(&mut self, class: ValidityClass, reason: impl Into<Reason>) {
        let reason = Reason { class, ..reason.into() };
        if reason.kind.about().1 == Spoils::All {
            self.counts = self.counts.max(class);
        }
        self.class = self.class.max(class);
        self.reasons.push(reason);
    }

    /// Whether one of the reasons is that the machine, or an agent's, had other things to do.
    pub fn blames_host(&self) -> bool {
        self.reasons.iter().any(Reason::blames_host)
    }

    /// Whether the run made its own generator late: times are invalid, though the host was quiet.
    /// That is a result about what was measured.
    pub fn is_own_lateness(&self) -> bool {
        let is_late = |reason: &Reason| {
            reason.class == ValidityClass::Invalid
                && matches!(reason.kind, ReasonKind::SendLag { .. } | ReasonKind::SlowRate { .. })
        };
        self.reasons.iter().any(is_late) && !self.blames_host()
    }

    /// Adds a reason where a value is beyond a limit; low is bad where both are negated.
    pub(crate) fn judge(
        &mut self,
        value: f64,
        suspect_above: f64,
        invalid_above: f64,
        reason: impl Into<Reason>,
    ) {
        if value > invalid_above {
            self.add(ValidityClass::Invalid, reason);
        } else if value > suspect_above {
            self.add(ValidityClass::Suspect, reason);
        }
    }

    /// Judges a host by its [`crate::cpu_pressure_percent`] at the end of the block.
    pub(crate) fn judge_pressure(&mut self, percent: Option<f64>, subject: Subject) {
        let Some(percent) = percent else { return };
        let reason = Reason::about(subject, ReasonKind::CpuPressure { percent });
        self.judge(percent, PRESSURE_SUSPECT_ABOVE, PRESSURE_INVALID_ABOVE, reason);
    }

    /// Judges a block of `elapsed_ns` by the CPU quota of who used so much CPU time. If a quota is
    /// exhausted, the cell's own cost did it, so no block is left out for it.
    pub(crate) fn judge_quota(&mut self, quota: CpuQuota, whose: Subject, used_ns: u64, elapsed_ns: u64) {
        let CpuQuota { cores: quota_cores, throttled_periods: periods, throttled_ns } = quota;
        let throttled = ReasonKind::QuotaThrottled { quota_cores, periods, throttled_ns, elapsed_ns };
        let most = throttled_ns.max(periods) as f64;
        self.judge(most, 0.0, f64::INFINITY, Reason::about(whose, throttled));
        let share = used_ns as f64 / (quota_cores * elapsed_ns as f64);
        let used = ReasonKind::QuotaUsed { quota_cores, used_ns, elapsed_ns };
        self.judge(share, CPU_SUSPECT_ABOVE, f64::INFINITY, Reason::about(whose, used));
    }

    /// Judges how much light readers compared: of what they counted unread only the number is
    /// known.
    pub(crate) fn judge_light(&mut self, counts: &Counts) {
        let deliveries = counts.deliveries;
        let decoded = deliveries.saturating_sub(counts.deliveries_unread);
        if counts.deliveries_unread > 0 && decoded < DECODED_SUSPECT_BELOW {
            self.add(ValidityClass::Suspect, ReasonKind::FewDecoded { decoded, deliveries });
        }
    }

    /// Judges what the relay left unanswered.
    pub(crate) fn judge_unanswered(&mut self, counts: &Counts) {
        let Counts { planned, timed_out, requests, requests_failed, .. } = *counts;
        let mut judge = |open: u64, of: u64, kind| {
            self.judge(open as f64, 0.0, of as f64 * UNANSWERED_INVALID_ABOVE, kind);
        };
        judge(timed_out, planned, ReasonKind::Unacknowledged { open: timed_out, planned });
        judge(requests_failed, requests, ReasonKind::Unanswered { open: requests_failed, requests });
    }

    /// Judges what a process logs. Log lines for each message cost CPU time, at `trace` by far the most.
    /// `info` only has a line for each start and end.
    pub fn judge_log(&mut self, whose: Subject, level: Option<&str>) {
        if let Some(level) = level.filter(|level| ["debug", "trace"].contains(level)) {
            let reason = Reason::about(whose, ReasonKind::Logs { level: level.to_owned() });
            self.add(ValidityClass::Suspect, reason);
        }
    }
}

/// Signals of how one run went.
#[derive(Debug, Clone, Default, PartialEq)]
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
        let reason = ReasonKind::SlowRate { offered, sent };
        validity.judge(-ratio, -RATE_SUSPECT_BELOW, -RATE_INVALID_BELOW, reason);
    }
}

/// Publications at planned instants, from which a [`Rate`] follows. Those of agents add up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pace {
    /// Publications by plan.
    pub planned: u64,
    /// Publications that their connections took.
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
        let Some(ns_p99) = p99.ns() else { return };
        let burst_ns = self.takes_ns();
        let beyond = |limit: u64| limit.saturating_add(burst_ns) as f64;
        let reason = ReasonKind::SendLag { ns_p99, burst_ns, sends: self.sends };
        validity.judge(ns_p99 as f64, beyond(LAG_SUSPECT_ABOVE_NS), beyond(LAG_INVALID_ABOVE_NS), reason);
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
            validity.judge_quota(quota, Subject::Run, self.quota_cpu_ns, self.elapsed_ns);
        }
        if let Some(quota) = self.relay_quota {
            validity.judge_quota(quota, Subject::Relay, self.relay_cpu_ns.unwrap_or(0), self.elapsed_ns);
        }
        validity
    }

    fn judge_ledger(&self, validity: &mut Validity) {
        let counts = &self.counts;
        if !self.is_share && counts.planned + counts.requests + counts.deliveries_expected == 0 {
            validity.add(ValidityClass::Invalid, ReasonKind::NothingPlanned {});
        }
        let balanced = if self.interrupted { counts.as_awaited().balanced() } else { counts.balanced() };
        if let Err(why) = balanced {
            validity.add(ValidityClass::Invalid, ReasonKind::Unbalanced { why });
        }
        if !self.is_share {
            validity.judge_light(counts);
            // What the user did not wait for is no fault.
            if !self.interrupted {
                validity.judge_unanswered(counts);
            }
        }
        let (diverged, recorded) = (counts.deliveries_diverged, counts.deliveries_recorded);
        // What the user did not wait for did not diverge.
        if !self.interrupted {
            let (suspect, invalid) =
                (recorded as f64 * DIVERGED_SUSPECT_ABOVE, recorded as f64 * DIVERGED_INVALID_ABOVE);
            validity.judge(diverged as f64, suspect, invalid, ReasonKind::Diverged { diverged, recorded });
        }
        let (planned, dropped, not_sent) = (counts.planned, counts.dropped_by_generator, counts.not_sent);
        let (sessions, subscriptions) = (counts.sessions_dropped_by_generator, counts.subscriptions_closed);
        let unconnected = if self.interrupted { 0 } else { counts.sessions_not_connected };
        for (count, class, kind) in [
            (dropped, ValidityClass::Invalid, ReasonKind::QueueFull { dropped, planned }),
            (sessions, ValidityClass::Invalid, ReasonKind::SessionsNotBegun { sessions }),
            (unconnected, ValidityClass::Invalid, ReasonKind::NotConnected { sessions: unconnected }),
            (not_sent, ValidityClass::Invalid, ReasonKind::NotSent { not_sent, planned }),
            (subscriptions, ValidityClass::Suspect, ReasonKind::SubscriptionsClosed { subscriptions }),
            (self.clipped, ValidityClass::Invalid, ReasonKind::Clipped { samples: self.clipped }),
        ] {
            if count > 0 {
                validity.add(class, kind);
            }
        }
    }

    fn judge_generator(&self, validity: &mut Validity) {
        if let Some(rate) = self.rate_per_second {
            rate.judge(validity);
        }
        let burst = Burst { sends: self.burst_sends, cores: self.generator_cores };
        burst.judge_lag(self.send_lag_ns_p99, validity);
        // Pauses between bursts leave a core that is full in each of them idle over the block.
        let (used_ns, active_ns, cores) = (self.generator_cpu_ns, self.active_ns, self.generator_cores);
        let capacity_ns = cores as f64 * active_ns as f64;
        if capacity_ns > 0.0 && !self.saturates {
            let reason = ReasonKind::CpuFull { used_ns, active_ns, cores };
            validity.judge(used_ns as f64 / capacity_ns, CPU_SUSPECT_ABOVE, f64::INFINITY, reason);
        }
    }

    /// Judges whether the relay's clock is that of what sent the envelopes.
    fn judge_relay(&self, validity: &mut Validity) {
        let envelopes = self.counts.envelopes();
        if let Some(cpu_ns) = self.relay_cpu_ns
            && envelopes > 0
        {
            let reason = ReasonKind::CheapRelay { cpu_ns, envelopes };
            let each = cpu_ns as f64 / envelopes as f64;
            validity.judge(-each, -RELAY_SUSPECT_BELOW_NS, -RELAY_INVALID_BELOW_NS, reason);
        }
    }

    fn judge_host(&self, validity: &mut Validity) {
        let (elapsed_ns, cores) = (self.elapsed_ns, self.generator_cores);
        let capacity_ns = cores as f64 * elapsed_ns as f64;
        if let Some(wait_ns) = self.generator_wait_ns
            && capacity_ns > 0.0
        {
            // Its quota's time is its own cost, for which the host is not blamed.
            let wait_ns = wait_ns.saturating_sub(self.quota.map_or(0, |quota| quota.throttled_ns));
            let reason = ReasonKind::WaitedForCore { wait_ns, elapsed_ns, cores };
            validity.judge(wait_ns as f64 / capacity_ns, WAIT_SUSPECT_ABOVE, WAIT_INVALID_ABOVE, reason);
        }
        validity.judge_pressure(self.cpu_pressure_percent, Subject::Host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AddUp;

    fn calm() -> Signals {
        Signals {
            counts: Counts {
                planned: 1_000,
                acked: 1_000,
                deliveries_expected: 5_000,
                deliveries: 5_000,
                ..Counts::default()
            },
            rate_per_second: Some(Rate { offered: 100.0, sent: 99.5 }),
            send_lag_ns_p99: Quantile::Exact(50_000),
            burst_sends: 1,
            generator_cpu_ns: 2_000_000_000,
            generator_wait_ns: Some(100_000_000),
            generator_cores: 1,
            relay_cpu_ns: Some(1_000_000_000),
            elapsed_ns: 10_000_000_000,
            active_ns: 10_000_000_000,
            cpu_pressure_percent: Some(10.0),
            quota_cpu_ns: 3_000_000_000,
            ..Signals::default()
        }
    }

    fn quota(cores: f64, throttled_ms: u64) -> CpuQuota {
        CpuQuota { cores, throttled_periods: throttled_ms, throttled_ns: throttled_ms * 1_000_000 }
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
            assert_eq!(ended.judge(), Validity::default(), "nobody waited for an answer");
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
    fn a_generator_is_busy_by_the_time_with_work_outstanding_unless_it_is_to_be_full() {
        let burst = Signals { generator_cpu_ns: 900_000_000, active_ns: 1_000_000_000, ..calm() };
        let found = burst.judge();
        assert!(
            found.to_string().contains("used 90 % of its 1 core(s) while work was outstanding"),
            "{found:?}"
        );
        assert_eq!(Signals { saturates: true, ..burst }.judge(), Validity::default());
    }

    #[test]
    fn every_rule_fires_at_its_two_thresholds() {
        use ValidityClass::{Invalid, Suspect};
        type Change = fn(&mut Signals);
        let times: [(Change, ValidityClass, &str); 17] = [
            (|s| s.rate_per_second.as_mut().unwrap().sent = 98.0, Suspect, "sent 98.0 of 100.0"),
            (|s| s.rate_per_second.as_mut().unwrap().sent = 96.9, Invalid, "sent 96.9 of 100.0"),
            (|s| s.send_lag_ns_p99 = Quantile::Bracketed(10_100_000), Suspect, "send lag p99 10.100 ms"),
            (|s| s.send_lag_ns_p99 = Quantile::Exact(50_100_000), Invalid, "invalid above 50 ms"),
            (|s| s.generator_cpu_ns = 8_100_000_000, Suspect, "used 81 % of its 1 core"),
            (|s| s.generator_cpu_ns = 9_900_000_000, Suspect, "used 99 % of its 1 core"),
            (
                |s| s.generator_wait_ns = Some(600_000_000),
                Suspect,
                "host busy: the generator waited 600.0 ms for a core in 10000.0 ms, 6 % of its 1 core",
            ),
            (|s| s.generator_wait_ns = Some(2_100_000_000), Invalid, "21 %"),
            (|s| s.relay_cpu_ns = Some(499_000), Suspect, "CPU time is 100 ns an envelope"),
            (|s| s.relay_cpu_ns = Some(49_000), Invalid, "invalid below 10): is --relay-pid the relay?"),
            (|s| s.relay_cpu_ns = Some(0), Invalid, "CPU time is 0 ns an envelope"),
            (|s| s.cpu_pressure_percent = Some(20.1), Suspect, "host busy: CPU pressure (some, 10 s) 20.1 %"),
            (|s| s.cpu_pressure_percent = Some(60.1), Invalid, "(suspect above 20 %, invalid above 60 %)"),
            (|s| s.quota = Some(quota(0.35, 0)), Suspect, "quota of 0.35 cores and used 86 % of it"),
            (
                |s| s.quota = Some(quota(1.0, 1)),
                Suspect,
                "the run has a CPU quota of 1.00 cores and was throttled",
            ),
            (|s| s.relay_quota = Some(quota(0.1, 0)), Suspect, "the relay has a CPU quota of 0.10 cores"),
            (|s| s.clipped = 1, Invalid, "1 samples exceeded"),
        ];
        let ledger: [(Change, ValidityClass, &str); 10] = [
            (|s| (s.counts.acked, s.counts.dropped_by_generator) = (990, 10), Invalid, "dropped 10 of 1000"),
            (
                |s| (s.counts.acked, s.counts.not_sent) = (990, 10),
                Invalid,
                "10 of 1000 planned events were not",
            ),
            (|s| s.counts.sessions_not_connected = 2, Invalid, "2 sessions were not connected"),
            (|s| s.counts.decode_errors = 1, Invalid, "decode_errors is 1"),
            (
                |s| (s.counts.deliveries_recorded, s.counts.deliveries_diverged) = (5_000, 6),
                Suspect,
                "6 deliveries differ from the 5000 of the recording",
            ),
            (
                |s| (s.counts.deliveries_recorded, s.counts.deliveries_diverged) = (5_000, 51),
                Invalid,
                "(suspect above 0.1 %, invalid above 1 %)",
            ),
            (|s| s.counts.deliveries_duplicated = 1, Invalid, "deliveries_duplicated is 1"),
            (|s| s.counts.deliveries -= 1, Invalid, "the ledger does not balance"),
            (|s| s.counts.subscriptions_closed = 2, Suspect, "ended 2 live subscriptions"),
            (|s| s.counts = Counts::default(), Invalid, "nothing was planned"),
        ];
        let times = times.map(|(change, class, reason)| (change, class, ValidityClass::Valid, reason));
        let ledger = ledger.map(|(change, class, reason)| (change, class, class, reason));
        for (change, class, counts, reason) in times.into_iter().chain(ledger) {
            let mut signals = calm();
            change(&mut signals);
            let validity = signals.judge();
            assert_eq!((validity.class, validity.counts), (class, counts), "{validity}");
            assert_eq!(validity.reasons.len(), 1, "{validity}");
            assert!(validity.to_string().contains(reason), "{validity}");
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
            signals.judge().to_string(),
            "the ledger does not balance: deliveries_altered is 1, must be 0"
        );
        signals.interrupted = false;
        assert!(signals.judge().to_string().contains("deliveries_lost is 3"));
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
        let with = |other: &Pace| {
            let mut sum = part;
            sum.add_up(other);
            sum
        };
        assert_eq!(with(&part).rate(), Some(Rate { offered: 120.0, sent: 108.0 }));
        assert_eq!(with(&late).rate(), Some(Rate { offered: 120.0, sent: 54.0 }));
        assert_eq!(Pace { span_ns: 0, ..with(&part) }.rate(), None, "all due at one instant");
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
}
