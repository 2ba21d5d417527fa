//! `compare browser`: what a page in a browser spends on events in each format.
//!
//! [`Pages`] plays blocks ([`Generator`]). Every block is a page in a new Chromium, because decoders of
//! one page share V8's inline caches and optimised code. The page gets its task from this program's
//! server, marks the begin and end of each step, and posts its figures. At a mark the program reads the
//! kernel's clocks of the renderer and of the network process
//! ([`docs/browsers.md`](../../docs/browsers.md)). With `--serve` a person opens the page on a device,
//! which plays the same blocks in frames and reports wall time.
//!
//! To add a decoder, add a row to `web/browser/src/rows.js`.

mod chromium;
mod events;
mod found;
mod relays;
mod rows;
mod server;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    io::{self, Write},
    net::{Ipv4Addr, SocketAddrV4},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result, bail, ensure};
use futures::{FutureExt, future::LocalBoxFuture};
use link::{DEFAULT_CONGESTION, Emulation, Link};
use measure::{CorpusRecord, Environment, Exit, LinkRecord, utc};
use serde_json::{Value, json};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time,
};
use wire::Compression;

pub(crate) use self::{
    chromium::find,
    events::{LISTS, MIXED},
    rows::{PageCell, Part, Rows, Selection},
};
use self::{
    chromium::{Chromium, Spent, spent},
    events::{ALL, Events},
    found::{Found, plain, whole},
    relays::Relays,
    server::Told,
};
use crate::{
    generator::{Generator, Interrupt, Played, Task},
    progress::Progress,
    usage::{Ended, until_signal},
};
use report::result::{Browser, DEVICE, Foreign};

/// Events of the first step: a screen or two.
const FIRST_EVENTS: u32 = 100;
/// Time of the step before the measured one: V8 has optimised a hot function by then.
const WARM_UP_MS: u32 = 200;
/// Requests before the measured ones.
const WARM_UP_REQUESTS: u32 = 3;
/// Live events of the warm-up and of the step.
const LIVE_EVENTS: [usize; 2] = [500, 2_000];
/// Time for a browser to finish its own start.
const SETTLES_MS: u32 = 300;
/// The longest silence of a page: a step lasts seconds, and a comparison of all events with `JSON.parse`
/// tens of seconds on a slow phone.
const PATIENCE: Duration = Duration::from_secs(120);
/// What a page may tell in a block; it tells a dozen things.
const MOST_TOLD: usize = 64;
/// Time for a device to ask for what it hears at the end.
const LEAVES_WITHIN: Duration = Duration::from_secs(1);

/// The host that the page runs on.
#[derive(Debug, Clone)]
pub(crate) enum Client {
    /// This browser, headless on this machine.
    Browser(PathBuf),
    /// A device that a person opens the page on, which is served at this address.
    Device(SocketAddrV4),
}

/// What to measure, and where.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    pub(crate) client: Client,
    /// The page that npm built.
    pub(crate) rows: &'a Rows,
    pub(crate) formats: &'a [String],
    pub(crate) corpus: Option<&'a str>,
    pub(crate) skip_invalid: bool,
    /// The emulated access link to the relays.
    pub(crate) link: Option<&'a Link>,
    pub(crate) step_ms: u32,
    pub(crate) seed: u64,
    /// The command line, for records.
    pub(crate) command: Vec<String>,
}

/// Plays blocks in pages.
#[derive(Debug)]
pub(crate) struct Pages {
    client: Client,
    /// Where the page is served.
    url: String,
    cells: BTreeMap<String, PageCell>,
    relays: Relays,
    link: Option<Link>,
    corpus: CorpusRecord,
    environment: Environment,
    command: Vec<String>,
    step_ms: u32,
    clock_ns: u64,
    state: Mutex<State>,
}

/// What one block has at a time.
#[derive(Debug)]
struct State {
    /// What pages tell.
    told: mpsc::Receiver<Told>,
    /// The number of the block in the page's address.
    block: u64,
    /// The first device that asked, by the name that it gave itself.
    device: Option<String>,
    /// Where the device waits for its next block.
    waiting: Option<oneshot::Sender<Value>>,
    emulation: Option<Emulation>,
}

/// A page's block.
#[derive(Debug)]
struct Seen {
    found: Found,
    /// Of a step in Chromium.
    spent: Option<Spent>,
    link: Option<LinkRecord>,
}

/// The page says that something failed.
#[derive(Debug, thiserror::Error)]
#[error("the page failed: {0}")]
struct PageFailed(String);

impl Pages {
    /// Serves the page, starts the relays, and compares every decoder with `JSON.parse` before anything
    /// is timed. Leaves out of `cells` what cannot be measured. Call it while this process has one
    /// thread: with a link it moves to another network namespace.
    ///
    /// # Errors
    /// Without a browser, or when a decoder differs.
    pub(crate) fn start(
        question: Question<'_>,
        cells: &mut Vec<PageCell>,
    ) -> Result<(Pages, Browser, Foreign)> {
        let Question { client, rows, formats, link, seed, step_ms, .. } = question;
        let events = Arc::new(Events::read(question.corpus, question.skip_invalid, formats)?);
        let (product, flags, address) = match &client {
            Client::Browser(program) => {
                (chromium::product(program)?, chromium::flags(), SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))
            }
            Client::Device(address) => (String::new(), Vec::new(), *address),
        };
        let served = || server::serve(rows.script.clone(), Arc::clone(&events), address);
        // In the relays' namespace before this process moves to that of the page.
        let (relays, emulation, (url, told)) = match link {
            Some(link) => {
                link::enter()?;
                // A browser binds no address: all of its connections share the link.
                let page = link::user_address(0, 0).context("one user of one link has an address")?;
                let links = std::slice::from_ref(link);
                let emulation = Emulation::start(links, seed, DEFAULT_CONGESTION, page, || {})
                    .context("cannot emulate the link (client-sim links says what this host needs)")?;
                let relays = Relays::start(&events, cells, link::RELAY)?;
                emulation.join_users()?;
                (relays, Some(emulation), served()?)
            }
            None => {
                let served = served()?;
                (Relays::start(&events, cells, *address.ip())?, None, served)
            }
        };
        if let Client::Device(_) = client {
            // A closed stderr leaves nobody who could open the page.
            writeln!(io::stderr(), "Open {url} on the device to measure; Ctrl-C ends the run.")?;
        }
        let mut pages = Pages {
            client,
            url,
            cells: cells.iter().map(|cell| (cell.spec.id.clone(), cell.clone())).collect(),
            relays,
            link: link.cloned(),
            corpus: events.corpus.clone(),
            environment: Environment::collect(),
            command: question.command,
            step_ms,
            clock_ns: 0,
            state: Mutex::new(State { told, block: 0, device: None, waiting: None, emulation }),
        };
        let decoders = rows.decoders(formats);
        let (about, not_measured) = until_signal(async |interrupt| {
            tokio::select! {
                prepared = pages.prepare(&decoders, cells) => prepared,
                () = interrupt.wait() => {
                    let reason = "interrupted before anything was measured".to_owned();
                    Err(Ended { exit: Exit::Interrupted, reason }.into())
                }
            }
        })?;
        if let (true, Some(why)) = (cells.is_empty(), &not_measured) {
            bail!("nothing is left to measure: {why}");
        }
        pages.clock_ns = whole(about.clock_ms * 1e6);
        ensure!(pages.clock_ns > 0, "the page does not say how its clock moves");
        let is_device = pages.is_device();
        ensure!(is_device || about.isolated, "the page is not isolated, so that its clock is too coarse");
        let sets: BTreeSet<&str> = cells.iter().map(|cell| &*cell.set).chain([ALL]).collect();
        let browser = Browser {
            client: if is_device { DEVICE } else { "browser" }.to_owned(),
            product: if is_device { plain(&about.user_agent) } else { product },
            flags,
            has_to_hex: about.has_to_hex,
            clock_ns: pages.clock_ns,
            step_ms,
            libraries: rows.libraries.clone(),
            events: sets.into_iter().map(|set| (set.to_owned(), events.in_set(set).len() as u64)).collect(),
        };
        let refused = (events.set_aside > 0)
            .then(|| ("a format of the run cannot hold them".to_owned(), events.set_aside as u64));
        let foreign = Foreign {
            declined: not_measured.into_iter().map(|why| format!("Not measured: {why}")).collect(),
            refused_events: refused.into_iter().collect(),
        };
        Ok((pages, browser, foreign))
    }

    fn is_device(&self) -> bool {
        matches!(self.client, Client::Device(_))
    }

    /// Compares decoders with `JSON.parse` on every event, and what each cell receives of a relay with
    /// what the first does. Leaves out the cells over sockets where a device does not reach a relay, and
    /// says why.
    async fn prepare(
        &self,
        decoders: &[&str],
        cells: &mut Vec<PageCell>,
    ) -> Result<(found::About, Option<String>)> {
        let different = |reason: String| {
            let reason = format!("{reason}; nothing was measured");
            Err(Ended { exit: Exit::Unbalanced, reason }.into())
        };
        let task =
            json!({ "deed": "check", "says": "JSON.parse", "wait_ms": 0, "rows": decoders, "set": ALL });
        let Found { about, differs, .. } = self.page(None, &task, Value::Null).await?.found;
        if let Some(found::Differs { row, id, found }) = differs {
            let (row, id, found) = (plain(&row), plain(&id), plain(&found));
            return different(format!("{row} reads event {id} otherwise than JSON.parse does: {found}"));
        }
        let about = about.context("the page does not say what it is")?;
        let mut expected = None;
        for cell in cells.iter().filter(|cell| cell.part.is_over_sockets()) {
            let mut task = self.relays.connection(cell)?;
            let token = task["token"].clone();
            task["deed"] = json!("receive");
            task["says"] = json!(cell.spec.id);
            task["wait_ms"] = json!(0);
            let found = match self.page(Some(cell), &task, Value::Null).await {
                Ok(seen) => seen.found,
                Err(error) if self.is_device() && error.is::<PageFailed>() => {
                    cells.retain(|cell| !cell.part.is_over_sockets());
                    let what = "the parts over WebSockets, because the device does not reach a relay";
                    return Ok((about, Some(format!("{what}: {error}"))));
                }
                Err(error) => return Err(error),
            };
            let agreed = found.agreed.unwrap_or_default();
            let deflates = agreed.extensions.contains("permessage-deflate");
            let asked = matches!(cell.spec.cell.compression, Compression::Deflate(_));
            ensure!(
                json!(agreed.protocol) == token && deflates == asked,
                "connecting for {}: the relay agreed to {:?} with {:?} where {token} was asked for",
                cell.spec.id,
                plain(&agreed.protocol),
                plain(&agreed.extensions)
            );
            let received = found.received.unwrap_or_default();
            let expected = expected.get_or_insert_with(|| received.clone());
            if *expected != received || received.events == 0 {
                let id = &cell.spec.id;
                let why = format!(
                    "{id} received {received:?} where JSON without compression received {expected:?}"
                );
                return different(plain(&why));
            }
        }
        Ok((about, None))
    }

    /// What the page of a cell's block does.
    fn task(&self, cell: &PageCell) -> Result<Value> {
        let mut task = match cell.part {
            Part::Decode | Part::InProportion => json!({
                "deed": "decode", "row": cell.row.name, "set": cell.set, "first_events": FIRST_EVENTS,
                "warm_up_ms": WARM_UP_MS,
            }),
            Part::EndToEnd => json!({
                "deed": "request", "connection": self.relays.connection(cell)?,
                // Over a link the first request is what a user waits for.
                "warm_up": if self.link.is_some() { 0 } else { WARM_UP_REQUESTS },
            }),
            Part::Live => {
                json!({ "deed": "live", "connection": self.relays.connection(cell)?, "counts": LIVE_EVENTS })
            }
        };
        task["step_ms"] = json!(self.step_ms);
        task["says"] = json!(cell.spec.id);
        task["wait_ms"] = json!(if self.is_device() { 0 } else { SETTLES_MS });
        Ok(task)
    }

    /// Has a fresh page do a task; shows `show` to who sits before a device.
    async fn page(&self, cell: Option<&PageCell>, task: &Value, show: Value) -> Result<Seen> {
        let mut guard = self.state.lock().await;
        let state = &mut *guard;
        state.block += 1;
        let mut chromium = match &self.client {
            Client::Browser(program) => {
                Some(Chromium::start(program, &format!("{}page.html?{}", self.url, state.block))?)
            }
            Client::Device(_) => {
                state.next_block(json!({ "block": state.block, "show": show })).await?;
                None
            }
        };
        let began = Instant::now();
        let (mut marks, mut publication, mut link) = (Vec::new(), None, None);
        for _ in 0..MOST_TOLD {
            let Told { what, said, answer, .. } = tokio::select! {
                told = state.heard() => told?,
                how = ended(&mut chromium) => bail!("Chromium ended in the middle of a block: {how}"),
                () = time::sleep(PATIENCE) => return Err(silent()),
            };
            let reply = match &*what {
                "task" => task.clone(),
                "mark" => {
                    if let Some(chromium) = &mut chromium {
                        marks.push(chromium.read().await?);
                    }
                    if let (Some(emulation), Some(over)) = (&mut state.emulation, &self.link) {
                        let report = emulation.report()?;
                        let links = [(over.clone(), 1)];
                        link = Some(client_sim::link_record(&links, Some(over), &emulation.tcp, &report));
                        emulation.begin()?;
                    }
                    Value::Null
                }
                "prepare" => {
                    let count = said["count"].as_u64().and_then(|count| usize::try_from(count).ok());
                    let count = count.filter(|count| LIVE_EVENTS.contains(count));
                    let (cell, count) =
                        cell.zip(count).context("the page asks for events that it does not await")?;
                    publication = Some(self.relays.publication(cell, count).await?);
                    Value::Null
                }
                "publish" => {
                    let ready = publication.take().context("the page asks for events that are not ready")?;
                    ready.send().await.context("the relay failed")?;
                    Value::Null
                }
                "done" => {
                    // A page that has left hears nothing.
                    let _ = answer.send(Value::Null);
                    let found = Found::read(said, began.elapsed())?;
                    if let Some(error) = &found.error {
                        // Where the emulator has ended, the page only knows that the relay is silent.
                        state.emulation.as_mut().map(Emulation::report).transpose()?;
                        return Err(PageFailed(plain(error)).into());
                    }
                    return Ok(Seen { found, spent: spent(&marks), link });
                }
                _ => bail!("the page's answer is refused: it tells {:?}", plain(&what)),
            };
            let _ = answer.send(reply);
        }
        bail!("the page's answer is refused: it tells too much")
    }

    /// Plays a block and writes its record.
    async fn block(&self, task: &Task<'_>, show: Value) -> Result<Exit> {
        let cell = self.cells.get(&task.cell.id).context("the cell is none of the page's")?;
        let started = utc::format(SystemTime::now());
        let seen = self.page(Some(cell), &self.task(cell)?, show).await?;
        ensure!(
            self.is_device() || seen.spent.is_some_and(|spent| spent.main_ns > 0),
            "no renderer of Chromium worked in the step"
        );
        let record = found::record(self, (task, cell), seen, started);
        record.write(task.record)?;
        Ok(if record.validity.class == measure::ValidityClass::Invalid {
            Exit::Invalid
        } else {
            Exit::Success
        })
    }

    /// Tells who sits before a device that the run has ended.
    pub(crate) fn end(self, words: &str) {
        let mut state = self.state.into_inner();
        let deadline = Instant::now() + LEAVES_WITHIN;
        while state.waiting.is_none() && state.device.is_some() && Instant::now() < deadline {
            match state.told.try_recv() {
                Ok(told) => drop(state.of_device(told)),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        if let Some(waiting) = state.waiting {
            // A device that has left hears nothing.
            let _ = waiting.send(json!({ "end": words }));
        }
    }
}

impl State {
    /// What the page of this block tells.
    async fn heard(&mut self) -> Result<Told> {
        let block = self.block.to_string();
        loop {
            let told = self.told.recv().await.context("the page is served no longer")?;
            match &*told.what {
                "next" | "left" => self.of_device(told)?,
                _ if told.block == block => return Ok(told),
                // A page of an earlier block hears that nobody listens.
                _ => {}
            }
        }
    }

    /// Waits until the device asks for its next block, the first time as long as it takes.
    async fn next_block(&mut self, next: Value) -> Result<()> {
        let is_known = self.device.is_some();
        let asked = async {
            while self.waiting.is_none() {
                let told = self.told.recv().await.context("the page is served no longer")?;
                self.of_device(told)?;
            }
            anyhow::Ok(())
        };
        if is_known {
            time::timeout(PATIENCE, asked).await.map_err(|_| silent())??;
        } else {
            asked.await?;
        }
        if let Some(waiting) = self.waiting.take() {
            // One that has left is silent from now on.
            let _ = waiting.send(next);
        }
        Ok(())
    }

    /// The first device that asks is measured, and others are told so.
    fn of_device(&mut self, Told { what, said, answer, .. }: Told) -> Result<()> {
        let name = said["device"].as_str().unwrap_or_default();
        if what == "next" {
            self.device.get_or_insert_with(|| name.to_owned());
        }
        match (&*what, self.device.as_deref() == Some(name)) {
            ("next", true) => self.waiting = Some(answer),
            ("next", false) => {
                let _ = answer.send(json!({ "end": "Another device is measured: one at a time." }));
            }
            ("left", true) => bail!("the device left: its page was closed"),
            // What a page of an earlier block tells.
            _ => {}
        }
        Ok(())
    }
}

impl Generator for Pages {
    fn play<'a>(
        &'a self,
        task: Task<'a>,
        progress: &'a mut Progress,
        mut interrupt: Interrupt<'a>,
    ) -> LocalBoxFuture<'a, Result<Played>> {
        async move {
            let played = tokio::select! {
                biased;
                () = interrupt.as_mut() => return Ok(Played { interrupted: true, ..Played::default() }.with_words()),
                played = self.block(&task, progress.shown()) => played,
            };
            let (exit, failure) = match played {
                Ok(exit) => (exit, None),
                Err(error) => (Exit::Error, Some(format!("{error:#}"))),
            };
            // Another Chromium is started for the next block; another device is not measured.
            let is_over = failure.is_some() && self.is_device();
            let exit_code = Some(exit.code().into());
            Ok(Played { exit_code, failure, is_over, ..Played::default() })
        }
        .boxed_local()
    }
}

async fn ended(chromium: &mut Option<Chromium>) -> String {
    match chromium {
        Some(chromium) => chromium.ended().await,
        None => pending().await,
    }
}

fn silent() -> anyhow::Error {
    anyhow::anyhow!(
        "the page did not answer within {} s: of a device, is its page in front and its screen on?",
        PATIENCE.as_secs()
    )
}
