//! Steps of a block in its page, those of each part.

use anyhow::Result;
use serde_json::json;

use super::{error::BrowserError, page::Page, relays::Relays};
use report::result::{BrowserBlock, BrowserCell, BrowserStep, Part};

/// Events of the cold step: a first screen or two.
const COLD_EVENTS: u32 = 100;
/// Time of the step before the measured one: V8 has optimised a hot function by then.
pub(crate) const WARM_UP_MS: u32 = 200;
/// Requests before the measured ones.
const WARM_UP_REQUESTS: u64 = 3;
/// Live events of a step, and of the warm-up before it.
const LIVE_EVENTS: usize = 2_000;
const WARM_UP_LIVE_EVENTS: usize = 500;
/// Requests of a step at most.
const MAX_REQUESTS: u64 = 1_000;
/// How far the kernel's and the browser's count of the main thread may be apart. The browser counts
/// tasks, and not what wakes the thread for each frame of a WebSocket.
const COUNTS_DIFFER: f64 = 0.1;
const COUNTS_DIFFER_OVER_SOCKETS: f64 = 0.3;

/// Decodes: the first events of a page, then as many as a step has time for.
pub(crate) async fn decode(
    page: &mut Page<'_>,
    cell: &BrowserCell,
    step_ms: u32,
) -> Result<BrowserBlock, BrowserError> {
    let [row, set, id] = [&cell.row, &cell.events, &cell.id].map(|text| json!(text));
    page.run(&format!("bench.prepare({row}, {set}, {id})")).await?;
    page.collect().await?;
    page.measure_empty(&["bench.cold(0)"]).await?;
    let cold = page.step(&format!("bench.cold({COLD_EVENTS})")).await?;
    page.run(&format!("bench.warm({WARM_UP_MS})")).await?;
    let warm = page.step(&format!("bench.warm({step_ms})")).await?;
    let why = doubts(&warm, cell.part);
    Ok(BrowserBlock { cold: Some(cold), warm: Some(warm), why, ..BrowserBlock::default() })
}

/// Asks for the stored events until EOSE, again and again.
pub(crate) async fn end_to_end(
    page: &mut Page<'_>,
    cell: &BrowserCell,
    relays: &Relays,
    step_ms: u32,
) -> Result<BrowserBlock, BrowserError> {
    connect(page, cell, relays).await?;
    page.collect().await?;
    page.measure_empty(&["bench.request(0)"]).await?;
    let first = page.step(&format!("bench.request({WARM_UP_REQUESTS})")).await?;
    let step_ns = u64::from(step_ms) * 1_000_000 * WARM_UP_REQUESTS;
    let times = (step_ns / first.wall_ns.max(1)).clamp(1, MAX_REQUESTS);
    let warm = page.step(&format!("bench.request({times})")).await?;
    let why = doubts(&warm, cell.part);
    Ok(BrowserBlock { warm: Some(warm), why, ..BrowserBlock::default() })
}

/// Waits for live events.
pub(crate) async fn live(
    page: &mut Page<'_>,
    cell: &BrowserCell,
    relays: &Relays,
) -> Result<BrowserBlock, BrowserError> {
    connect(page, cell, relays).await?;
    page.run("bench.request(1)").await?;
    page.collect().await?;
    page.measure_empty(&["bench.expect(0)", "bench.expected()"]).await?;
    let mut steps = Vec::new();
    for count in [WARM_UP_LIVE_EVENTS, LIVE_EVENTS] {
        let failed =
            |error: anyhow::Error| BrowserError::Relay { cell: cell.id.clone(), why: format!("{error:#}") };
        let publication = relays.publication(cell, count).await.map_err(failed)?;
        let work = async { publication.send().await.map_err(failed) };
        steps.push(page.step_around(&format!("bench.expect({count})"), work, "bench.expected()").await?);
    }
    let warm = steps.pop().unwrap_or_default();
    let why = doubts(&warm, cell.part);
    Ok(BrowserBlock { warm: Some(warm), why, ..BrowserBlock::default() })
}

/// Connects the page to the relay of the cell's compression, and checks what was agreed.
pub(crate) async fn connect(
    page: &mut Page<'_>,
    cell: &BrowserCell,
    relays: &Relays,
) -> Result<(), BrowserError> {
    let failed = |why: String| BrowserError::Page { expression: format!("connecting for {}", cell.id), why };
    let relay = relays.for_cell(cell).map_err(|error| failed(format!("{error:#}")))?;
    let [row, url, token, id] = [&cell.row, &relay.url, &relay.token, &cell.id].map(|text| json!(text));
    let request = &relay.request;
    let agreed = page.run(&format!("bench.connect({row}, {url}, {token}, {request}, {id})")).await?;
    let deflates = agreed["extensions"].as_str().is_some_and(|text| text.contains("permessage-deflate"));
    if agreed["protocol"] != token || deflates != (cell.compression == "deflate") {
        return Err(failed(format!("the relay agreed to {agreed} where {token} was asked for")));
    }
    Ok(())
}

/// Why a step does not count.
fn doubts(step: &BrowserStep, part: Part) -> Vec<String> {
    let most = if part.is_over_sockets() { COUNTS_DIFFER_OVER_SOCKETS } else { COUNTS_DIFFER };
    let (kernel, browser) = (step.main_ns as f64, step.inside_ns as f64);
    let differ = (kernel - browser).abs() > most * kernel.max(browser);
    let text = || {
        format!(
            "the kernel counted {:.1} ms of the main thread and the browser {:.1}",
            kernel / 1e6,
            browser / 1e6
        )
    };
    differ.then(text).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_whose_two_counts_of_cpu_are_a_tenth_apart_does_not_count() {
        let step = |main_ns, inside_ns| BrowserStep { main_ns, inside_ns, ..BrowserStep::default() };
        let counts = |main_ns, inside_ns, part| doubts(&step(main_ns, inside_ns), part).is_empty();
        assert!(counts(100_000_000, 91_000_000, Part::Decode));
        assert!(counts(91_000_000, 100_000_000, Part::InProportion));
        assert!(
            !counts(100_000_000, 80_000_000, Part::Decode) && !counts(80_000_000, 100_000_000, Part::Decode)
        );
        assert!(
            counts(100_000_000, 80_000_000, Part::Live) && !counts(100_000_000, 60_000_000, Part::EndToEnd)
        );
    }
}
