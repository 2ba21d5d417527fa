//! `compare browser`: what a page in Chromium spends on events in each format.
//!
//! Every block is a fresh page in a browsing context of its own, and so in a renderer of its own:
//! within a page V8's inline caches and optimised code are shared between decoders. CPU is read
//! from outside, from the kernel's clocks of the renderer and of the network process, with an empty
//! step subtracted ([`docs/browsers.md`](../../docs/browsers.md)). With `--serve` a person opens the
//! page on a device, which plays the same blocks in frames; what is measured there is wall time.
//!
//! To add a decoder, add a row to `compare/browser/src/rows.js`.

mod cdp;
mod chromium;
mod device;
mod error;
mod events;
mod host;
mod page;
mod relays;
mod rows;
mod server;

use std::{
    collections::BTreeSet,
    future::Future,
    io::{self, Write},
    net::{Ipv4Addr, SocketAddrV4},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use measure::{CorpusRecord, Status};
use serde_json::{Value, json};
use tokio::sync::oneshot;

pub use self::error::BrowserError;
use self::{
    chromium::Chromium,
    device::Device,
    events::{ALL, Events},
    host::Host,
    page::Page,
    relays::Relays,
    server::{Server, Socket},
};
pub(crate) use self::{
    chromium::find,
    events::{LISTS, MIXED},
    rows::{Asked, Rows},
};
use crate::{
    plan::Plan,
    progress::Progress,
    result::{
        Browser, BrowserBlock, BrowserCell, BrowserConfig, BrowserSoftware, BrowserStep, EventSet, Part,
    },
    run::Stopped,
};

/// Events of the cold step: a first screen or two.
const COLD_EVENTS: u32 = 100;
/// Time of the step before the measured one: V8 has optimised a hot function by then.
const WARM_UP_MS: u32 = 200;
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
/// What a block takes beyond its steps, before one was measured.
const BLOCK_OVERHEAD: Duration = Duration::from_millis(700);

/// What the page runs on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Client<'a> {
    /// This browser, headless on this machine.
    Browser(&'a Path),
    /// A device that a person opens the page on, which is served at this address.
    Device(SocketAddrV4),
}

/// What is measured where.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    /// What the page runs on.
    pub(crate) client: Client<'a>,
    /// What was asked for.
    pub(crate) config: &'a BrowserConfig,
    /// The cells without blocks.
    pub(crate) cells: Vec<BrowserCell>,
    /// A row whose decoder is broken on purpose.
    pub(crate) plant: Option<&'a str>,
    /// Whether progress is hidden.
    pub(crate) quiet: bool,
}

/// What was measured until the end, or until it was stopped.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) browser: Browser,
    pub(crate) corpus: CorpusRecord,
    pub(crate) status: Status,
    pub(crate) stopped: Option<Stopped>,
    /// The order of the blocks, by the cells' places.
    pub(crate) plan: Plan,
}

/// Everything that a block needs.
struct Bench {
    host: Host,
    relays: Relays,
    step_ms: u32,
}

/// Compares every decoder with `JSON.parse`, then measures all rounds.
///
/// # Errors
/// Before anything is measured: without a browser, or when a decoder differs from `JSON.parse`.
/// Later errors end the run and stand in [`Found::status`].
pub(crate) async fn measure(question: Question<'_>, interrupt: impl Future<Output = ()>) -> Result<Found> {
    let Question { client, config, mut cells, plant, quiet } = question;
    let mut interrupt = Box::pin(interrupt);
    let events = Arc::new(Events::read(config.corpus.as_deref(), &config.formats)?);
    let address = match client {
        Client::Browser(_) => SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0),
        Client::Device(address) => address,
    };
    let (sender, arrival) = oneshot::channel();
    let server = Server::start(Arc::clone(&events), address, Some(sender)).await?;
    let relays = Relays::start(&events, &cells, *address.ip())?;
    for cell in &mut cells {
        cell.input_bytes = events.input_bytes(cell)?;
    }
    let sets = described(&events, &cells)?;
    let rows = Rows::bundled();
    let decoders = rows.decoders(&config.formats);
    let prepared = async {
        let host = host(client, &server.url, arrival).await?;
        let mut bench = Bench { host, relays, step_ms: config.step_ms };
        let software = bench.software().await?;
        bench.check(&decoders, plant).await?;
        let not_measured = bench.reach(&mut cells).await?;
        bench.check_received(&cells).await?;
        Ok::<_, anyhow::Error>((bench, software, not_measured))
    };
    let (mut bench, software, not_measured) = tokio::select! {
        prepared = prepared => prepared?,
        () = interrupt.as_mut() => bail!("interrupted before anything was measured"),
    };
    if let (true, [why, ..]) = (cells.is_empty(), not_measured.as_slice()) {
        bail!("nothing is left to measure: {why}");
    }
    let plan = Plan::of_loads(&loads(&cells), config.rounds, config.seed);
    let guess = BLOCK_OVERHEAD + Duration::from_millis(u64::from(config.step_ms + WARM_UP_MS));
    let mut progress = Progress::new(plan.blocks(), guess, quiet);
    progress.say(&format!("{} decoders read every event as JSON.parse does", decoders.len()));
    not_measured.iter().for_each(|left_out| progress.say(&format!("not measured: {left_out}")));
    let ended = rounds(&mut bench, &mut cells, &plan, &mut progress, interrupt).await;
    progress.end();
    let (status, stopped, words) = match ended {
        Ok(None) => (Status::Complete, None, "Done: compare has the result."),
        Ok(Some(stopped)) => {
            let status = Status::Incomplete { reason: "interrupted".to_owned() };
            (status, Some(stopped), "Interrupted: compare keeps what was measured.")
        }
        Err(error) => {
            let status = Status::Incomplete { reason: error.to_string() };
            (status, Some(Stopped::Failing), "The run failed: compare says why.")
        }
    };
    bench.host.stop(words).await;
    let (config, libraries) = (config.clone(), rows.libraries);
    let browser = Browser { config, software, libraries, events: sets, cells, not_measured };
    Ok(Found { browser, corpus: events.corpus.clone(), status, stopped, plan })
}

/// The sets of events that are decoded, and the one that decoders are checked on.
fn described(events: &Events, cells: &[BrowserCell]) -> Result<Vec<EventSet>> {
    let sets: BTreeSet<&str> = cells.iter().map(|cell| cell.events.as_str()).chain([ALL]).collect();
    sets.into_iter().map(|set| events.described(set)).collect()
}

/// Starts the browser, or waits for the device.
async fn host(client: Client<'_>, url: &str, arrival: oneshot::Receiver<Socket>) -> Result<Host> {
    match client {
        Client::Browser(program) => {
            Ok(Host::Chromium(Box::new(Chromium::start(program).await?), format!("{url}page.html")))
        }
        Client::Device(_) => {
            // A closed stderr leaves nobody who could open the page.
            writeln!(io::stderr(), "Open {url} on the device to measure; Ctrl-C ends the run.")?;
            let device = Device::new(arrival.await.context("the page is served no longer")?);
            writeln!(io::stderr(), "a device is connected and compares every decoder with JSON.parse first")?;
            Ok(Host::Device(Box::new(device)))
        }
    }
}

/// The places of each load's anchor and of its other cells.
fn loads(cells: &[BrowserCell]) -> Vec<(usize, Vec<usize>)> {
    let mut at = 0;
    let load =
        |one: &BrowserCell, other: &BrowserCell| (one.part, &one.events) == (other.part, &other.events);
    let places = cells.chunk_by(load).map(|load| {
        let anchor = at;
        at += load.len();
        (anchor, (anchor + 1..at).collect())
    });
    places.collect()
}

/// Runs the plan; says why it was not finished.
async fn rounds(
    bench: &mut Bench,
    cells: &mut [BrowserCell],
    plan: &Plan,
    progress: &mut Progress,
    mut interrupt: std::pin::Pin<Box<impl Future<Output = ()>>>,
) -> Result<Option<Stopped>, BrowserError> {
    let started = Instant::now();
    for (round, order) in plan.rounds.iter().enumerate() {
        for (position, &place) in order.iter().enumerate() {
            let cell = &mut cells[place];
            progress.block(round, plan.rounds.len(), &cell.id);
            bench.host.show(progress.shown()).await?;
            let began = Instant::now();
            let mut block = tokio::select! {
                block = bench.block(cell) => block?,
                () = interrupt.as_mut() => return Ok(Some(Stopped::Interrupted)),
            };
            block.round = u32::try_from(round).unwrap_or(u32::MAX);
            block.position = u32::try_from(position).unwrap_or(u32::MAX);
            block.started_after_ns = nanoseconds(began - started);
            block.process_ns = nanoseconds(began.elapsed());
            progress.finish(outcome(&block), block.why.is_empty());
            cell.blocks.push(block);
        }
    }
    Ok(None)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A block in a line.
fn outcome(block: &BrowserBlock) -> String {
    match (&block.warm, block.why.first()) {
        (_, Some(why)) => why.clone(),
        (Some(warm), None) if warm.events > 0 => {
            let (ns, of) = match warm.main_ns {
                0 => (warm.wall_ns, "by the page's clock"),
                ns => (ns, "of the main thread"),
            };
            format!("{:.2} µs {of} an event", ns as f64 / 1e3 / warm.events as f64)
        }
        _ => "nothing".to_owned(),
    }
}

impl Bench {
    /// What browser or device this is.
    async fn software(&mut self) -> Result<BrowserSoftware, BrowserError> {
        let mut page = Page::open(&mut self.host).await?;
        let about = page.run("bench.about()").await?;
        page.close().await?;
        self.host.software(&about).await
    }

    /// Compares decoders with `JSON.parse` on every event.
    async fn check(&mut self, decoders: &[&str], plant: Option<&str>) -> Result<(), BrowserError> {
        let mut page = Page::open(&mut self.host).await?;
        if let Some(row) = plant {
            page.run(&format!("bench.plant({})", json!(row))).await?;
        }
        for decoder in decoders {
            let found = page.run(&format!("bench.check({}, {})", json!(decoder), json!(ALL))).await?;
            if !found.is_null() {
                let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
                let decoder = (*decoder).to_owned();
                return Err(BrowserError::Differs { decoder, id: text("id"), found: text("found") });
            }
        }
        page.close().await.map(drop)
    }

    /// Leaves out the cells over sockets where a device does not reach their relays; says why.
    async fn reach(&mut self, cells: &mut Vec<BrowserCell>) -> Result<Vec<String>, BrowserError> {
        if matches!(self.host, Host::Chromium(..)) {
            return Ok(Vec::new());
        }
        let mut reached = BTreeSet::new();
        for cell in cells.iter().filter(|cell| cell.part.is_over_sockets()) {
            if !reached.insert(cell.compression.as_str()) {
                continue;
            }
            let mut page = Page::open(&mut self.host).await?;
            let connected = connect(&mut page, cell, &self.relays).await;
            page.close().await?;
            match connected {
                Err(BrowserError::Page { why, .. }) => {
                    cells.retain(|cell| !cell.part.is_over_sockets());
                    let what = "the parts over WebSockets, because the device does not reach a relay";
                    return Ok(vec![format!("{what}: {why}")]);
                }
                other => other?,
            }
        }
        Ok(Vec::new())
    }

    /// Compares what each cell receives of a relay with what the first does.
    async fn check_received(&mut self, cells: &[BrowserCell]) -> Result<(), BrowserError> {
        let mut expected: Option<Value> = None;
        for cell in cells.iter().filter(|cell| cell.part.is_over_sockets()) {
            let mut page = Page::open(&mut self.host).await?;
            connect(&mut page, cell, &self.relays).await?;
            let found = page.run("bench.received()").await?;
            page.close().await?;
            let expected = expected.get_or_insert_with(|| found.clone());
            if *expected != found || found["events"] == json!(0) {
                let (cell, expected) = (cell.id.clone(), expected.to_string());
                return Err(BrowserError::Received { cell, found: found.to_string(), expected });
            }
        }
        Ok(())
    }

    /// Measures a cell once, in a fresh page.
    async fn block(&mut self, cell: &BrowserCell) -> Result<BrowserBlock, BrowserError> {
        let mut page = Page::open(&mut self.host).await?;
        let mut block = match cell.part {
            Part::EndToEnd => end_to_end(&mut page, cell, &self.relays, self.step_ms).await?,
            Part::Live => live(&mut page, cell, &self.relays).await?,
            Part::Decode | Part::InProportion => decode(&mut page, cell, self.step_ms).await?,
        };
        page.collect().await?;
        block.heap_bytes = page.heap_bytes().await?;
        block.peak_bytes = page.peak_bytes();
        if page.close().await? {
            block.why.push("the page was hidden, and browsers slow down hidden pages".to_owned());
        }
        if let Host::Device(device) = &self.host {
            device.doubt_clock(&mut block);
        }
        Ok(block)
    }
}

async fn decode(page: &mut Page<'_>, cell: &BrowserCell, step_ms: u32) -> Result<BrowserBlock, BrowserError> {
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

async fn end_to_end(
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

async fn live(
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
async fn connect(page: &mut Page<'_>, cell: &BrowserCell, relays: &Relays) -> Result<(), BrowserError> {
    let failed = |why: String| BrowserError::Page { expression: format!("connecting for {}", cell.id), why };
    let relay = relays.of(cell).map_err(|error| failed(format!("{error:#}")))?;
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

/// Starts a runtime around [`measure`].
///
/// # Errors
/// See [`measure`].
pub(crate) fn run_until_signal(question: Question<'_>) -> Result<Found> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(async {
        let mut interrupt = crate::run::Interrupt::listen()?;
        measure(question, interrupt.wait()).await
    })
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

    #[test]
    fn each_load_has_its_cells_behind_its_anchor() {
        let all = ["json", "dannypack"].map(str::to_owned);
        let sets = [MIXED, LISTS].map(str::to_owned);
        let asked = Asked {
            parts: &[Part::Decode, Part::InProportion],
            formats: &all,
            sets: &sets,
            compressions: &[],
            batchings: &[],
        };
        let cells = Rows::bundled().cells(&asked).unwrap();
        let places = loads(&cells);
        assert_eq!(places.len(), 3);
        let flat: Vec<usize> = places
            .iter()
            .flat_map(|(anchor, others)| std::iter::once(anchor).chain(others))
            .copied()
            .collect();
        assert_eq!(flat, (0..cells.len()).collect::<Vec<_>>());
        let plan = Plan::of_loads(&places, 2, 1);
        assert!(plan.rounds.iter().all(|round| cells[round[0]].role == crate::Role::Anchor));
    }
}
