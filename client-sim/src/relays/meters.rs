//! Cost of a run to both processes: clocks and counters, read at its start and at its end.

use anyhow::Context;
use measure::{
    Allocations, AllocationsRecord, CpuClock, CpuQuota, CpuTime, HostMeter, HostRecord, LinkRecord,
    Processes, ProcessesSpent, QuotaMeter, UNKNOWN_HERE, thread_times_ns,
};

use crate::relays::own_relay::OwnRelay;

/// Cost of a run from start to end.
#[derive(Debug, Default)]
pub(crate) struct Cost {
    /// CPU time of this process.
    pub(crate) client_cpu: CpuTime,
    /// CPU time of the relay.
    pub(crate) relay: Option<ProcessesSpent>,
    /// CPU time of the relay's busiest thread.
    pub(crate) relay_thread_ns: Option<u64>,
    /// Bytes that the relay wrote to disks.
    pub(crate) relay_written_bytes: Option<u64>,
    /// CPU time of the gateway, which is part of the relay's.
    pub(crate) gateway_cpu: Option<CpuTime>,
    /// Activity of the host.
    pub(crate) host: Option<HostRecord>,
    /// How long threads of this process were runnable without running, where the kernel keeps
    /// `schedstat`.
    pub(crate) client_wait_ns: Option<u64>,
    /// The CPU quota of this process and of a relay of our own, and how often it held them up.
    pub(crate) quota: Option<CpuQuota>,
    /// The CPU quota of a relay that is not our own.
    pub(crate) relay_quota: Option<CpuQuota>,
    /// Allocations of both processes, in builds with `count-allocations`.
    pub(crate) allocations: Option<AllocationsRecord>,
    /// The emulator's work.
    pub(crate) links: Option<LinkRecord>,
}

/// Reads everything once; allocations first, so that asking the relay for them is not measured. What is
/// returned reads everything again. Then allocations come last: asking for them costs the relay CPU that
/// must not be measured. Call it while the workers live: `/proc/self/task` (proc(5)) has no waiting time
/// of a thread that ended.
///
/// # Errors
/// When the relay's process has no clock that this one may read, or the emulator of links has ended; in
/// the end also when the clock of this process cannot be read. The CPU time of a relay that is gone is
/// unknown, not zero.
pub(crate) fn start(
    relay_pids: &[u32],
    gateway_pid: Option<u32>,
    own_relay: &mut Option<&mut OwnRelay>,
) -> anyhow::Result<impl FnOnce(&mut Option<&mut OwnRelay>) -> anyhow::Result<Cost> + use<>> {
    let mut processes = relay_clock(relay_pids)?;
    let gateway = gateway_pid.and_then(|pid| CpuClock::of_process(pid).ok());
    let allocated = allocations(own_relay);
    if let Some(links) = own_relay.as_mut().and_then(|relay| relay.links.as_mut()) {
        links.emulation.begin()?;
    }
    let pids = processes.as_ref().map(Processes::pids).unwrap_or_default();
    // A relay of our own is in the groups of this process.
    let is_foreign = processes.is_some() && own_relay.is_none();
    let relay_quota = is_foreign.then(|| QuotaMeter::of_processes(&pids));
    let host = HostMeter::start(&pids);
    let threads_before = thread_times_ns(&pids);
    let written_before = processes.as_ref().and_then(Processes::written_bytes);
    let quota = QuotaMeter::of_this_process();
    // Before the clients, because it looks at all processes.
    let relay_before = processes.as_mut().and_then(|processes| processes.read().ok());
    let gateway = gateway.and_then(|clock| Some((clock, clock.read().ok()?)));
    let client = CpuClock::this_process();
    let client_before = client.read()?;
    let wait_before_ns = measure::runnable_wait_ns().ok();
    Ok(move |own_relay: &mut Option<&mut OwnRelay>| {
        let client_cpu = client.read()?.since(client_before);
        let wait_ns = measure::runnable_wait_ns().ok().zip(wait_before_ns);
        let relay = processes.as_mut().and_then(|processes| processes.read().ok());
        let written = processes.as_ref().and_then(Processes::written_bytes).zip(written_before);
        let spent = thread_times_ns(&pids).into_iter();
        let spent = spent.map(|(id, ns)| ns.saturating_sub(threads_before.get(&id).copied().unwrap_or(0)));
        let allocations = allocated.zip(allocations(own_relay));
        let links = own_relay.as_mut().and_then(|relay| relay.links.as_mut());
        Ok(Cost {
            links: links.map(|links| links.emulation.report()).transpose()?,
            client_cpu,
            relay: relay.zip(relay_before).map(|(after, before)| after.since(&before)),
            relay_thread_ns: spent.max(),
            relay_written_bytes: written.map(|(after, before)| after.saturating_sub(before)),
            gateway_cpu: gateway.and_then(|(clock, before)| Some(clock.read().ok()?.since(before))),
            host: Some(host.read()),
            quota: quota.read(),
            relay_quota: relay_quota.and_then(|meter| meter.read()),
            client_wait_ns: wait_ns.map(|(after, before)| after.saturating_sub(before)),
            allocations: allocations.map(|(before, after)| AllocationsRecord {
                client: after.client.since(before.client),
                relay: after.relay.zip(before.relay).map(|(after, before)| after.since(before)),
            }),
        })
    })
}

/// The processes of a relay, if they are known and the system reports their CPU time.
///
/// # Errors
/// When one of them has no clock that this process may read.
pub(crate) fn relay_clock(pids: &[u32]) -> anyhow::Result<Option<Processes>> {
    let is_told = !pids.is_empty() && UNKNOWN_HERE.is_none();
    let processes = is_told.then(|| Processes::from_pids(pids)).transpose();
    processes.context("cannot read the CPU clock of the relay")
}

/// Allocations of both processes so far, in builds that count them.
fn allocations(own_relay: &mut Option<&mut OwnRelay>) -> Option<AllocationsRecord> {
    let client = Allocations::so_far()?;
    Some(AllocationsRecord { client, relay: own_relay.as_mut().and_then(|relay| relay.allocations()) })
}
