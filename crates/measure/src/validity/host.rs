//! What a host did to a run, as reasons against its numbers.

use super::reason::{STEAL_INVALID_ABOVE, STEAL_SUSPECT_ABOVE};
use crate::{HostRecord, ReasonKind, UNKNOWN_HERE, Validity, ValidityClass};

impl HostRecord {
    /// Judges what the host did to latencies and CPU times. Over emulated links CPU pressure counts for
    /// nothing, so the kernel need not report it.
    pub fn judge(&self, over_links: bool, validity: &mut Validity) {
        let suspect = |validity: &mut Validity, kind| validity.add(ValidityClass::Suspect, kind);
        if let Some(overflows) = self.listen_overflows.filter(|overflows| *overflows > 0) {
            suspect(validity, ReasonKind::AcceptOverflow { overflows });
        }
        if let Some(share) = self.steal {
            let kind = ReasonKind::Stolen { share };
            validity.judge(share, STEAL_SUSPECT_ABOVE, STEAL_INVALID_ABOVE, kind);
        }
        if let Some([relay_cpu, clients_cpu]) = self.siblings.first().copied() {
            suspect(validity, ReasonKind::Siblings { relay_cpu, clients_cpu });
        }
        if let Some([before, now]) = self.repinned.clone() {
            validity.add(ValidityClass::Invalid, ReasonKind::Repinned { before, now });
        }
        if !self.reports_pressure && !over_links && UNKNOWN_HERE.is_none() {
            suspect(validity, ReasonKind::PressureUnknown {});
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PinnedCores;

    #[test]
    fn each_thing_that_a_host_does_is_a_reason() {
        use ValidityClass::{Invalid, Suspect};
        type Change = fn(&mut HostRecord);
        let judged = |change: Change| {
            let (listen_overflows, steal, reports_pressure) = (Some(0), Some(0.05), true);
            let mut host = HostRecord { listen_overflows, steal, reports_pressure, ..HostRecord::default() };
            change(&mut host);
            let mut validity = Validity::default();
            host.judge(false, &mut validity);
            validity
        };
        assert_eq!(judged(|_| {}), Validity::default());
        let repinned: Change = |host| {
            let pinned = |relay| PinnedCores { relay: vec![relay], clients: vec![1] };
            host.repinned = Some([pinned(0), pinned(1)]);
        };
        let siblings = "CPU 0 of the relay and CPU 1 of the clients are sibling threads";
        let moved = "relay [0] and clients [1], at the end relay [1] and clients [1]";
        let cases: [(Change, ValidityClass, bool, &str); 6] = [
            (|host| host.listen_overflows = Some(3), Suspect, false, "dropped 3 finished handshakes"),
            (|host| host.steal = Some(0.06), Suspect, true, "gave 6 %"),
            (|host| host.steal = Some(0.6), Invalid, true, "gave 60 %"),
            (|host| host.siblings = vec![[0, 1]], Suspect, false, siblings),
            (repinned, Invalid, false, moved),
            (|host| host.reports_pressure = false, Suspect, false, "no CPU pressure"),
        ];
        for (change, class, is_hosts, says) in cases {
            let validity = judged(change);
            assert_eq!((validity.class, validity.counts), (class, ValidityClass::Valid), "{validity:?}");
            assert_eq!(validity.blames_host(), is_hosts, "{validity:?}");
            assert!(validity.reasons.len() == 1 && validity.to_string().contains(says), "{validity:?}");
        }
    }
}
