//! Before the clock starts: does the relay really speak what it agreed to, and does it hold the events that the
//! plan asks for?

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

/// Connects once, checks the agreement with a first message, and puts the stored events into the relay.
///
/// # Errors
/// When the relay cannot be reached, agreed on something else than asked, does not speak what it agreed to, or
/// refuses an event.
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
    while !shared.is_done() {
        turn(&mut driver).await.context("while the relay was given the events to ask for")?;
        let report = driver.report();
        match &report.complaint {
            Some(complaint) if report.counts.decode_errors > 0 || complaint.starts_with("NOTICE ") => {
                bail!("the relay was given the events to ask for and answered: {complaint}")
            }
            _ => {}
        }
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

async fn turn(driver: &mut Driver) -> anyhow::Result<()> {
    let silence = || format!("the relay was silent for {} s", PATIENCE.as_secs());
    timeout(PATIENCE, driver.turn()).await.with_context(silence)?
}

/// An echoed token proves nothing, a message that decodes does.
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
