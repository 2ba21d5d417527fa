//! Which process was at its limit.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CpuTime, FULL_FROM, Full, ReasonKind, UsableCores};

/// The name of a scenario's own arrivals in a [`Cell`](crate::Cell).
pub const NOT_SATURATED: &str = "none";

/// What was full while work was outstanding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Saturated {
    /// The process whose limit was asked for: `relay`, `clients`, or `none`.
    pub asked: String,
    /// The process that was full.
    pub full: Full,
    /// The relay's CPU time as a share of what its cores could give while work was outstanding; of
    /// one core where its cores are not known. Absent where its CPU time is not known.
    pub relay_utilisation: Option<f64>,
    /// CPU time of the relay's busiest thread as a share of that time. A relay is at its limit if one of
    /// its threads is. Absent in older records.
    pub relay_fullest_thread: Option<f64>,
    /// The clients' CPU time as a share of what their cores could give in the same time.
    pub client_utilisation: f64,
}

impl Saturated {
    /// Judges a run by its CPU times and the time with work outstanding.
    pub fn from_times(
        asked: &str,
        (relay, relay_thread_ns, clients): (Option<CpuTime>, Option<u64>, CpuTime),
        cores: UsableCores,
        active_ns: u64,
    ) -> Saturated {
        let share = |cpu: CpuTime, capacity_ns: u64| cpu.total_ns as f64 / capacity_ns.max(1) as f64;
        let relay_capacity_ns = cores.relay_capacity_ns(active_ns).unwrap_or(active_ns);
        let relay_utilisation = relay.map(|cpu| share(cpu, relay_capacity_ns));
        let client_utilisation = share(clients, cores.clients_capacity_ns(active_ns));
        let clients_are = client_utilisation >= FULL_FROM;
        let relay_fullest_thread = relay_thread_ns.map(|ns| ns as f64 / active_ns.max(1) as f64);
        let fullest = relay_utilisation.map(|share| share.max(relay_fullest_thread.unwrap_or(0.0)));
        let full = match fullest.map(|share| share >= FULL_FROM) {
            Some(true) if !(clients_are && asked == "clients") => Full::Relay,
            _ if clients_are => Full::Clients,
            Some(_) => Full::Neither,
            None => Full::Unknown,
        };
        let asked = asked.to_owned();
        Saturated { asked, full, relay_utilisation, relay_fullest_thread, client_utilisation }
    }

    /// Whether the run's envelopes per second are the throughput of the process that was asked for.
    pub fn is_throughput(&self) -> bool {
        match self.full {
            Full::Relay => self.asked == "relay",
            Full::Clients => self.asked == "clients",
            Full::Neither | Full::Unknown => false,
        }
    }

    /// Why the envelopes per second of a run that asked for a limit are no throughput.
    pub fn shortfall(&self) -> Option<ReasonKind> {
        let Saturated { full, relay_utilisation: relay, client_utilisation: clients, .. } = *self;
        let is_short = self.asked != NOT_SATURATED && !self.is_throughput();
        is_short.then(|| ReasonKind::NotFull { asked: self.asked.clone(), full, relay, clients })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reason;

    #[test]
    fn what_was_full_decides_whether_a_rate_is_a_throughput() {
        let cpu = |ms: u64| CpuTime { total_ns: ms * 1_000_000, ..CpuTime::default() };
        let cores = UsableCores { relay: Some(1), clients: 1, ..UsableCores::default() };
        let judged = |asked: &str, relay: Option<u64>, clients: u64| {
            Saturated::from_times(asked, (relay.map(cpu), None, cpu(clients)), cores, 1_000_000_000)
        };
        for (asked, relay, clients, full, is_throughput) in [
            ("relay", Some(950), 500, Full::Relay, true),
            ("relay", Some(950), 950, Full::Relay, true),
            ("relay", Some(800), 950, Full::Clients, false),
            ("relay", Some(800), 800, Full::Neither, false),
            ("relay", None, 500, Full::Unknown, false),
            ("relay", None, 950, Full::Clients, false),
            ("clients", Some(950), 950, Full::Clients, true),
            ("clients", Some(950), 500, Full::Relay, false),
            ("none", Some(950), 500, Full::Relay, false),
        ] {
            let found = judged(asked, relay, clients);
            assert_eq!(
                (found.full, found.is_throughput()),
                (full, is_throughput),
                "{asked} {relay:?} {clients}"
            );
            assert_eq!(found.shortfall().is_some(), asked != "none" && !is_throughput, "{asked}");
        }
        let text = Reason::from(judged("relay", Some(800), 950).shortfall().unwrap()).to_string();
        assert!(text.contains("the clients were full first (relay 80 %, clients 95 %"), "{text}");
        // Threads of another's relay are not known: the share is of one core.
        let cores = UsableCores { clients: 2, ..UsableCores::default() };
        let found = Saturated::from_times("relay", (Some(cpu(950)), None, cpu(950)), cores, 1_000_000_000);
        assert_eq!((found.relay_utilisation, found.client_utilisation), (Some(0.95), 0.475));
        // One of four threads that does all the work is the limit of the relay.
        let cores = UsableCores { relay: Some(4), clients: 1, ..UsableCores::default() };
        for (thread_ms, full) in [(950, Full::Relay), (300, Full::Neither)] {
            let times = (Some(cpu(1_100)), Some(thread_ms * 1_000_000), cpu(500));
            assert_eq!(Saturated::from_times("relay", times, cores, 1_000_000_000).full, full);
        }
    }
}
