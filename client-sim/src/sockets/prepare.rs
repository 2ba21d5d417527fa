//! Prepares the relay before the clock starts: checks that it speaks the agreed format, stores the
//! events that the plan asks for, and requests each once.

use std::{collections::HashSet, net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use measure::{FirstDeliveryRecord, ProcessesCpu};
use relay_sim::Totals;
use tokio::time::{Instant, sleep, timeout_at};
use wire::Agreement;

use crate::{
    answers::RATE,
    relays::meters::relay_clock,
    sockets::{
        dial::{Dialer, Target},
        driver::Driver,
    },
};
use client::{
    Report,
    incidents::{self, Incidents},
    shared::{Fate, Shared},
};
use workload::{Due, Flood, Publication, Speaks, Workload};

/// How long the relay may take for one step, whatever else it says meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);

/// Pauses, in seconds, while a relay that bounds the rate takes nothing more.
const PAUSES_S: [u64; 4] = [1, 2, 4, 8];

/// Rounds of events at most for such a relay.
const MOST_ROUNDS: usize = 600;

/// How long the relay may take for the first EOSE, to `limit: 0`.
const PATIENCE_LIMIT_0: Duration = Duration::from_secs(10);

/// Identical passes over the events after the first: their spread is the resolution.
const WARM_PASSES: u32 = 3;

/// No EOSE came to a first request.
#[derive(Debug, thiserror::Error)]
#[error("for {} s the relay sent no EOSE to {request}{said}", .patience.as_secs())]
struct NoEose {
    patience: Duration,
    request: String,
    /// The relay's words meanwhile.
    said: String,
}

/// Facts that are known before the clock starts.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) agreement: Agreement,
    /// The relay's address, as the preparing client reached it.
    pub(crate) address: Option<SocketAddr>,
    /// The limit of live subscriptions: 0, or 1 for a relay that sends no EOSE to `limit: 0`.
    pub(crate) live_limit: u64,
    /// Whether it sent no challenge (NIP-42) on connecting.
    pub(crate) ungreeted: bool,
    pub(crate) first_delivery: Option<FirstDeliveryRecord>,
    /// How much of these first deliveries came wrong.
    pub(crate) wrong: u64,
    /// The relay's totals until then, of a relay of our own.
    pub(crate) totals: Option<Totals>,
}

/// Connects once, checks the agreement by a first request, and publishes the events that the relay
/// must hold, if it `stores`.
///
/// # Errors
/// When the relay cannot be reached, agrees on another format or compression, does not speak the
/// agreed format, sends no EOSE, or refuses an event.
pub(crate) async fn prepare(target: &Target, workload: &Workload, stores: bool) -> anyhow::Result<Prepared> {
    let with = |limit| workload.preparation(limit, stores);
    let silent = match prepare_with(target, with(0), PATIENCE_LIMIT_0).await {
        Err(error) if error.is::<NoEose>() => error,
        prepared => return prepared,
    };
    let prepared = prepare_with(target, with(1), PATIENCE).await;
    Ok(Prepared { live_limit: 1, ..prepared.with_context(|| silent.to_string())? })
}

/// Publishes all events; a relay with a rate limit gets the refused ones again. After each pause come as
/// many events as it accepted before.
async fn prepare_with(
    target: &Target,
    preparation: Workload,
    patience: Duration,
) -> anyhow::Result<Prepared> {
    let all = preparation.publications.len();
    let (mut rest, mut most, mut pauses_s) = (preparation.publications.clone(), all, PAUSES_S.into_iter());
    for round in 1.. {
        let later = rest.split_off(most.min(rest.len()));
        let asked = rest.len();
        let flood = preparation
            .floods
            .iter()
            .map(|flood| Flood { count: u32::try_from(asked).unwrap_or(0), ..*flood });
        let plan = Workload { publications: rest, floods: flood.collect(), ..preparation.clone() };
        let (prepared, refused, complaint) = store(target, plan, patience).await?;
        let taken = asked - refused.len();
        rest = [refused, later].concat();
        if rest.is_empty() {
            return Ok(prepared);
        }
        if taken < asked {
            most = taken.max(1);
        }
        if taken > 0 {
            pauses_s = PAUSES_S.into_iter();
        }
        // The first complaint may be of an event that the relay has.
        let may_help = taken > 0 || RATE.iter().any(|words| complaint.contains(words));
        let pause_s = pauses_s.next().filter(|_| may_help && round < MOST_ROUNDS);
        let Some(pause_s) = pause_s else {
            bail!(
                "the relay refused {} of the {all} events that the scenario asks for later; its first complaint: {complaint}",
                rest.len(),
            );
        };
        sleep(Duration::from_secs(pause_s)).await;
    }
    unreachable!("the last round returns")
}

/// Plays [`Workload::preparation`]: a request, the events to store, another request. Returns the refused
/// events and the relay's first complaint.
async fn store(
    target: &Target,
    preparation: Workload,
    patience: Duration,
) -> anyhow::Result<(Prepared, Vec<Publication>, String)> {
    let doing = "while the relay was given the events to ask for";
    let mut client = Alone::connect(target, Shared::new(preparation), doing).await?;
    let agreement = client.driver.agreement();
    let agreement = agreement.context("the preparing client connects before the start")?.clone();
    client.first_eose(&agreement, patience).await?;
    client.play(Due::Flood(0)).await?;
    // A relay may index stored events at the first request, so make one before the clock starts.
    client.play(Due::Session(1)).await?;
    let shared = Arc::clone(&client.shared);
    let report = client.driver.finish().await.report;
    let publications = shared.workload.publications.iter().enumerate();
    let refused = publications.filter(|(n, _)| shared.fate(*n) == Fate::Rejected);
    let refused = refused.map(|(_, publication)| *publication).collect();
    let prepared = Prepared {
        agreement,
        address: target.relay.reached(),
        live_limit: 0,
        ungreeted: report.ungreeted,
        first_delivery: None,
        wrong: 0,
        totals: None,
    };
    Ok((prepared, refused, report.complaint().to_owned()))
}

/// Requests every stored event that the plan asks for, once a pass, as a client that speaks this, so that
/// the relay has encoded it (docs/decisions/warm.md). Returns how much came wrong, which `incidents` names, and what the passes cost the relay, unless its
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
        client.play(Due::Session(pass)).await?;
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

/// The ids of events outside the plan that the relay has and that reconciliations would name.
///
/// # Errors
/// When the relay cannot be reached, does not end a reconciliation, or has too many.
pub(crate) async fn foreign(target: &Target, workload: &Workload) -> anyhow::Result<HashSet<[u8; 32]>> {
    const MOST: usize = 1_000_000;
    let Some(plan) = workload.reconciling_all()? else { return Ok(HashSet::new()) };
    let sessions = u32::try_from(plan.sessions.len())?;
    let doing = "while the relay was asked what else it has";
    let mut client = Alone::connect(target, Shared::new(plan), doing).await?;
    for session in 0..sessions {
        client.play(Due::Session(session)).await?;
    }
    let report = client.driver.finish().await.report;
    anyhow::ensure!(
        report.counts.requests_completed == u64::from(sessions),
        "the relay does not reconcile the events of the run{}",
        report.said()
    );
    let foreign: HashSet<_> = report.foreign.into_iter().collect();
    anyhow::ensure!(
        foreign.len() <= MOST,
        "the relay has {} events beside those of the run, and each reconciliation would name them: at most {MOST} are \
         looked through; use an emptier relay, or reconcile kinds of which it has fewer",
        foreign.len()
    );
    Ok(foreign)
}

/// Waits until another agent has published the stored events, of which the last one is requested.
/// Subscriptions that are open earlier would receive these events.
///
/// # Errors
/// When the relay cannot be reached, or does not have the event after ten minutes.
pub(crate) async fn wait_for_stored(target: &Target, workload: &Workload) -> anyhow::Result<()> {
    const PAUSE: Duration = Duration::from_millis(100);
    const ATTEMPTS: u32 = 6_000;
    let Some(last) = workload.asked().pop() else { return Ok(()) };
    let plan = workload.passes(&[last], ATTEMPTS, Speaks::default())?;
    let doing = "while agent 0 gave the relay the events to ask for";
    let mut client = Alone::connect(target, Shared::new(plan), doing).await?;
    for attempt in 0..ATTEMPTS {
        client.play(Due::Session(attempt)).await?;
        if client.driver.report().counts.deliveries > 0 {
            client.driver.finish().await;
            return Ok(());
        }
        sleep(PAUSE).await;
    }
    bail!("agent 0 did not give the relay the events to ask for within ten minutes")
}

/// The only client of a plan, before the clock starts. It waits until the relay has sent all that it
/// owes. Only answers that it owes extend the wait.
struct Alone {
    driver: Driver,
    shared: Arc<Shared>,
    /// The purpose of the wait, as an error says it.
    doing: &'static str,
    patience: Duration,
    deadline: Instant,
}

impl Alone {
    /// Connects.
    ///
    /// # Errors
    /// When the relay cannot be reached, or agrees on another format or compression.
    async fn connect(target: &Target, shared: Shared, doing: &'static str) -> anyhow::Result<Alone> {
        let (shared, dialer) = (Arc::new(shared), Arc::new(Dialer::new(target.clone(), 1)));
        let mut driver = Driver::open(Arc::clone(&shared), Rc::default(), dialer, 0).await?;
        driver.start(std::time::Instant::now());
        Ok(Alone { driver, shared, doing, patience: PATIENCE, deadline: Instant::now() })
    }

    /// Does what is due, and waits until it is done.
    ///
    /// # Errors
    /// When the connection ends, or the relay does not read it, or sends nothing of what it owes, for
    /// 30 s.
    async fn play(&mut self, due: Due) -> anyhow::Result<()> {
        let pieces = match due {
            Due::Flood(n) => i64::from(self.shared.workload.floods[n as usize].count),
            _ => 1,
        };
        let rest = self.shared.outstanding() - pieces;
        self.deadline = Instant::now() + self.patience;
        let begun = timeout_at(self.deadline, self.driver.on_due(due)).await.ok();
        self.in_time(begun, "read nothing of what it was sent")?;
        let mut came = self.came();
        while self.shared.outstanding() > rest {
            let turn = timeout_at(self.deadline, self.driver.turn()).await.ok();
            self.in_time(turn, "sent nothing of what it owes")?;
            let report = self.driver.report();
            if report.counts.decode_errors > 0 {
                bail!("{}: the relay sent {}", self.doing, report.complaint());
            }
            if self.came() > came {
                came = self.came();
                self.deadline = Instant::now() + self.patience;
            }
        }
        Ok(())
    }

    /// Answers to what is owed, less what is outstanding.
    fn came(&self) -> i64 {
        let counts = &self.driver.report().counts;
        let answers = counts.deliveries + counts.requests_completed;
        i64::try_from(answers).unwrap_or(i64::MAX).saturating_sub(self.shared.outstanding())
    }

    /// Makes the first request, and waits for its EOSE.
    ///
    /// # Errors
    /// [`NoEose`], or an answer that is not in the agreed format.
    async fn first_eose(&mut self, agreement: &Agreement, patience: Duration) -> anyhow::Result<()> {
        self.driver.on_due(Due::Session(0)).await?;
        let deadline = Instant::now() + patience;
        while self.driver.report().counts.requests_completed == 0 {
            let Ok(turn) = timeout_at(deadline, self.driver.turn()).await else {
                let filter = &self.shared.workload.sessions[0].steps[0][0].filter;
                let said = self.driver.report().said();
                return Err(NoEose { patience, request: incidents::request("s0-0-0", filter), said }.into());
            };
            turn.context("no answer to the first request")?;
            judge_first_answer(self.driver.report(), agreement)?;
        }
        Ok(())
    }

    /// What was done before the deadline; without it the relay did nothing of this.
    fn in_time(&self, done: Option<anyhow::Result<()>>, nothing: &str) -> anyhow::Result<()> {
        let silence = || {
            let (seconds, url) = (self.patience.as_secs(), self.driver.relay());
            let said = self.driver.report().said();
            format!("for {seconds} s {url} {nothing}{said}: its log may say why, or start it anew")
        };
        done.with_context(silence).and_then(|done| done).context(self.doing)
    }
}

/// Fails unless the first message decodes: a server that echoes any subprotocol token may know none
/// of them.
fn judge_first_answer(report: &Report, agreement: &Agreement) -> anyhow::Result<()> {
    let format = agreement.format;
    match (report.complaint(), &agreement.token) {
        ("", _) => Ok(()),
        (_, Some(token)) if report.counts.decode_errors > 0 => bail!(
            "the relay echoed {token}, but its first message is not {format} (an echoed token proves nothing)"
        ),
        (_, None) if report.counts.decode_errors > 0 => {
            bail!("the relay's first message is not {format}")
        }
        (complaint, _) => bail!("the relay refused the first request: {complaint}"),
    }
}

#[cfg(test)]
mod tests {
    use codecs::{Event, Format, RelayMessage};
    use tokio::{net::TcpListener, time::timeout};
    use wire::{Accepted, ServerConfig, Support, WireLimits};

    use super::*;
    use workload::{inputs::plan_over, scenario::Scenario};

    /// A plan of one pass over some stored events.
    fn pass(events: usize) -> Workload {
        let scenario = Scenario::load("follow-list-burst").unwrap();
        let corpus = corpus::Corpus::bundled();
        let workload = plan_over(&scenario, &corpus, 1, &[Format::JSON]).unwrap();
        workload.passes(&workload.asked()[..events], 1, Speaks::default()).unwrap()
    }

    /// A relay that answers the first message by these, each after a pause, and the last of them
    /// again and again. Without answers it reads nothing.
    async fn relay(listener: TcpListener, pause: Duration, answers: Vec<RelayMessage<'static>>) {
        let support = Support::default();
        let config =
            ServerConfig { support, limits: WireLimits::default(), relay_info: String::new(), tls: None };
        let (stream, _) = listener.accept().await.unwrap();
        let Ok(Accepted::WebSocket(mut peer)) = wire::accept(stream, &config).await else {
            panic!("a client connects")
        };
        let Some(last) = answers.last().cloned() else { return std::future::pending().await };
        peer.next().await.unwrap().unwrap();
        for answer in answers.into_iter().chain(std::iter::repeat(last)) {
            tokio::time::sleep(pause).await;
            let mut bytes = Vec::new();
            Format::JSON.spec().library.encode_relay(&answer, &mut bytes).unwrap();
            peer.feed(bytes.into()).await.unwrap();
            peer.flush().await.unwrap();
        }
    }

    /// Lets a client begin this until it has what it is owed, or lost its patience of a second.
    async fn owed(
        (workload, due): (Workload, Due),
        pause_ms: u64,
        answers: Vec<RelayMessage<'static>>,
    ) -> anyhow::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target::plain(&listener);
        let client = async {
            let client = Alone::connect(&target, Shared::new(workload), "in a test").await?;
            Alone { patience: Duration::from_secs(1), ..client }.play(due).await
        };
        let talk = async {
            tokio::select! {
                done = client => done,
                () = relay(listener, Duration::from_millis(pause_ms), answers) => {
                    unreachable!("it answers for ever")
                }
            }
        };
        timeout(Duration::from_secs(30), talk).await.expect("the wait ends")
    }

    fn delivery(event: &Event<'_>) -> RelayMessage<'static> {
        let event = std::borrow::Cow::Owned(event.clone().into_owned());
        RelayMessage::Event { subscription: "s0-0-0".into(), event }
    }

    /// The relay is given up after a second without this.
    async fn is_given_up(work: (Workload, Due), answers: Vec<RelayMessage<'static>>, nothing: &str) {
        let error = format!("{:#}", owed(work, 20, answers).await.unwrap_err());
        assert!(error.starts_with("in a test: for 1 s ws://127.0.0.1:"), "{error}");
        assert!(
            error.contains(nothing) && error.ends_with(": its log may say why, or start it anew"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_relay_that_reads_nothing_is_given_up() {
        let mut workload = pass(5).preparation(1, true);
        // A window of more than the system keeps for a peer that does not read.
        let (events, long) = (Arc::make_mut(&mut workload.events), "x".repeat(500_000));
        events.iter_mut().take(64).for_each(|event| event.content = long.clone().into());
        is_given_up((workload, Due::Flood(0)), vec![], "read nothing of what it was sent").await;
    }

    #[tokio::test]
    async fn a_relay_that_talks_and_does_not_answer_is_given_up() {
        let workload = pass(5);
        let asked = workload.asked();
        let stray = workload.events.iter().zip(0..).find(|(_, n)| !asked.contains(n)).unwrap().0;
        for answers in [
            vec![RelayMessage::Notice { text: "patience".into() }],
            vec![delivery(stray)],
            vec![delivery(&workload.events[asked[0] as usize])],
        ] {
            is_given_up((workload.clone(), Due::Session(0)), answers, "sent nothing of what it owes").await;
        }
    }

    #[tokio::test]
    async fn a_slow_relay_that_sends_what_it_owes_is_waited_for() {
        let workload = pass(5);
        let mut answers: Vec<_> =
            workload.asked().iter().map(|event| delivery(&workload.events[*event as usize])).collect();
        answers
            .push(RelayMessage::Eose { subscription: "s0-0-0".into(), hints: codecs::EoseHints::default() });
        // Longer than the patience in all.
        owed((workload, Due::Session(0)), 300, answers).await.unwrap();
    }
}
