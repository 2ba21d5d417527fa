//! Requests every stored event of the plan before the clock starts, so that the relay has encoded it.
//! Reads the relay's CPU for these first deliveries (docs/decisions/warm.md).

use std::sync::Arc;

use measure::{FirstDeliveryRecord, ProcessesCpu};

use crate::{
    relays::meters::relay_clock,
    sockets::{dial::Target, prepare::Alone},
};
use client::{incidents::Incidents, shared::Shared};
use workload::{Due, Speaks, Workload};

/// Identical passes over the events after the first: their spread is the resolution.
const WARM_PASSES: u32 = 3;

/// Requests every stored event that the plan asks for, once a pass, as a client that speaks this.
/// Returns how much came wrong, which `incidents` names, and what the passes cost the relay, unless its
/// CPU clock is unknown or an event did not come.
///
/// # Errors
/// When the relay cannot be reached, or sends nothing of what it owes for too long.
pub(crate) async fn warm(
    target: &Target,
    workload: &Workload,
    speaks: Speaks,
    relay_pids: &[u32],
    incidents: &Arc<Incidents>,
) -> anyhow::Result<(u64, Option<FirstDeliveryRecord>)> {
    let asked = workload.asked();
    if asked.is_empty() {
        return Ok((0, None));
    }
    let mut clock = relay_clock(relay_pids)?;
    let passes = workload.passes(&asked, 1 + WARM_PASSES, speaks)?;
    let mut shared = Shared::new(passes);
    shared.incidents = Arc::clone(incidents);
    let doing = "while the relay sent each event once before the start";
    let mut client = Alone::connect(target, shared, doing).await?;
    let mut read = || clock.as_mut().and_then(|clock| clock.read().ok());
    let spent = |(before, after): (ProcessesCpu, ProcessesCpu)| after.since(&before).cpu.total_ns;
    let mut passes_ns = Vec::new();
    for pass in 0..=WARM_PASSES {
        let before = read();
        client.play(Due::Session(pass), i64::from(WARM_PASSES - pass)).await?;
        passes_ns.extend(before.zip(read()).map(spent));
    }
    let counts = client.driver.finish().await.report.counts;
    let all_came = counts.deliveries == asked.len() as u64 * u64::from(1 + WARM_PASSES);
    let cost = match passes_ns[..] {
        [cold_ns, ref warm_ns @ ..] if all_came && warm_ns.len() == WARM_PASSES as usize => {
            Some(FirstDeliveryRecord { events: asked.len() as u64, cold_ns, warm_ns: warm_ns.to_vec() })
        }
        _ => None,
    };
    Ok((counts.came_wrong(), cost))
}
