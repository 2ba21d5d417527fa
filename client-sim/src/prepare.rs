//! Prepares the relay before the clock starts: checks that it speaks the agreed format, and stores
//! the events that the plan asks for.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration, time::Instant};

use anyhow::{Context, bail};
use tokio::time::timeout;
use wire::Agreement;

use crate::{
    client::Report,
    dial::{Dialer, Target},
    driver::Driver,
    recorder::Recorder,
    shared::{Fate, Shared},
    workload::{Due, Workload},
};

/// How long the relay may take for one answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Connects once, checks the agreement by a first request, and publishes the events that the relay
/// must hold.
///
/// # Errors
/// When the relay cannot be reached, agrees on another format or compression, does not speak the
/// agreed format, or refuses an event.
pub(crate) async fn prepare(target: &Target, workload: &Workload) -> anyhow::Result<Agreement> {
    let shared = Arc::new(Shared::new(workload.preparation()));
    let dialer = Arc::new(Dialer::new(target.clone(), 1));
    let recorder = Rc::new(RefCell::new(Recorder::default()));
    let mut driver = Driver::open(Arc::clone(&shared), recorder, dialer, 0).await?;
    let agreement = driver.agreement().context("the preparing client connects before the start")?.clone();
    driver.start(Instant::now());
    driver.on_due(Due::Session(0)).await?;
    while driver.report().counts.requests_completed == 0 {
        turn(&mut driver).await.context("no answer to the first request")?;
        judge_first_answer(driver.report(), &agreement)?;
    }
    driver.on_due(Due::Flood(0)).await?;
    while shared.outstanding() > 1 {
        store_turn(&mut driver).await?;
    }
    // A relay may put off the indexing of what it stored until somebody asks: before the clock
    // starts.
    driver.on_due(Due::Session(1)).await?;
    while !shared.is_done() {
        store_turn(&mut driver).await?;
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

/// Handles one answer while the stored events go to the relay.
async fn store_turn(driver: &mut Driver) -> anyhow::Result<()> {
    turn(driver).await.context("while the relay was given the events to ask for")?;
    let report = driver.report();
    match &report.complaint {
        Some(complaint) if report.counts.decode_errors > 0 || complaint.starts_with("NOTICE ") => {
            bail!("the relay was given the events to ask for and answered: {complaint}")
        }
        _ => Ok(()),
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
