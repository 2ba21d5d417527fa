//! Prepares the relay before the clock starts: checks that it speaks the agreed format, and stores
//! the events that the plan asks for.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use tokio::time::{Instant, timeout, timeout_at};
use wire::Agreement;

use crate::{
    client::Report,
    dial::{Dialer, Target},
    driver::Driver,
    incidents,
    recorder::Recorder,
    shared::{Fate, Shared},
    workload::{Due, Workload},
};

/// How long the relay may take for one step, whatever else it says meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the relay may take for the first EOSE, to `limit: 0`.
const PATIENCE_LIMIT_0: Duration = Duration::from_secs(10);

/// No EOSE came to a first request.
#[derive(Debug, thiserror::Error)]
#[error("for {} s the relay sent no EOSE to {request}", .patience.as_secs())]
struct NoEose {
    patience: Duration,
    request: String,
}

/// Connects once, checks the agreement by a first request, and publishes the events that the relay
/// must hold. Returns the agreement and the limit of live subscriptions: 0, or 1 for a relay that
/// sends no EOSE to `limit: 0`.
///
/// # Errors
/// When the relay cannot be reached, agrees on another format or compression, does not speak the
/// agreed format, sends no EOSE, or refuses an event.
pub(crate) async fn prepare(target: &Target, workload: &Workload) -> anyhow::Result<(Agreement, u64)> {
    let silent = match prepare_with(target, workload, (0, PATIENCE_LIMIT_0)).await {
        Err(error) if error.is::<NoEose>() => error,
        agreement => return Ok((agreement?, 0)),
    };
    let agreement = prepare_with(target, workload, (1, PATIENCE)).await;
    Ok((agreement.with_context(|| silent.to_string())?, 1))
}

async fn prepare_with(
    target: &Target,
    workload: &Workload,
    (limit, patience): (u64, Duration),
) -> anyhow::Result<Agreement> {
    let shared = Arc::new(Shared::new(workload.preparation(limit)));
    let dialer = Arc::new(Dialer::new(target.clone(), 1));
    let recorder = Rc::new(RefCell::new(Recorder::default()));
    let mut driver = Driver::open(Arc::clone(&shared), recorder, dialer, 0).await?;
    let agreement = driver.agreement().context("the preparing client connects before the start")?.clone();
    driver.start(std::time::Instant::now());
    driver.on_due(Due::Session(0)).await?;
    let deadline = Instant::now() + patience;
    while driver.report().counts.requests_completed == 0 {
        let Ok(turn) = timeout_at(deadline, driver.turn()).await else {
            let filter = &shared.workload.sessions[0].steps[0][0].filter;
            return Err(NoEose { patience, request: incidents::request("s0-0-0", filter) }.into());
        };
        turn.context("no answer to the first request")?;
        judge_first_answer(driver.report(), &agreement)?;
    }
    driver.on_due(Due::Flood(0)).await?;
    let mut progress = Progress::new(&shared);
    while shared.outstanding() > 1 {
        progress.turn(&mut driver).await?;
    }
    // A relay may put off the indexing of what it stored until somebody asks: before the clock
    // starts.
    driver.on_due(Due::Session(1)).await?;
    while !shared.is_done() {
        progress.turn(&mut driver).await?;
    }
    let report = driver.finish().await.report;
    let publications = shared.workload.publications.len();
    let refused = (0..publications).filter(|n| shared.fate(*n) == Fate::Rejected).count();
    if refused > 0 {
        bail!(
            "the relay refused {refused} of the {publications} events that the scenario asks for later; its first complaint: {}",
            report.complaint.unwrap_or_default()
        );
    }
    Ok(agreement)
}

/// Waits for answers while the stored events go to the relay. Only answers that were owed extend
/// the wait.
struct Progress<'s> {
    shared: &'s Shared,
    outstanding: i64,
    deadline: Instant,
}

impl<'s> Progress<'s> {
    fn new(shared: &'s Shared) -> Self {
        Progress { shared, outstanding: shared.outstanding(), deadline: Instant::now() + PATIENCE }
    }

    /// Handles one message.
    async fn turn(&mut self, driver: &mut Driver) -> anyhow::Result<()> {
        let (seconds, open) = (PATIENCE.as_secs(), self.outstanding);
        let silence = || format!("for {seconds} s the relay sent none of {open} answers that it owed");
        let turn = timeout_at(self.deadline, driver.turn()).await.with_context(silence);
        turn.and_then(|turn| turn).context("while the relay was given the events to ask for")?;
        let outstanding = self.shared.outstanding();
        if outstanding < self.outstanding {
            self.outstanding = outstanding;
            self.deadline = Instant::now() + PATIENCE;
        }
        let report = driver.report();
        match &report.complaint {
            Some(complaint) if report.counts.decode_errors > 0 || complaint.starts_with("NOTICE ") => {
                bail!("the relay was given the events to ask for and answered: {complaint}")
            }
            _ => Ok(()),
        }
    }
}

/// Handles one answer, for which the relay has [`PATIENCE`].
pub(crate) async fn turn(driver: &mut Driver) -> anyhow::Result<()> {
    let silence = || format!("the relay was silent for {} s", PATIENCE.as_secs());
    timeout(PATIENCE, driver.turn()).await.with_context(silence)?
}

/// Fails unless the first message decodes: a server that echoes any subprotocol token may know none
/// of them.
fn judge_first_answer(report: &Report, agreement: &Agreement) -> anyhow::Result<()> {
    let format = agreement.format;
    match (&report.complaint, &agreement.token) {
        (None, _) => Ok(()),
        (Some(_), Some(token)) if report.counts.decode_errors > 0 => bail!(
            "the relay echoed {token}, but its first message is not {format} (an echoed token proves nothing)"
        ),
        (Some(_), None) if report.counts.decode_errors > 0 => {
            bail!("the relay's first message is not {format}")
        }
        (Some(complaint), _) => bail!("the relay refused the first request: {complaint}"),
    }
}
