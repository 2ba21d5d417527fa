//! One page for one block: what its steps take, by the kernel's clocks.

use std::{
    fs,
    future::Future,
    time::{Duration, Instant},
};

use measure::{CpuClock, main_thread_ns};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time;

use super::{chromium::Chromium, error::BrowserError};
use crate::{result::BrowserStep, stats};

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

/// A page in a browsing context of its own, and so in a renderer of its own.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    chromium: &'a mut Chromium,
    context: String,
    session: String,
    clocks: Clocks,
    /// What a step costs that does nothing.
    empty: Spent,
}

#[derive(Debug)]
struct Clocks {
    renderer_pid: u32,
    renderer: CpuClock,
    network: CpuClock,
}

/// CPU since a page began, or between two readings.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    main_ns: u64,
    renderer_ns: u64,
    network_ns: u64,
}

/// What the page says of a step.
#[derive(Debug, Deserialize)]
struct Said {
    events: u64,
    #[serde(default)]
    messages: u64,
    milliseconds: f64,
}

impl<'a> Page<'a> {
    /// Opens a page and waits until its script runs.
    pub(crate) async fn open(chromium: &'a mut Chromium, url: &str) -> Result<Page<'a>, BrowserError> {
        let context = chromium.call("Target.createBrowserContext", json!({})).await?;
        let context = text(&context["browserContextId"]);
        let target = json!({ "url": url, "browserContextId": context });
        let target = text(&chromium.call("Target.createTarget", target).await?["targetId"]);
        let attached = json!({ "targetId": target, "flatten": true });
        let session = text(&chromium.call("Target.attachToTarget", attached).await?["sessionId"]);
        let waited = time::timeout(LOADS_WITHIN, loaded(chromium, &session)).await;
        waited
            .map_err(|_| BrowserError::Silent { method: "the page".to_owned(), within: LOADS_WITHIN })??;
        let clocks = Clocks::of(chromium, &session).await?;
        Ok(Page { chromium, context, session, clocks, empty: Spent::default() })
    }

    /// Closes the page and with it its renderer.
    pub(crate) async fn close(self) -> Result<(), BrowserError> {
        let context = json!({ "browserContextId": self.context });
        self.chromium.call("Target.disposeBrowserContext", context).await?;
        // A renderer that frees its heap would share the cores with the next page.
        let within = RENDERER_ENDS_WITHIN;
        let silent = |_| BrowserError::Silent { method: "the end of a renderer".to_owned(), within };
        time::timeout(within, self.clocks.renderer_at_rest()).await.map_err(silent)
    }

    async fn call(&mut self, method: &str, params: Value) -> Result<Value, BrowserError> {
        self.chromium.call_page(&self.session, method, params).await
    }

    /// Evaluates an expression, waits for its promise, and returns its value.
    pub(crate) async fn run(&mut self, expression: &str) -> Result<Value, BrowserError> {
        evaluate(self.chromium, &self.session, expression).await
    }

    /// Measures what a step costs that does nothing; other steps have that subtracted.
    pub(crate) async fn measure_empty(&mut self, expressions: &[&str]) -> Result<(), BrowserError> {
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

    /// Does a step and says what it took; `events` where the page says no more than their number.
    pub(crate) async fn step(&mut self, expression: &str) -> Result<BrowserStep, BrowserError> {
        let (inside, before) = (inside_ns(self.chromium, &self.session).await?, self.spent().await?);
        let value = self.run(expression).await?;
        self.stepped(expression, value, before, inside).await
    }

    /// The same of a step whose work comes from elsewhere, between two expressions.
    pub(crate) async fn step_around(
        &mut self,
        begin: &str,
        work: impl Future<Output = Result<(), BrowserError>>,
        end: &str,
    ) -> Result<BrowserStep, BrowserError> {
        let (inside, before) = (inside_ns(self.chromium, &self.session).await?, self.spent().await?);
        self.run(begin).await?;
        work.await?;
        let value = self.run(end).await?;
        self.stepped(end, value, before, inside).await
    }

    async fn stepped(
        &mut self,
        expression: &str,
        value: Value,
        before: Spent,
        inside_before: u64,
    ) -> Result<BrowserStep, BrowserError> {
        let spent = self.spent().await?.since(before);
        let inside = inside_ns(self.chromium, &self.session).await?.saturating_sub(inside_before);
        let said = match value.as_u64() {
            Some(events) => Said { events, messages: 0, milliseconds: 0.0 },
            None => serde_json::from_value(value).map_err(|error| BrowserError::Page {
                expression: expression.to_owned(),
                why: format!("it returned something else than a step: {error}"),
            })?,
        };
        Ok(BrowserStep {
            events: said.events,
            messages: said.messages,
            main_ns: spent.main_ns.saturating_sub(self.empty.main_ns),
            renderer_ns: spent.renderer_ns.saturating_sub(self.empty.renderer_ns),
            network_ns: spent.network_ns.saturating_sub(self.empty.network_ns),
            wall_ns: whole(said.milliseconds * 1e6),
            inside_ns: inside,
        })
    }

    async fn spent(&self) -> Result<Spent, BrowserError> {
        time::sleep(SETTLES_WITHIN).await;
        self.clocks.read()
    }

    /// Collects garbage.
    pub(crate) async fn collect(&mut self) -> Result<(), BrowserError> {
        self.call("HeapProfiler.collectGarbage", json!({})).await.map(drop)
    }

    /// Bytes of the script heap in use.
    pub(crate) async fn heap_bytes(&mut self) -> Result<Option<u64>, BrowserError> {
        Ok(self.call("Runtime.getHeapUsage", json!({})).await?["usedSize"].as_f64().map(whole))
    }

    /// The most memory that the renderer had, where the kernel says so.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.clocks.renderer_pid)).ok()?;
        let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix(" kB")?;
        Some(kib.parse::<u64>().ok()? * 1024)
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
        return Err(BrowserError::Page { expression, why: why.to_owned() });
    }
    Ok(found["result"]["value"].take())
}

impl Clocks {
    /// The clocks of the page's renderer and of the network process. Chromium keeps renderers in
    /// stock, so the page's is the one that works for as long as the page says it did.
    async fn of(chromium: &mut Chromium, session: &str) -> Result<Clocks, BrowserError> {
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

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A count or nanoseconds, which are neither negative nor beyond 2^53.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn whole(value: f64) -> u64 {
    value.clamp(0.0, 9e15) as u64
}
