//! One page for one block: what its steps take, by the kernel's clocks or, on a device, by the
//! page's.

use std::{
    fs,
    future::Future,
    time::{Duration, Instant},
};

use codecs::quoted;
use measure::{CpuClock, main_thread_ns};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time;

use super::{
    chromium::Chromium,
    device::Device,
    error::BrowserError,
    host::{Host, text, whole},
};
use report::{result::BrowserStep, stats};

/// Limit of a page's loading.
const LOADS_WITHIN: Duration = Duration::from_secs(20);
/// Limit of a renderer's end.
const RENDERER_ENDS_WITHIN: Duration = Duration::from_secs(20);
/// Time without work after which a renderer without a page is at rest.
const RENDERER_RESTS: Duration = Duration::from_millis(100);
/// Time that a page works so that its renderer is known.
const BURN_MS: u64 = 20;
/// How often that is tried, each time twice as long.
const BURNS: u32 = 6;
/// How far a renderer's time may be from what the page worked.
const BURNT_ALIKE: f64 = 0.2;
/// Time for a thread that has answered to sleep, so that the kernel has counted it.
const SETTLES_WITHIN: Duration = Duration::from_millis(3);
/// Empty steps whose median is subtracted from others.
const EMPTY_STEPS: usize = 5;
/// How much longer a device may say that a step took than its call: clocks of 100 ms round twice.
const CLOCKS_DIFFER: Duration = Duration::from_millis(200);

/// A page until it is closed.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    place: Place<'a>,
    /// Cost of a step that does nothing.
    empty: Spent,
}

#[derive(Debug)]
enum Place<'a> {
    /// A browsing context of its own, and so a renderer of its own, whose clocks are read from
    /// outside.
    Renderer(Renderer<'a>),
    /// A frame on a device, where only its own clock is read.
    Frame(&'a mut Device),
}

#[derive(Debug)]
struct Renderer<'a> {
    chromium: &'a mut Chromium,
    context: String,
    session: String,
    clocks: Clocks,
}

#[derive(Debug)]
struct Clocks {
    renderer_pid: u32,
    renderer: CpuClock,
    network: CpuClock,
}

/// CPU since a page began, or between two readings; zero where it cannot be read.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    main_ns: u64,
    renderer_ns: u64,
    network_ns: u64,
}

/// Readings before a step.
#[derive(Debug)]
struct Before {
    inside_ns: u64,
    spent: Spent,
    began: Instant,
}

/// The page's own account of a step.
#[derive(Debug, Deserialize)]
struct Said {
    events: u64,
    #[serde(default)]
    messages: u64,
    milliseconds: f64,
}

impl<'a> Page<'a> {
    /// Opens a page and waits until its script runs.
    pub(crate) async fn open(host: &'a mut Host) -> Result<Page<'a>, BrowserError> {
        let place = match host {
            Host::Chromium(chromium, url) => Place::Renderer(Renderer::open(chromium, url).await?),
            Host::Device(device) => {
                device.open().await?;
                Place::Frame(device)
            }
        };
        Ok(Page { place, empty: Spent::default() })
    }

    /// Closes the page; says whether it was hidden meanwhile, when browsers slow pages down.
    pub(crate) async fn close(self) -> Result<bool, BrowserError> {
        match self.place {
            Place::Renderer(renderer) => renderer.close().await.map(|()| false),
            Place::Frame(device) => device.close().await,
        }
    }

    /// Evaluates an expression, waits for its promise, and returns its value.
    pub(crate) async fn run(&mut self, expression: &str) -> Result<Value, BrowserError> {
        match &mut self.place {
            Place::Renderer(Renderer { chromium, session, .. }) => {
                evaluate(chromium, session, expression).await
            }
            Place::Frame(device) => device.run(expression).await,
        }
    }

    /// Measures what a step costs that does nothing; other steps have that subtracted.
    pub(crate) async fn measure_empty(&mut self, expressions: &[&str]) -> Result<(), BrowserError> {
        if matches!(self.place, Place::Frame(_)) {
            return Ok(());
        }
        let mut steps = Vec::new();
        for _ in 0..EMPTY_STEPS {
            let before = self.spent().await?;
            for expression in expressions {
                self.run(expression).await?;
            }
            steps.push(self.spent().await?.since(before));
        }
        let median = |of: fn(&Spent) -> u64| {
            let values: Vec<f64> = steps.iter().map(|step| of(step) as f64).collect();
            stats::median(&values).map_or(0, whole)
        };
        self.empty = Spent {
            main_ns: median(|spent| spent.main_ns),
            renderer_ns: median(|spent| spent.renderer_ns),
            network_ns: median(|spent| spent.network_ns),
        };
        Ok(())
    }

    /// Does a step and says what it took.
    pub(crate) async fn step(&mut self, expression: &str) -> Result<BrowserStep, BrowserError> {
        let before = self.before().await?;
        let value = self.run(expression).await?;
        self.stepped(expression, value, before).await
    }

    /// The same of a step whose work comes from elsewhere, between two expressions.
    pub(crate) async fn step_around(
        &mut self,
        begin: &str,
        work: impl Future<Output = Result<(), BrowserError>>,
        end: &str,
    ) -> Result<BrowserStep, BrowserError> {
        let before = self.before().await?;
        self.run(begin).await?;
        work.await?;
        let value = self.run(end).await?;
        self.stepped(end, value, before).await
    }

    async fn before(&mut self) -> Result<Before, BrowserError> {
        let (inside_ns, spent) = (self.inside_ns().await?, self.spent().await?);
        Ok(Before { inside_ns, spent, began: Instant::now() })
    }

    async fn stepped(
        &mut self,
        expression: &str,
        value: Value,
        before: Before,
    ) -> Result<BrowserStep, BrowserError> {
        let took = before.began.elapsed();
        let spent = self.spent().await?.since(before.spent);
        let inside_ns = self.inside_ns().await?.saturating_sub(before.inside_ns);
        let said: Said = serde_json::from_value(value).map_err(|error| BrowserError::Page {
            expression: expression.to_owned(),
            why: format!("it returned something else than a step: {error}"),
        })?;
        let is_longer = said.milliseconds > (took + CLOCKS_DIFFER).as_secs_f64() * 1e3;
        if is_longer && matches!(self.place, Place::Frame(_)) {
            let why = format!("a step of {:.0} ms in a call of {} ms", said.milliseconds, took.as_millis());
            return Err(BrowserError::Answer(why));
        }
        Ok(BrowserStep {
            events: said.events,
            messages: said.messages,
            main_ns: spent.main_ns.saturating_sub(self.empty.main_ns),
            renderer_ns: spent.renderer_ns.saturating_sub(self.empty.renderer_ns),
            network_ns: spent.network_ns.saturating_sub(self.empty.network_ns),
            wall_ns: whole(said.milliseconds * 1e6),
            inside_ns,
        })
    }

    async fn spent(&self) -> Result<Spent, BrowserError> {
        let Place::Renderer(renderer) = &self.place else { return Ok(Spent::default()) };
        time::sleep(SETTLES_WITHIN).await;
        renderer.clocks.read()
    }

    /// CPU of the main thread's tasks by the browser's own count; zero where it cannot be asked.
    async fn inside_ns(&mut self) -> Result<u64, BrowserError> {
        match &mut self.place {
            Place::Renderer(Renderer { chromium, session, .. }) => inside_ns(chromium, session).await,
            Place::Frame(_) => Ok(0),
        }
    }

    /// Collects garbage, where it can be told to.
    pub(crate) async fn collect(&mut self) -> Result<(), BrowserError> {
        match &mut self.place {
            Place::Renderer(renderer) => renderer.call("HeapProfiler.collectGarbage").await.map(drop),
            Place::Frame(_) => Ok(()),
        }
    }

    /// Bytes of the script heap in use, where they can be read.
    pub(crate) async fn heap_bytes(&mut self) -> Result<Option<u64>, BrowserError> {
        match &mut self.place {
            Place::Renderer(renderer) => {
                Ok(renderer.call("Runtime.getHeapUsage").await?["usedSize"].as_f64().map(whole))
            }
            Place::Frame(_) => Ok(None),
        }
    }

    /// The most memory that the renderer had, where the kernel says so.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        let Place::Renderer(renderer) = &self.place else { return None };
        let status = fs::read_to_string(format!("/proc/{}/status", renderer.clocks.renderer_pid)).ok()?;
        let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix(" kB")?;
        Some(kib.parse::<u64>().ok()? * 1024)
    }
}

impl<'a> Renderer<'a> {
    async fn open(chromium: &'a mut Chromium, url: &str) -> Result<Renderer<'a>, BrowserError> {
        let context = chromium.call("Target.createBrowserContext", json!({})).await?;
        let context = text(&context["browserContextId"]);
        let target = json!({ "url": url, "browserContextId": context });
        let target = text(&chromium.call("Target.createTarget", target).await?["targetId"]);
        let attached = json!({ "targetId": target, "flatten": true });
        let session = text(&chromium.call("Target.attachToTarget", attached).await?["sessionId"]);
        let waited = time::timeout(LOADS_WITHIN, loaded(chromium, &session)).await;
        waited
            .map_err(|_| BrowserError::Silent { method: "the page".to_owned(), within: LOADS_WITHIN })??;
        let clocks = Clocks::for_page(chromium, &session).await?;
        Ok(Renderer { chromium, context, session, clocks })
    }

    /// Closes the page and with it its renderer.
    async fn close(self) -> Result<(), BrowserError> {
        let context = json!({ "browserContextId": self.context });
        self.chromium.call("Target.disposeBrowserContext", context).await?;
        // A renderer that frees its heap would share the cores with the next page.
        let within = RENDERER_ENDS_WITHIN;
        let silent = |_| BrowserError::Silent { method: "the end of a renderer".to_owned(), within };
        time::timeout(within, self.clocks.renderer_at_rest()).await.map_err(silent)
    }

    async fn call(&mut self, method: &str) -> Result<Value, BrowserError> {
        self.chromium.call_page(&self.session, method, json!({})).await
    }
}

/// Waits until the page's script has run.
async fn loaded(chromium: &mut Chromium, session: &str) -> Result<(), BrowserError> {
    // So that a renderer that crashes is told of, where a call would wait for it.
    chromium.call_page(session, "Inspector.enable", json!({})).await?;
    chromium.call_page(session, "Performance.enable", json!({ "timeDomain": "threadTicks" })).await?;
    let ready = "document.readyState === 'complete' && typeof bench === 'object'";
    loop {
        match evaluate(chromium, session, ready).await {
            Ok(Value::Bool(true)) => return Ok(()),
            // While one document replaces the other there is none to ask.
            Ok(_) | Err(BrowserError::Refused { .. } | BrowserError::Page { .. }) => {}
            Err(error) => return Err(error),
        }
        time::sleep(Duration::from_millis(5)).await;
    }
}

/// CPU of the main thread's tasks by the browser's own count.
async fn inside_ns(chromium: &mut Chromium, session: &str) -> Result<u64, BrowserError> {
    let metrics = chromium.call_page(session, "Performance.getMetrics", json!({})).await?;
    let of = |metric: &&Value| metric["name"] == "TaskDuration";
    let seconds = metrics["metrics"].as_array().and_then(|all| all.iter().find(of)?["value"].as_f64());
    Ok(whole(seconds.unwrap_or(0.0) * 1e9))
}

async fn evaluate(chromium: &mut Chromium, session: &str, expression: &str) -> Result<Value, BrowserError> {
    let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
    let mut found = chromium.call_page(session, "Runtime.evaluate", params).await?;
    if let Some(thrown) = found.get("exceptionDetails") {
        let said = thrown["exception"]["description"].as_str().or_else(|| thrown["text"].as_str());
        let why = said.and_then(|text| text.lines().next()).unwrap_or("an exception without a text");
        let expression = expression.chars().take(80).collect();
        return Err(BrowserError::Page { expression, why: quoted(why) });
    }
    Ok(found["result"]["value"].take())
}

impl Clocks {
    /// The clocks of the page's renderer and of the network process. Chromium keeps renderers in
    /// stock, so the page's is the one that works for as long as the page says it did.
    async fn for_page(chromium: &mut Chromium, session: &str) -> Result<Clocks, BrowserError> {
        let cpu = |what, why: String| BrowserError::Cpu { what, why };
        let found = chromium.processes().await?;
        let network = found.network.ok_or_else(|| cpu("network process", "there is none".to_owned()))?;
        // One that ends meanwhile is not the page's.
        let worked =
            |pids: &[u32]| -> Vec<u64> { pids.iter().map(|pid| main_thread_ns(*pid).unwrap_or(0)).collect() };
        let mut seen = String::new();
        for burn in 0..BURNS {
            let (before, inside) = (worked(&found.renderers), inside_ns(chromium, session).await?);
            evaluate(chromium, session, &format!("bench.burn({})", BURN_MS << burn)).await?;
            let inside = inside_ns(chromium, session).await?.saturating_sub(inside) as f64;
            time::sleep(SETTLES_WITHIN).await;
            let spent = worked(&found.renderers).into_iter().zip(before);
            let spent: Vec<f64> = spent.map(|(now, then)| now.saturating_sub(then) as f64).collect();
            let alike = |ns: &f64| (ns - inside).abs() < BURNT_ALIKE * inside;
            let pids = found.renderers.iter().zip(&spent).filter(|(_, ns)| alike(ns)).map(|(pid, _)| *pid);
            if let &[renderer_pid] = pids.collect::<Vec<_>>().as_slice() {
                return Clocks::of_processes(renderer_pid, network);
            }
            seen = format!("the page worked for {inside:.0} ns and renderers for {spent:.0?} ns");
        }
        Err(cpu("renderer", seen))
    }

    fn of_processes(renderer_pid: u32, network: u32) -> Result<Clocks, BrowserError> {
        let cpu = |what, why: String| BrowserError::Cpu { what, why };
        let clock = |what, pid| CpuClock::of_process(pid).map_err(|error| cpu(what, error.to_string()));
        Ok(Clocks {
            renderer_pid,
            renderer: clock("renderer", renderer_pid)?,
            network: clock("network process", network)?,
        })
    }

    /// Waits until the renderer has ended, or no longer works: Chromium keeps some that have no
    /// page.
    async fn renderer_at_rest(&self) {
        let stat = format!("/proc/{}/stat", self.renderer_pid);
        // One that has ended is a zombie until its parent asks for it.
        let lives = || fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z "));
        let (mut worked, mut since) = (None, Instant::now());
        while lives() && since.elapsed() < RENDERER_RESTS {
            time::sleep(Duration::from_millis(5)).await;
            let now = self.renderer.read().ok().map(|cpu| cpu.total_ns);
            if now != worked {
                (worked, since) = (now, Instant::now());
            }
        }
    }

    fn read(&self) -> Result<Spent, BrowserError> {
        let cpu = |what| move |error: std::io::Error| BrowserError::Cpu { what, why: error.to_string() };
        Ok(Spent {
            main_ns: main_thread_ns(self.renderer_pid).map_err(cpu("renderer"))?,
            renderer_ns: self.renderer.read().map_err(cpu("renderer"))?.total_ns,
            network_ns: self.network.read().map_err(cpu("network process"))?.total_ns,
        })
    }
}

impl Spent {
    fn since(self, before: Spent) -> Spent {
        Spent {
            main_ns: self.main_ns.saturating_sub(before.main_ns),
            renderer_ns: self.renderer_ns.saturating_sub(before.renderer_ns),
            network_ns: self.network_ns.saturating_sub(before.network_ns),
        }
    }
}
