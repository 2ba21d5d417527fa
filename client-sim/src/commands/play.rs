//! The preparation of the relay and the load that follows it.

use std::{sync::Arc, time::Duration};

use anyhow::anyhow;
use measure::FirstDeliveryRecord;
use program::Interrupt;

use crate::{
    args::Args,
    interruption::{self, unless_interrupted},
    links::{self, Links},
    relays::own_relay::OwnRelay,
    sockets::{
        dial::{Dialer, Target},
        prepare::{self, Prepared},
        swarm::{self, Outcome},
    },
};
use client::{incidents::Incidents, shared::Shared};
use program::UsageError;
use workload::{Speaks, Workload, plan_facts::PlanFacts};

/// The results of the load.
pub(crate) struct Played {
    pub(crate) shared: Arc<Shared>,
    pub(crate) prepared: Prepared,
    pub(crate) started_utc: String,
    pub(crate) outcome: Outcome,
}

/// Stores the events that the relay must hold and has those sent that sessions ask for, then plays
/// the plan, or the share of it that is this process's, of which `facts` are the sums.
///
/// # Errors
/// When the relay cannot be prepared or connected to, or a signal or the coordinator of a share stops
/// it before the load.
pub(crate) fn play(
    args: &Args,
    target: Target,
    mut workload: Workload,
    facts: &PlanFacts,
    options: &swarm::Options<'_>,
    mut own_relay: Option<&mut OwnRelay>,
    interrupt: &mut Interrupt,
) -> anyhow::Result<Played> {
    let links = own_relay.as_mut().and_then(|relay| relay.links.as_mut());
    let ended = links.and_then(Links::ended);
    interruption::block_on(links::unless_ended(ended, async {
        let incidents = Arc::new(Incidents::before_start());
        if let Some(file) = &args.ledger {
            incidents.write_to(file.clone());
        }
        let preparing = prepare(args, &target, &mut workload, options, &incidents);
        let preparing = unless_stopped(options, preparing);
        let mut prepared = unless_interrupted(interrupt, preparing).await?;
        prepared.totals = own_relay.as_mut().filter(|_| !args.floor).and_then(|relay| relay.totals());
        let dialer = Dialer::new(target, usize::try_from(facts.connections_made)?);
        let dialer = dialer.with_users(&workload, args.cell.link.is_some()).map_err(UsageError)?;
        let mut dialer = args.share.iter().fold(dialer, |dialer, share| dialer.with_agent(share.index));
        dialer.ping_every = args.ping_every.map(Duration::from_secs_f64);
        let dialer = Arc::new(dialer);
        let carried = args.share.map(|share| workload.carried_by(share.index, share.of));
        let mut shared = Shared::of_share(workload, carried);
        incidents.start();
        shared.incidents = incidents;
        shared.verify = args.cell.client_verify;
        if args.cell.client_keeps_bytes {
            shared.keep_bytes();
        }
        let shared = Arc::new(shared);
        // Set once.
        options.watched.set(Arc::clone(&shared)).ok();
        let started_utc = measure::utc::format(std::time::SystemTime::now());
        let outcome = swarm::run(Arc::clone(&shared), &dialer, options, own_relay, interrupt).await?;
        Ok(Played { shared, prepared, started_utc, outcome })
    }))
}

/// Prepares the relay. Of several agents the first gives the relay what it must hold, and the
/// others wait for that.
async fn prepare(
    args: &Args,
    target: &Target,
    workload: &mut Workload,
    options: &swarm::Options<'_>,
    incidents: &Arc<Incidents>,
) -> anyhow::Result<Prepared> {
    let stores = args.share.is_none_or(|share| share.index == 0);
    let mut prepared = prepare::prepare(target, workload, stores).await?;
    let (ungreeted, live_limit) = (prepared.ungreeted, prepared.live_limit);
    if ungreeted {
        args.tell("the relay sends no challenge (NIP-42) on connecting: clients answer one when it comes");
    }
    workload.ungreeted = ungreeted;
    if live_limit > 0 {
        args.tell("the relay sends no EOSE to limit 0: live subscriptions ask with limit 1");
    }
    workload.live.iter_mut().for_each(|live| live.filter.limit = Some(live_limit));
    // A floor relay encodes nothing, and answers the requests of its script alone.
    match () {
        () if args.floor => {}
        () if stores => {
            (prepared.wrong, prepared.first_delivery) =
                warm(target, workload, &options.relay_pids, incidents).await?;
        }
        () => prepare::wait_for_stored(target, workload).await?,
    }
    // An external relay may hold what an earlier run, the doctor or anybody else left.
    if args.url.is_some() {
        workload.foreign = prepare::foreign(target, workload).await?;
        let count = workload.foreign.len();
        if count > 0 {
            args.tell(&format!(
                "the relay has {count} events beside those of the run: reconciliations name them"
            ));
        }
    }
    Ok(prepared)
}

/// Requests every stored event of the plan once per format and compression, so that the relay has encoded
/// it. Returns the number of wrong deliveries, and the relay's CPU for the run's own format.
async fn warm(
    target: &Target,
    workload: &Workload,
    relay_pids: &[u32],
    incidents: &Arc<Incidents>,
) -> anyhow::Result<(u64, Option<FirstDeliveryRecord>)> {
    let warm = |speaks| prepare::warm(target, workload, speaks, relay_pids, incidents);
    let (mut wrong, first) = warm(Speaks::default()).await?;
    let own = |speaks: &Speaks| *speaks != Speaks::default();
    for speaks in workload.spoken().into_iter().filter(own) {
        wrong += warm(speaks).await?.0;
    }
    Ok((wrong, first))
}

/// Waits for the preparation, unless the coordinator of a share stops it.
async fn unless_stopped<T>(
    options: &swarm::Options<'_>,
    preparing: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    tokio::select! {
        reason = swarm::stopped(options) => Err(anyhow!("stopped before it was prepared: {reason}")),
        prepared = preparing => prepared,
    }
}
