//! `compare browser`: what a page in a browser spends on events in each format.
//!
//! [`Pages`] plays blocks ([`Generator`]). Every block is a page in a new Chromium, because decoders of
//! one page share V8's inline caches and optimised code. The page gets its task from this program's
//! server, marks the begin and end of each step, and posts its figures. At a mark the program reads the
//! kernel's clocks of the renderer and of the network process
//! ([`docs/browsers.md`](../../docs/browsers.md)).
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
    net::Ipv4Addr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result, bail, ensure};
use codecs::quoted;
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
    found::{About, Found},
    relays::Relays,
    server::Told,
};
use crate::{
    args::BrowserFlags,
    generator::{Generator, Interrupt, Played, Task},
    progress::Progress,
    usage::{Ended, until_signal},
};
use report::result::{Browser, Foreign};

/// A page that is silent for longer ends the run. Its longest work takes seconds: a step, or the comparison
/// of all events with `JSON.parse`.
const PATIENCE: Duration = Duration::from_secs(120);
/// By how much the clock of an isolated page moves
/// (<https://developer.chrome.com/blog/cross-origin-isolated-hr-timers>).
const CLOCK_NS: u64 = 5_000;

/// Plays blocks in pages.
#[derive(Debug)]
pub(crate) struct Pages<'a> {
    flags: &'a BrowserFlags,
    /// The browser to start.
    chromium: PathBuf,
    /// Where the page is served.
    url: String,
    cells: &'a [PageCell],
    relays: Relays,
    /// What the records of all blocks have in common.
    record: RunRecord,
    state: Mutex<State>,
}

/// What one block has at a time.
#[derive(Debug)]
struct State {
    /// What pages tell.
    told: mpsc::Receiver<Told>,
    emulation: Option<Emulation>,
}

/// A page's block.
#[derive(Debug)]
struct Seen {
    found: Found,
    /// Of a step.
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
        chromium: PathBuf,
        (rows, formats): (&Rows, &[String]),
        cells: &'a [PageCell],
    ) -> Result<(Pages<'a>, Browser, Foreign)> {
        let events = Arc::new(Events::read(flags.send.corpus.as_deref(), flags.send.skip_invalid, formats)?);
        let product = chromium::product(&chromium)?;
        // In the relays' namespace before this process moves to that of the page.
        let (relays, emulation) = match &flags.link {
            Some(link) => {
                link::enter()?;
                // A browser binds no address: all of its connections share the link.
                let page = link::user_address(0, 0).context("one user of one link has an address")?;
                let links = std::slice::from_ref(link);
                let emulation = Emulation::start(links, flags.seed, DEFAULT_CONGESTION, page, || {})
                    .context("cannot emulate the link (client-sim links says what this host needs)")?;
                let relays = Relays::start(&events, cells, link::RELAY)?;
                emulation.join_users()?;
                (relays, Some(emulation))
            }
            None => (Relays::start(&events, cells, Ipv4Addr::LOCALHOST)?, None),
        };
        let (url, told) = server::serve(rows.script.clone(), Arc::clone(&events))?;
        let record = RunRecord {
            schema_version: SCHEMA_VERSION.to_owned(),
            tool: Tool { name: "compare".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
            commit: program::built_from().map(str::to_owned),
            environment: Environment::collect(),
            command,
            corpus: events.corpus.clone(),
            ..RunRecord::default()
        };
        let state = Mutex::new(State { told, emulation });
        let pages = Pages { flags, chromium, url, cells, relays, record, state };
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
        ensure!(about.isolated, "the page is not isolated, so that its clock is too coarse");
        let sets: BTreeSet<&str> = cells.iter().map(|cell| cell.set).chain([ALL]).collect();
        let browser = Browser {
            client: "browser".to_owned(),
            flags: chromium::flags(),
            product,
            has_to_hex: about.has_to_hex,
            clock_ns: CLOCK_NS,
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
            "deed": "check", "rows": decoders, "set": ALL, "connections": connections,
        });
        let Found { about, differs, .. } = self.page(&task).await?.found;
        match differs {
            Some(differs) => {
                let reason = format!("{}; nothing was measured", quoted(&differs));
                Err(Ended { exit: Exit::Unbalanced, reason }.into())
            }
            None => about.context("the page does not say what it is"),
        }
    }

    /// Has a fresh page do a task.
    async fn page(&self, task: &Value) -> Result<Seen> {
        let State { told, emulation } = &mut *self.state.lock().await;
        // What a page told before it was ended.
        while told.try_recv().is_ok() {}
        let mut chromium = Chromium::start(&self.chromium, &self.url)?;
        let (mut marks, mut link) = (Vec::new(), None);
        loop {
            let Told { what, said, answer } = tokio::select! {
                told = told.recv() => told.context("the page is served no longer")?,
                how = chromium.ended() => bail!("Chromium ended in the middle of a block: {how}"),
                () = time::sleep(PATIENCE) => bail!("the page did not answer within {} s", PATIENCE.as_secs()),
            };
            let reply = match &*what {
                "task" => task.clone(),
                "mark" => {
                    marks.push(chromium.read().await?);
                    if let (Some(emulation), Some(over)) = (&mut *emulation, &self.flags.link) {
                        let report = emulation.report()?;
                        let links = [(over.clone(), 1)];
                        link = Some(client_sim::link_record(&links, Some(over), report));
                        emulation.begin()?;
                    }
                    Value::Null
                }
                "done" => {
                    let found: Found =
                        serde_json::from_value(said).context("the page's answer is refused")?;
                    if let Some(error) = &found.error {
                        // Where the emulator has ended, the page only knows that the relay is silent.
                        emulation.as_mut().map(Emulation::report).transpose()?;
                        bail!("the page failed: {}", quoted(error));
                    }
                    return Ok(Seen { found, spent: spent(&marks), link });
                }
                _ => bail!("the page's answer is refused: it tells {}", quoted(&what)),
            };
            // A page that has left hears nothing.
            let _ = answer.send(reply);
        }
    }

    /// Plays a block and writes its record.
    async fn block(&self, task: &Task<'_>) -> Result<Exit> {
        let cell = self.cells.iter().find(|cell| cell.spec.id == task.cell.id);
        let cell = cell.context("the cell is none of the page's")?;
        let started = utc::format(SystemTime::now());
        let deed = if cell.part.is_over_sockets() { "request" } else { "decode" };
        let connection = cell.part.is_over_sockets().then(|| self.relays.connection(cell)).transpose()?;
        let task_of_page = json!({
            "deed": deed, "row": cell.row.name, "set": cell.set,
            "connection": connection, "over_a_link": self.flags.link.is_some(), "step_ms": self.flags.step_ms,
        });
        let seen = self.page(&task_of_page).await?;
        let worked = seen.spent.is_some_and(|[main_ns, _]| main_ns > 0);
        ensure!(worked, "no renderer of Chromium worked in the step");
        let record = found::record(self, (task, cell), seen, started);
        record.write(task.record)?;
        Ok(if record.validity.class == ValidityClass::Invalid { Exit::Invalid } else { Exit::Success })
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
            Ok(Played { exit_code: Some(exit.code().into()), failure, ..Played::default() })
        }
        .boxed_local()
    }
}
