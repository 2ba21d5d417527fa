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
        let pinned = |relay: u32, clients: u32| PinnedCores { relay: vec![relay], clients: vec![clients] };
        let calm = HostRecord {
            listen_overflows: Some(0),
            steal: Some(0.05),
            reports_pressure: true,
            ..HostRecord::default()
        };
        let judged = |host: &HostRecord| {
            let mut validity = Validity::default();
            host.judge(false, &mut validity);
            validity
        };
        assert_eq!(judged(&calm), Validity::default());
        for (host, class, is_hosts, says) in [
            (
                HostRecord { listen_overflows: Some(3), ..calm.clone() },
                ValidityClass::Suspect,
                false,
                "dropped 3 finished handshakes",
            ),
            (HostRecord { steal: Some(0.06), ..calm.clone() }, ValidityClass::Suspect, true, "gave 6 %"),
            (HostRecord { steal: Some(0.6), ..calm.clone() }, ValidityClass::Invalid, true, "gave 60 %"),
            (
                HostRecord { siblings: vec![[0, 1]], ..calm.clone() },
                ValidityClass::Suspect,
                false,
                "CPU 0 of the relay and CPU 1 of the clients are sibling threads",
            ),
            (
                HostRecord { repinned: Some([pinned(0, 1), pinned(1, 1)]), ..calm.clone() },
                ValidityClass::Invalid,
                false,
                "relay [0] and clients [1], at the end relay [1] and clients [1]",
            ),
            (
                HostRecord { reports_pressure: false, ..calm },
                ValidityClass::Suspect,
                false,
                "no CPU pressure",
            ),
        ] {
            let validity = judged(&host);
            assert_eq!((validity.class, validity.counts), (class, ValidityClass::Valid), "{validity:?}");
            assert_eq!(validity.blames_host(), is_hosts, "{validity:?}");
            assert!(validity.reasons.len() == 1 && validity.to_string().contains(says), "{validity:?}");
        }
    }
}
