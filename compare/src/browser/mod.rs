//! `compare browser`: what a page in a browser spends on events in each format.
//!
//! [`Pages`] plays blocks ([`Generator`]). Every block is a page in a new Chromium, because decoders of
//! one page share V8's inline caches and optimised code. The page gets its task from this program's
//! server, marks the begin and end of each step, and posts its figures. At a mark the program reads the
//! kernel's clocks of the renderer and of the network process
//! ([`docs/browsers.md`](../../docs/browsers.md)). With `--serve` a person opens the page on a device; it
//! loads itself again for each block, and reports wall time.
//!
//! To add a decoder, add a row to `web/browser/src/rows.js`.

mod chromium;
mod events;
mod found;
mod relays;
mod rows;
mod server;

use std::{
    collections::BTreeSet,
    future::pending,
    io::{self, Write},
    net::Ipv4Addr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result, bail, ensure};
use futures::{FutureExt, future::LocalBoxFuture};
use link::{DEFAULT_CONGESTION, Emulation};
use measure::{Environment, Exit, LinkRecord, RunRecord, SCHEMA_VERSION, Tool, ValidityClass, utc};
use serde_json::{Value, json};
use tokio::{
    sync::{Mutex, mpsc},
    time,
};

pub(crate) use self::{
    chromium::find,
    events::{LISTS, MIXED},
    rows::{PageCell, Part, Rows},
};
use self::{
    chromium::{Chromium, Cpu, spent},
    events::{ALL, Events},
    found::{About, Found, plain, whole},
    relays::Relays,
    server::Told,
};
use crate::{
    args::BrowserFlags,
    generator::{Generator, Interrupt, Played, Task},
    progress::Progress,
    usage::{Ended, until_signal},
};
use report::result::{Browser, DEVICE, Foreign};

/// The longest silence of a page: a step lasts seconds, and a comparison of all events with `JSON.parse`
/// tens of seconds on a slow phone.
const PATIENCE: Duration = Duration::from_secs(120);
/// What a page may tell in a block: a dozen things, and in the first one for each connection.
const MOST_TOLD: usize = 1_000;

/// Plays blocks in pages.
#[derive(Debug)]
pub(crate) struct Pages<'a> {
    flags: &'a BrowserFlags,
    /// The browser to start; without one a person opens the page.
    chromium: Option<PathBuf>,
    /// Where the page is served.
    url: String,
    cells: &'a [PageCell],
    relays: Relays,
    /// What the records of all blocks have in common.
    record: RunRecord,
    clock_ns: u64,
    state: Mutex<State>,
}

/// What one block has at a time.
#[derive(Debug)]
struct State {
    /// What pages tell.
    told: mpsc::Receiver<Told>,
    /// The name of the page that is measured: the first that asked.
    page: Option<String>,
    emulation: Option<Emulation>,
}

/// A page's block.
#[derive(Debug)]
struct Seen {
    found: Found,
    /// Of a step in Chromium.
    spent: Option<Cpu>,
    link: Option<LinkRecord>,
}

impl<'a> Pages<'a> {
    /// Serves the page, starts the relays, and compares every decoder with `JSON.parse` before anything
    /// is timed. Call it while this process has one thread: with a link it moves to another network
    /// namespace.
    ///
    /// # Errors
    /// Without a browser, or when a decoder differs.
    pub(crate) fn start(
        (flags, command): (&'a BrowserFlags, Vec<String>),
        chromium: Option<PathBuf>,
        (rows, formats): (&Rows, &[String]),
        cells: &'a [PageCell],
    ) -> Result<(Pages<'a>, Browser, Foreign)> {
        let events = Arc::new(Events::read(flags.corpus.as_deref(), flags.skip_invalid, formats)?);
        let product = chromium.as_deref().map(chromium::product).transpose()?;
        let address = flags.serve.unwrap_or(Ipv4Addr::LOCALHOST);
        let served = || server::serve(rows.script.clone(), Arc::clone(&events), address);
        // In the relays' namespace before this process moves to that of the page.
        let (relays, emulation, (url, told)) = match &flags.link {
            Some(link) => {
                link::enter()?;
                // A browser binds no address: all of its connections share the link.
                let page = link::user_address(0, 0).context("one user of one link has an address")?;
                let links = std::slice::from_ref(link);
                let emulation = Emulation::start(links, flags.seed, DEFAULT_CONGESTION, page, || {})
                    .context("cannot emulate the link (client-sim links says what this host needs)")?;
                let relays = Relays::start(&events, cells, link::RELAY)?;
                emulation.join_users()?;
                (relays, Some(emulation), served()?)
            }
            None => {
                let served = served()?;
                (Relays::start(&events, cells, address)?, None, served)
            }
        };
        if chromium.is_none() {
            // A closed stderr leaves nobody who could open the page.
            writeln!(io::stderr(), "Open {url} on the device to measure; Ctrl-C ends the run.")?;
        }
        let record = RunRecord {
            schema_version: SCHEMA_VERSION.to_owned(),
            tool: Tool { name: "compare".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
            commit: program::built_from().map(str::to_owned),
            environment: Environment::collect(),
            command,
            corpus: events.corpus.clone(),
            ..RunRecord::default()
        };
        let state = Mutex::new(State { told, page: None, emulation });
        let mut pages = Pages { flags, chromium, url, cells, relays, record, clock_ns: 0, state };
        let decoders: Vec<&str> = rows.decoders(formats).map(|row| &*row.name).collect();
        let about = until_signal(async |interrupt| {
            tokio::select! {
                about = pages.check(&decoders) => about,
                () = interrupt.wait() => {
                    let reason = "interrupted before anything was measured".to_owned();
                    Err(Ended { exit: Exit::Interrupted, reason }.into())
                }
            }
        })?;
        pages.clock_ns = whole(about.clock_ms * 1e6);
        ensure!(pages.clock_ns > 0, "the page does not say how its clock moves");
        ensure!(
            product.is_none() || about.isolated,
            "the page is not isolated, so that its clock is too coarse"
        );
        let sets: BTreeSet<&str> = cells.iter().map(|cell| cell.set).chain([ALL]).collect();
        let browser = Browser {
            client: if product.is_none() { DEVICE } else { "browser" }.to_owned(),
            flags: if product.is_none() { Vec::new() } else { chromium::flags() },
            product: product.unwrap_or_else(|| plain(&about.user_agent)),
            has_to_hex: about.has_to_hex,
            clock_ns: pages.clock_ns,
            step_ms: flags.step_ms,
            libraries: rows.libraries.clone(),
            events: sets.into_iter().map(|set| (set.to_owned(), events.in_set(set).len() as u64)).collect(),
        };
        let refused = (events.set_aside > 0)
            .then(|| ("a format of the run cannot hold them".to_owned(), events.set_aside as u64));
        Ok((pages, browser, Foreign { refused_events: refused.into_iter().collect(), ..Foreign::default() }))
    }

    /// Compares decoders with `JSON.parse` on every event, and what each connection receives with what
    /// the first does.
    async fn check(&self, decoders: &[&str]) -> Result<About> {
        let over_sockets = self.cells.iter().filter(|cell| cell.part.is_over_sockets());
        let connections =
            over_sockets.map(|cell| self.relays.connection(cell)).collect::<Result<Vec<_>>>()?;
        let task = json!({
            "deed": "check", "says": "JSON.parse", "rows": decoders, "set": ALL, "connections": connections,
        });
        let Found { about, differs, .. } = self.page(&task).await?.found;
        match differs {
            Some(differs) => {
                let reason = format!("{}; nothing was measured", plain(&differs));
                Err(Ended { exit: Exit::Unbalanced, reason }.into())
            }
            None => about.context("the page does not say what it is"),
        }
    }

    /// Has a fresh page do a task.
    async fn page(&self, task: &Value) -> Result<Seen> {
        let mut guard = self.state.lock().await;
        let state = &mut *guard;
        let mut chromium = None;
        if let Some(program) = &self.chromium {
            state.page = None;
            chromium = Some(Chromium::start(program, &self.url)?);
        }
        let began = Instant::now();
        let (mut marks, mut link) = (Vec::new(), None);
        for _ in 0..MOST_TOLD {
            // A person opens the page when they do.
            let patience = if chromium.is_some() || state.page.is_some() { PATIENCE } else { Duration::MAX };
            let Told { what, said, answer, .. } = tokio::select! {
                told = state.heard() => told?,
                how = ended(&mut chromium) => bail!("Chromium ended in the middle of a block: {how}"),
                () = time::sleep(patience) => bail!(
                    "the page did not answer within {} s: of a device, is its page in front and its screen on?",
                    PATIENCE.as_secs()
                ),
            };
            let reply = match &*what {
                // The page of the block before loads itself again.
                "next" => Value::Null,
                "task" => task.clone(),
                "mark" => {
                    if let Some(chromium) = &mut chromium {
                        marks.push(chromium.read().await?);
                    }
                    if let (Some(emulation), Some(over)) = (&mut state.emulation, &self.flags.link) {
                        let report = emulation.report()?;
                        let links = [(over.clone(), 1)];
                        link = Some(client_sim::link_record(&links, Some(over), &emulation.tcp, &report));
                        emulation.begin()?;
                    }
                    Value::Null
                }
                "done" => {
                    // A page that has left hears nothing.
                    let _ = answer.send(Value::Null);
                    let found = Found::read(said, began.elapsed())?;
                    if let Some(error) = &found.error {
                        // Where the emulator has ended, the page only knows that the relay is silent.
                        state.emulation.as_mut().map(Emulation::report).transpose()?;
                        bail!("the page failed: {}", plain(error));
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
    async fn block(&self, task: &Task<'_>) -> Result<Exit> {
        let cell = self.cells.iter().find(|cell| cell.spec.id == task.cell.id);
        let cell = cell.context("the cell is none of the page's")?;
        let started = utc::format(SystemTime::now());
        let deed = if cell.part.is_over_sockets() { "request" } else { "decode" };
        let connection = cell.part.is_over_sockets().then(|| self.relays.connection(cell)).transpose()?;
        let task_of_page = json!({
            "deed": deed, "says": cell.spec.id, "row": cell.row.name, "set": cell.set,
            "connection": connection, "over_a_link": self.flags.link.is_some(), "step_ms": self.flags.step_ms,
        });
        let seen = self.page(&task_of_page).await?;
        ensure!(
            self.chromium.is_none() || seen.spent.is_some_and(|[main_ns, _]| main_ns > 0),
            "no renderer of Chromium worked in the step"
        );
        let record = found::record(self, (task, cell), seen, started);
        record.write(task.record)?;
        Ok(if record.validity.class == ValidityClass::Invalid { Exit::Invalid } else { Exit::Success })
    }
}

impl State {
    /// What the page that is measured tells.
    async fn heard(&mut self) -> Result<Told> {
        loop {
            let told = self.told.recv().await.context("the page is served no longer")?;
            if told.what == "task" {
                self.page.get_or_insert_with(|| told.page.clone());
            }
            if self.page.as_ref() == Some(&told.page) {
                return Ok(told);
            }
            // Another page hears that nobody listens.
        }
    }
}

impl Generator for Pages<'_> {
    fn play<'a>(
        &'a self,
        task: Task<'a>,
        _: &'a mut Progress,
        mut interrupt: Interrupt<'a>,
    ) -> LocalBoxFuture<'a, Result<Played>> {
        async move {
            let played = tokio::select! {
                biased;
                () = interrupt.as_mut() => return Ok(Played { interrupted: true, ..Played::default() }.with_words()),
                played = self.block(&task) => played,
            };
            let (exit, failure) = match played {
                Ok(exit) => (exit, None),
                Err(error) => (Exit::Error, Some(format!("{error:#}"))),
            };
            // Another Chromium is started for the next block; another device is not measured.
            let is_over = failure.is_some() && self.chromium.is_none();
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
