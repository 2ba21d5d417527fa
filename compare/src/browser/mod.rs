//! `compare browser`: what a page in Chromium spends on events in each format.
//!
//! Every block is a fresh page in a browsing context of its own, and so in a renderer of its own:
//! within a page V8's inline caches and optimised code are shared between decoders. CPU is read
//! from outside, from the kernel's clocks of the renderer and of the network process, with an empty
//! step subtracted ([`docs/browsers.md`](../../docs/browsers.md)). With `--serve` a person opens the
//! page on a device, which plays the same blocks in frames; what is measured there is wall time.
//!
//! To add a decoder, add a row to `web/browser/src/rows.js`.

mod cdp;
mod chromium;
mod device;
mod error;
mod events;
mod host;
mod over_link;
mod page;
mod relays;
mod rows;
mod server;
mod steps;

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
use link::Link;
use measure::{CorpusRecord, Status};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use workload::schedule::nanos;

pub use self::error::BrowserError;
use self::{
    chromium::Chromium,
    device::Device,
    events::{ALL, Events},
    host::Host,
    over_link::OverLink,
    page::Page,
    relays::Relays,
    server::{Server, Socket},
    steps::{WARM_UP_MS, connect, decode, end_to_end, live},
};
pub(crate) use self::{
    chromium::find,
    events::{LISTS, MIXED},
    rows::{Rows, Selection},
};
use crate::{plan::BlockOrder, progress::Progress, run::Stopped};
use report::result::{Browser, BrowserBlock, BrowserCell, BrowserConfig, BrowserSoftware, EventSet, Part};

/// Time of a block beyond its steps, before one was measured.
const BLOCK_OVERHEAD: Duration = Duration::from_millis(700);

/// The host that the page runs on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Client<'a> {
    /// This browser, headless on this machine.
    Browser(&'a Path),
    /// A device that a person opens the page on, which is served at this address.
    Device(SocketAddrV4),
}

/// Parts to measure, and their host.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    /// The host that the page runs on.
    pub(crate) client: Client<'a>,
    /// The page that npm built.
    pub(crate) rows: &'a Rows,
    /// The run as asked for.
    pub(crate) config: &'a BrowserConfig,
    /// The emulated access link to the relays.
    pub(crate) link: Option<&'a Link>,
    /// The cells without blocks.
    pub(crate) cells: Vec<BrowserCell>,
    /// Whether progress is hidden.
    pub(crate) quiet: bool,
}

/// Blocks that were measured until the end, or until it was stopped.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) browser: Browser,
    pub(crate) corpus: CorpusRecord,
    pub(crate) status: Status,
    pub(crate) stopped: Option<Stopped>,
    /// The order of the blocks, by the cells' places.
    pub(crate) plan: BlockOrder,
}

/// Everything that a block needs.
struct Bench {
    host: Host,
    relays: Relays,
    link: Option<OverLink>,
    step_ms: u32,
}

/// Compares every decoder with `JSON.parse`, then measures all rounds.
///
/// # Errors
/// Before anything is measured: without a browser, or when a decoder differs from `JSON.parse`.
/// Later errors end the run and stand in [`Found::status`]. What was measured so far is passed to
/// `keep` after each block.
pub(crate) async fn measure(
    question: Question<'_>,
    keep: &dyn Fn(Found),
    interrupt: impl Future<Output = ()>,
) -> Result<Found> {
    let Question { client, rows, config, link, mut cells, quiet } = question;
    let mut interrupt = Box::pin(interrupt);
    let events = Arc::new(Events::read(config.corpus.as_deref(), config.skip_invalid, &config.formats)?);
    let address = match client {
        Client::Browser(_) => SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0),
        Client::Device(address) => address,
    };
    // In the relays' namespace before this process moves to that of the page.
    let at_relays =
        link.map(|link| OverLink::start(link, config.seed, || Relays::start(&events, &cells, link::RELAY)));
    let (sender, arrival) = oneshot::channel();
    let server = Server::start(rows.script.clone(), Arc::clone(&events), address, Some(sender)).await?;
    let (link, relays) = match at_relays.transpose()? {
        Some((link, relays)) => (Some(link), relays),
        None => (None, Relays::start(&events, &cells, *address.ip())?),
    };
    for cell in &mut cells {
        cell.input_bytes = events.input_bytes(cell)?;
    }
    let sets = described(&events, &cells)?;
    let corpus = events.corpus.clone();
    let decoders = rows.decoders(&config.formats);
    let prepared = async {
        let host = host(client, &server.url, arrival).await?;
        let mut bench = Bench { host, relays, link, step_ms: config.step_ms };
        let software = bench.software().await?;
        bench.check(&decoders).await?;
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
    let plan = BlockOrder::of_loads(&loads(&cells), config.rounds, config.seed);
    let step = match &bench.link {
        Some(link) => link.takes(sets.iter().find(|set| set.name == MIXED).map_or(0, |set| set.json_bytes)),
        None => Duration::from_millis(u64::from(config.step_ms + WARM_UP_MS)),
    };
    let guess = BLOCK_OVERHEAD + step;
    let mut progress = Progress::new(plan.blocks(), guess, quiet);
    progress.say(&format!("{} decoders read every event as JSON.parse does", decoders.len()));
    not_measured.iter().for_each(|left_out| progress.say(&format!("not measured: {left_out}")));
    let found = |cells: &[BrowserCell], status: Status, stopped: Option<Stopped>| {
        let (config, libraries) = (config.clone(), rows.libraries.clone());
        let (software, events, cells) = (software.clone(), sets.clone(), cells.to_vec());
        let browser =
            Browser { config, software, libraries, events, cells, not_measured: not_measured.clone() };
        Found { browser, corpus: corpus.clone(), status, stopped, plan: plan.clone() }
    };
    let keep = |cells: &[BrowserCell]| keep(found(cells, Status::Complete, None));
    let ended = rounds(&mut bench, &mut cells, &plan, &mut progress, &keep, interrupt).await;
    progress.end();
    let (status, stopped, words) = match ended {
        Ok(None) => (Status::Complete, None, "Done: compare has the result."),
        Ok(Some(stopped)) => {
            (Status::Interrupted, Some(stopped), "Interrupted: compare keeps what was measured.")
        }
        Err(error) => {
            let status = Status::Incomplete { reason: error.to_string() };
            (status, Some(Stopped::Failing), "The run failed: compare says why.")
        }
    };
    bench.host.stop(words).await;
    Ok(found(&cells, status, stopped))
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
    plan: &BlockOrder,
    progress: &mut Progress,
    keep: &dyn Fn(&[BrowserCell]),
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
            block.started_after_ns = nanos(began - started);
            block.process_ns = nanos(began.elapsed());
            progress.finish(outcome(&block), block.why.is_empty());
            cell.blocks.push(block);
            keep(cells);
        }
    }
    Ok(None)
}

/// A block in a line.
fn outcome(block: &BrowserBlock) -> String {
    match (&block.warm, block.why.first()) {
        (_, Some(why)) => why.clone(),
        (Some(warm), None) if warm.events > 0 => {
            let each = |ns: u64| ns as f64 / 1e3 / warm.events as f64;
            match (warm.main_ns, block.link_bytes) {
                (0, _) | (_, Some(_)) => format!("{:.2} µs an event by the page's clock", each(warm.wall_ns)),
                (ns, None) => format!("{:.2} µs of the main thread an event", each(ns)),
            }
        }
        _ => "nothing".to_owned(),
    }
}

impl Bench {
    /// Name and version of the browser or device.
    async fn software(&mut self) -> Result<BrowserSoftware, BrowserError> {
        let mut page = Page::open(&mut self.host).await?;
        let about = page.run("bench.about()").await?;
        page.close().await?;
        self.host.software(&about).await
    }

    /// Compares decoders with `JSON.parse` on every event.
    async fn check(&mut self, decoders: &[&str]) -> Result<(), BrowserError> {
        let mut page = Page::open(&mut self.host).await?;
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
            Part::EndToEnd => match &mut self.link {
                Some(link) => link.first_request(&mut page, cell, &self.relays).await?,
                None => end_to_end(&mut page, cell, &self.relays, self.step_ms).await?,
            },
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

/// Starts a runtime around [`measure`].
///
/// # Errors
/// See [`measure`].
pub(crate) fn run_until_signal(question: Question<'_>, keep: &dyn Fn(Found)) -> Result<Found> {
    crate::usage::until_signal(async |interrupt| measure(question, keep, interrupt.wait()).await)
}
