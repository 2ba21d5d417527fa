//! The page over results: its data, `compare site`, and what a browser makes of it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use measure::{Cell, ReasonKind, RunRecord, Slice, Slices, Status, ValidityClass};
use report::{
    ResultFile, Site,
    result::{MeasuredBy, Provenance},
};
use serde_json::Value;

use crate::{
    common::{self, PLAIN, measured, record},
    ran::{Ran, Runs},
    report::{CELLS, measured as of_a_plan, troubled},
    throughput::{block, played, rows},
};

/// Bound of the page over everything that is published.
const MOST_BYTES: usize = 3_000_000;

/// Names of a browser that may be installed here.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Words that would end an element, or stand for a place of the template.
const EVIL: &str = "</script><img src=x onerror=alert(1)>{data}<title>{title}</title>";

fn page(result: &ResultFile) -> String {
    let mut site = Site::default();
    site.add("published/one", result).unwrap();
    site.html("a title").unwrap()
}

/// The data of a page.
pub(crate) fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// The figures of one kind, in the order of cells.
fn figures<'a>(table: &'a Value, key: &str) -> Vec<&'a Value> {
    array(&table["cells"]).iter().map(|cell| &cell["figures"][key]).collect()
}

#[test]
fn figures_are_those_of_the_tables_and_their_sums_hold() {
    let mut result = played(|task| measured(block(task)));
    result.provenance = Some(Provenance { by: MeasuredBy::Vendor, paid_by: Some("a sponsor".to_owned()) });
    let data = data(&page(&result));
    assert_eq!(data[0]["measured_by"], "a vendor of what was measured, paid by a sponsor");
    let [relay, clients] = array(&data[0]["tables"]) else { panic!("{data}") };
    assert_eq!([&relay["side"], &clients["side"]], ["relay", "clients"]);
    assert_eq!(
        (&relay["scenario"], &relay["relay"], &relay["link"]),
        (&"mixed-day".into(), &"relay-sim".into(), &"none".into())
    );
    let shown = |table: &Value, key: &str| -> Vec<String> {
        let text = |figure: &Value| {
            let beside = figure["beside_json"].as_str().map(|ratio| format!(" {ratio}")).unwrap_or_default();
            format!("{}{beside}", figure["shown"].as_str().unwrap())
        };
        figures(table, key).into_iter().map(text).collect()
    };
    let all = [shown(relay, "rate"), shown(relay, "bytes"), shown(clients, "rate")].concat();
    let terminal: Vec<String> =
        rows(&report::terminal(&result, false)).into_iter().flat_map(|row| row[1..].to_vec()).collect();
    assert_eq!(all, terminal);
    for (table, seconds) in [(relay, "relay_s"), (clients, "client_s")] {
        for cell in array(&table["cells"]) {
            let rate = &cell["figures"]["rate"];
            let [envelopes, core_s] = array(&rate["sums"]) else { panic!("{rate}") };
            let (envelopes, core_s) = (envelopes.as_f64().unwrap(), core_s.as_f64().unwrap());
            assert!((core_s * rate["value"].as_f64().unwrap() / envelopes - 1.0).abs() < 1e-9, "{rate}");
            // And of its blocks.
            let sum =
                |key: &str| array(&cell["blocks"]).iter().map(|one| one[key].as_f64().unwrap()).sum::<f64>();
            assert!(
                (sum("envelopes") - envelopes).abs() < 1e-9 && (sum(seconds) / core_s - 1.0).abs() < 1e-4
            );
        }
    }
    // Deflated CBOR did not fill the relay.
    assert_eq!(figures(relay, "rate")[3]["at_least"], true);
    assert_eq!(relay["missing"]["client_cpu"], "light readers do less than clients");
    assert!(relay["control"]["rate"].as_str().unwrap().starts_with("×1.00±"), "{relay}");
    // Its sentence is that of every rendering.
    let [answer] = array(&relay["answer"]) else { panic!("{relay}") };
    let folded = report::terminal(&result, false).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(folded.contains(answer.as_str().unwrap()), "{answer} in {folded}");
    assert!(array(&clients["answer"]).is_empty(), "{clients}");
    assert_eq!(relay["fan_out"], 4.0);
}

#[test]
fn what_does_not_compare_says_why() {
    let planned = data(&page(&common::result("standard", 12, &CELLS, of_a_plan)));
    let table = &planned[0]["tables"][0];
    assert_eq!(table["missing"]["rate"], "the plan sets the rate; --saturate measures it");
    let answer = array(&table["answer"]);
    assert!(answer[0].as_str().unwrap().starts_with("wire bytes: less: "), "{answer:?}");
    // Deflate and packed CBOR differ; what is JSON with noise does not.
    let differ: Vec<bool> = figures(table, "relay_cpu").iter().map(|one| one["differs"] == true).collect();
    assert_eq!(differ, [false, true, true, true, false], "{table}");
    let bytes = figures(table, "bytes");
    assert!(
        bytes[0].get("ratio").is_none() && bytes[1]["low"].as_f64() <= bytes[1]["ratio"].as_f64(),
        "{bytes:?}"
    );
    // A relay that is full: its latency is the length of a queue.
    let full = data(&page(&played(|task| {
        let mut record = block(task);
        record.relay_cpu.as_mut().unwrap().total_ns = record.active_ns;
        measured(record)
    })));
    let p50 = figures(&full[0]["tables"][0], "p50");
    assert!(
        p50.iter().all(|one| one["why"].as_str().unwrap().starts_with("the length of a queue")),
        "{p50:?}"
    );
    // Code of two authors: tables of their own, and no ratio from one to the other.
    let mut mixed = common::result("standard", 12, &CELLS, of_a_plan);
    for cell in mixed.cells.iter_mut().filter(|cell| cell.cell.format == "cbor-packed") {
        cell.cell.implementation = "tuned".to_owned();
    }
    let mixed = data(&page(&mixed));
    let [library, tuned] = array(&mixed[0]["tables"]) else { panic!("{mixed}") };
    assert_eq!([&library["implementation"], &tuned["implementation"]], ["library", "tuned"]);
    assert!(figures(tuned, "bytes").iter().all(|one| one.get("ratio").is_none()), "{tuned}");
}

/// A run of five seconds, whose median is in microseconds.
fn one_run() -> RunRecord {
    let mut run = record("cbor-packed+deflate", 1, PLAIN);
    let second = |n: u64| Slice { samples: 800, latency_ns_p50: Some((900 + 50 * n) * 1_000), in_flight: 3 };
    run.slices = Some(Slices { of: "response".to_owned(), seconds: (0..5).map(second).collect() });
    run
}

#[test]
fn the_page_of_one_run_has_its_figures_fates_and_course() {
    let run = one_run();
    let page = report::run_html(&run).unwrap();
    let data = data(&page);
    assert_eq!(data[0]["title"], "mixed-day: one run of cbor-packed+deflate");
    assert!(array(&data[0]["warnings"]).is_empty(), "{data}");
    let cell = &data[0]["tables"][0]["cells"][0];
    assert_eq!(cell["figures"]["bytes"]["value"], 900.0);
    assert_eq!(array(&cell["seconds_p50"])[3], 1.05);
    assert!(array(&cell["slowest"])[0][0] == 2.0, "{cell}");
    let parts = data[0]["parts"].to_string();
    for said in [
        "Valid: ",
        "While work was outstanding the relay used 15 % of its cores",
        "[\"deliveries\",\"4000\",\"100.00 %\"]",
        "[\"publishes acked\",\"1000\",\"100.00 %\"]",
        "level=6 window_bits=15 takeover=true",
    ] {
        assert!(parts.contains(said), "{said} in\n{parts}");
    }
}

#[test]
fn the_page_of_a_run_without_evidence_says_so_and_keeps_its_numbers() {
    let mut run = one_run();
    run.status = Status::Incomplete { reason: "the relay was lost".to_owned() };
    (run.counts.deliveries, run.counts.deliveries_lost) = (3_993, 7);
    let why = run.counts.balanced().unwrap_err();
    run.validity.add(ValidityClass::Invalid, ReasonKind::Unbalanced { why });
    let found = data(&report::run_html(&run).unwrap());
    let [incomplete, invalid] = array(&found[0]["warnings"]) else { panic!("{found}") };
    assert!(incomplete.as_str().unwrap().starts_with("Incomplete: the relay was lost"), "{found}");
    let says = "Invalid: the ledger does not balance: deliveries_lost is 7";
    assert!(invalid.as_str().unwrap().starts_with(says), "{found}");
    // Nobody waited for them.
    let parts = found[0]["parts"].to_string();
    assert!(parts.contains("\"deliveries not arrived\",\"7\"") && !parts.contains("Valid: "), "{parts}");
    run.status = Status::Complete;
    let found = data(&report::run_html(&run).unwrap());
    assert!(found[0]["parts"].to_string().contains("\"deliveries lost\",\"7\""), "{found}");
}

#[test]
fn words_and_numbers_of_hostile_files_stay_text_and_numbers() {
    let mut result = troubled();
    result.config.scenarios = vec![EVIL.to_owned()];
    result.command.push(EVIL.to_owned());
    for cell in &mut result.cells {
        cell.id.push_str(EVIL);
        for word in [&mut cell.cell.format, &mut cell.cell.scenario, &mut cell.cell.code] {
            EVIL.clone_into(word);
        }
        for record in cell.blocks.iter_mut().filter_map(|block| block.record.as_mut()) {
            (record.active_ns, record.traffic.to_client.wire_bytes) = (0, u64::MAX / 1_000);
        }
    }
    let (good, mut site) = (page(&played(|task| measured(block(task)))), Site::default());
    site.add(EVIL, &result).unwrap();
    let page = site.html(EVIL).unwrap();
    assert_eq!(page.matches("</script>").count(), good.matches("</script>").count());
    assert!(!page.contains("<img src=x"), "a name became an element");
    assert_eq!(data(&page)[0]["name"], EVIL);

    let mut run = one_run();
    let Cell { scenario, format, compression, compression_parameters, .. } = &mut run.cell;
    for word in [scenario, format, compression, compression_parameters, &mut run.corpus.name] {
        EVIL.clone_into(word);
    }
    run.command.push(EVIL.to_owned());
    run.validity.add(ValidityClass::Suspect, ReasonKind::Said { sentence: EVIL.to_owned() });
    run.status = Status::Incomplete { reason: EVIL.to_owned() };
    run.latency.insert(EVIL.to_owned(), run.latency["response"].clone());
    let relay = run.relay.as_mut().unwrap();
    (relay.software, relay.version) = (EVIL.to_owned(), EVIL.to_owned());
    run.slices.as_mut().unwrap().seconds.iter_mut().for_each(|second| second.samples = u64::MAX);
    (run.active_ns, run.elapsed_ns, run.counts.deliveries) = (0, 0, 0);
    let page = report::run_html(&run).unwrap();
    assert!(!page.contains("<img src=x"), "a name became an element");
    // No number is null.
    let cell = &data(&page)[0]["tables"][0]["cells"][0];
    assert!(!cell.to_string().contains("null"), "{cell}");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn site(args: &[&Path]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command.arg("site").args(args).current_dir(root()).ran()
}

/// The page over all that is published.
fn published(out: &Path) -> String {
    site(&[out, Path::new("--results"), Path::new("results/published")]).ended(0);
    fs::read_to_string(out.join("index.html")).unwrap()
}

#[test]
fn all_that_is_published_is_on_one_small_page_without_requests() {
    let out = tempfile::tempdir().unwrap();
    let page = published(&out.path().join("site"));
    assert!(page.len() <= MOST_BYTES, "{} bytes", page.len());
    let (outside, rest) = page.split_once("<style>").unwrap();
    let (style, rest) = rest.split_once("</style>").unwrap();
    let (body, _) = rest.split_once("<script>").unwrap();
    for request in ["src=", "@import", "url(", "<link", "<img"] {
        assert!([outside, style].iter().all(|part| !part.contains(request)), "{request}");
    }
    assert!(outside.contains("default-src 'none'") && body.contains("<noscript>"));
    let data = data(&page);
    let folders = fs::read_dir(root().join("results/published")).unwrap();
    let folders = folders.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count();
    assert_eq!(array(&data).len(), folders);
    let named =
        |name: &str| array(&data).iter().find(|one| one["name"] == format!("published/{name}")).unwrap();
    let summary = fs::read_to_string(root().join("results/published/limit-tuned/summary.md")).unwrap();
    for cell in array(&named("limit-tuned")["tables"][0]["cells"]) {
        let rate = &cell["figures"]["rate"];
        if cell["compression"] == "none" {
            // As results/published/limit-tuned/plan.md says.
            let significant = ["capnp", "dannypack", "notepack"].contains(&cell["row"].as_str().unwrap());
            assert_eq!(rate["differs"] == true, significant, "{}", cell["row"]);
        }
        let field = [rate["shown"].as_str(), rate["beside_json"].as_str()].into_iter().flatten();
        let field = format!("| {} |", field.collect::<Vec<_>>().join(" "));
        assert!(summary.contains(&field), "{field}");
    }
    assert_eq!(array(&named("limit-fan-out")["tables"]).len(), 4);
    // Pages of a browser have tables of their own.
    let pages = named("browser-decode-wasm");
    assert!(array(&pages["tables"]).is_empty() && array(&pages["parts"]).len() > 3);
}

#[test]
fn a_folder_without_results_is_refused_and_one_that_is_broken_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (out, results) = (path("site"), path("all"));
    fs::create_dir(&results).unwrap();
    let args = [&*out, Path::new("--results"), &results];
    site(&args).ended(2).saying(&["no result in", "--results"]);
    assert!(!out.exists());
    fs::create_dir(results.join("broken")).unwrap();
    fs::write(results.join("broken/result.json"), "{\"schema_version\": \"2.0\", \"cells\": [[[").unwrap();
    fs::create_dir(results.join("whole")).unwrap();
    played(|task| measured(block(task))).write(&results.join("whole")).unwrap();
    site(&args).ended(0).saying(&["left out", "broken"]);
    let found = data(&fs::read_to_string(out.join("index.html")).unwrap());
    assert!(array(&found).len() == 1 && found[0]["name"] == "all/whole", "{found}");
}

/// Looks at a page in frames of both widths, uses it, and writes what it saw into the title.
const FRAMES: &str = r#"<!doctype html><title>waiting</title><body>
<iframe src="page.html" width="1280" height="900"></iframe><iframe src="page.html" width="390" height="900"></iframe>
<script>const said = [];
addEventListener("message", ({ data }) => { said.push(data); if (said.length === 2) document.title = said.join("; "); });</script>"#;

const INSPECT: &str = r##"<script>addEventListener("load", () => {
const seen = [], width = innerWidth;
const text = element => element.textContent.trim().slice(0, 40);
const look = when => {
  if (document.documentElement.scrollWidth > width) seen.push(`${when}: scrolls sideways`);
  for (const element of document.querySelectorAll("main *")) {
    const box = element.getBoundingClientRect();
    if (!element.closest(".scroll, svg, option") && box.width && box.right > width + 1) seen.push(`${when}: ${element.tagName} ${text(element)} sticks out`);
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (own && box.width && parseFloat(getComputedStyle(element).fontSize) < 11) seen.push(`${when}: ${element.tagName} ${text(element)} is small`);
  }
  for (const svg of document.querySelectorAll("figure svg")) {
    const outer = svg.getBoundingClientRect();
    for (const one of svg.querySelectorAll("text")) {
      const box = one.getBoundingClientRect();
      if (box.width && (box.left < outer.left - 2 || box.right > Math.max(outer.right + 2))) seen.push(`${when}: ${text(one)} leaves its chart`);
    }
  }
  for (const button of document.querySelectorAll("button")) if (!text(button) && !button.ariaLabel) seen.push("a button without a name");
  for (const chart of document.querySelectorAll("figure[aria-label]:has(svg)")) if (!chart.querySelector("[class*=swatches]")) seen.push("a chart without a legend");
  document.querySelectorAll("figure svg").forEach(svg => { if (/NaN|Infinity/.test(svg.outerHTML)) seen.push("a place that is no number"); });
};
look("first");
const cells = document.querySelectorAll("table.heat td button");
if (cells.length) {
  cells[cells.length - 1].click();
  look("with a cell");
  const cell = document.getElementById("cell");
  if (!cell || !/commit|machine/.test(cell.textContent) || cell.querySelectorAll("details tbody tr").length === 0) seen.push("a cell does not open to its blocks");
  if (!new URLSearchParams(location.hash.slice(1)).get("cell")) seen.push("the link does not keep the cell");
  const kept = document.querySelector("table.heat button[aria-pressed=true]")?.ariaLabel;
  dispatchEvent(new Event("hashchange"));
  if (document.querySelector("table.heat button[aria-pressed=true]")?.ariaLabel !== kept) seen.push("the link does not lead there");
  const metrics = [...document.querySelectorAll(".metrics button:not(:disabled)")].length;
  for (let n = 0; n < metrics; n++) { document.querySelectorAll(".metrics button:not(:disabled)")[n].click(); look(`figure ${n}`); }
  const slider = document.getElementById("mbit");
  if (slider) {
    const before = document.querySelector("output").textContent;
    slider.value = "-1"; slider.dispatchEvent(new Event("input"));
    if (document.querySelector("output").textContent === before) seen.push("the slider does nothing");
  }
  const beside = document.querySelector("select[name='beside it']");
  const barred = beside ? [...beside.options].filter(one => one.disabled) : [];
  if (beside && SEVERAL && !barred.some(one => /another (machine|commit|corpus)/.test(one.text))) seen.push("what does not compare can be chosen");
  const asked = document.querySelectorAll("nav button").length;
  if (SEVERAL && asked !== 6) seen.push(`${asked} questions`);
  for (let n = 0; n < asked; n++) {
    document.querySelectorAll("nav button")[n].click();
    look(`question ${n}`);
    // Each leads to what came out, to a cell, or to a summary that is open.
    if (!document.querySelector(".answer") && !document.querySelector("details.result[open]")) seen.push(`question ${n} has no answer`);
  }
  const results = document.querySelector("select[name=result]");
  for (const value of results ? [...results.options].map(one => one.value) : []) {
    const select = document.querySelector("select[name=result]");
    select.value = value; select.dispatchEvent(new Event("change"));
    look(value);
    const chart = name => document.querySelector(`figure[aria-label^="${name}"] svg`);
    if (/limit-fan-out$/.test(value) && !chart("Fan-out: ")) seen.push("no curve of the fan-out");
    if (/limit-tuned$/.test(value) && !(chart("Bytes against") && chart("Time of an envelope"))) seen.push("no front, or no times");
  }
}
const requests = performance.getEntriesByType("resource").map(entry => entry.name);
if (requests.length) seen.push(`requests: ${requests}`);
parent.postMessage(`${width}: ${cells.length} cells, faults: ${[...new Set(seen)].slice(0, 12).join(" | ") || "none"}`, "*");
});</script>"##;

/// The page with a second script, which in this copy the policy lets run; it still forbids every request.
fn inspected(page: &str, script: &str) -> String {
    let page = page.replacen("script-src 'sha256-", "script-src 'unsafe-inline'; x-was 'sha256-", 1);
    let (before, _) = page.rsplit_once("</body>").unwrap();
    format!("{before}{script}</body></html>")
}

/// The title that the scripts of a file leave in a browser, and what the browser logged.
fn titled(file: &Path) -> (String, String) {
    let version =
        |name: &&&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    let browser = BROWSERS.iter().find(version).expect("a browser on PATH");
    let Ran { out: dom, said: log, .. } = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args([
            "--window-size=1700,1000",
            "--enable-logging=stderr",
            "--virtual-time-budget=60000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", file.with_file_name("profile").display()))
        .arg(format!("file://{}", file.display()))
        .ran();
    let title = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next());
    (title.unwrap_or_default().to_owned(), log)
}

#[test]
#[ignore = "needs chromium or google-chrome"]
fn a_browser_shows_and_works_the_page_at_both_widths_without_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    for (name, page, cells) in [
        ("published", published(folder.path()), 36),
        ("limit", page(&played(|task| measured(block(task)))), 4),
        ("troubled", page(&troubled()), 5),
        ("one run", report::run_html(&one_run()).unwrap(), 1),
    ] {
        let inspect = INSPECT.replace("SEVERAL", if name == "published" { "true" } else { "false" });
        fs::write(folder.path().join("page.html"), inspected(&page, &inspect)).unwrap();
        let file = folder.path().join("frames.html");
        fs::write(&file, FRAMES).unwrap();
        let (title, log) = titled(&file);
        let mut said: Vec<&str> = title.split("; ").collect();
        said.sort_unstable();
        let fine = |width: u32| format!("{width}: {cells} cells, faults: none");
        assert_eq!(said, [fine(1280), fine(390)], "{name}\n{log}");
        let console: Vec<&str> =
            log.lines().filter(|line| line.contains("CONSOLE") && !line.contains("x-was")).collect();
        assert!(console.is_empty(), "{console:?}");
    }
}

/// What may stand beside the first result, the lower figures that links to each bring, and who measured.
const GREYED: &str = r##"<script>addEventListener("load", () => {
const shown = selection => {
  history.replaceState(null, "", `#${new URLSearchParams(selection)}`);
  dispatchEvent(new Event("hashchange"));
};
const names = ["same", "machine", "commit", "corpus", "changed"];
const choices = [...document.querySelector("select[name='beside it']").options].map(one => [one.text.split(":")[0], one.disabled ? one.text : ""]);
const lower = names.map(name => {
  shown({ table: "own/1", metric: "bytes", beside: `${name}/1` });
  return document.querySelectorAll("table.heat td .other").length;
});
const measured = ["own", "same", "machine"].map(name => {
  shown({ table: `${name}/1`, cell: "cbor-packed+none" });
  return [...document.querySelectorAll("#cell dd, #table > .note")].map(one => one.textContent);
});
document.title = JSON.stringify({ choices, lower, measured });
});</script>"##;

#[test]
#[ignore = "needs chromium or google-chrome"]
fn a_browser_greys_what_must_not_be_compared_and_names_who_measured() {
    let base = || {
        let mut result = common::result("standard", 2, &["cbor-packed+none"], |id, round, _| {
            record(id, round.into(), PLAIN)
        });
        result.git.as_mut().unwrap().dirty = false;
        result
    };
    let by =
        |by: MeasuredBy, paid_by: Option<&str>| Some(Provenance { by, paid_by: paid_by.map(str::to_owned) });
    let other = |change: fn(&mut ResultFile)| {
        let mut result = base();
        change(&mut result);
        result
    };
    let mut site = Site::default();
    let own = ResultFile { provenance: by(MeasuredBy::Maintainer, None), ..base() };
    let vendors = ResultFile {
        provenance: by(MeasuredBy::Vendor, Some("Example Ltd")),
        ..other(|one| one.host.cpu = Some("Another CPU".to_owned()))
    };
    for (name, result) in [
        ("own", own),
        ("same", base()),
        ("machine", vendors),
        ("commit", other(|one| one.git.as_mut().unwrap().commit = "f".repeat(40))),
        ("corpus", other(|one| one.corpus.as_mut().unwrap().sha256 = "f".repeat(64))),
        ("changed", other(|one| one.git.as_mut().unwrap().dirty = true)),
    ] {
        site.add(name, &result).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    fs::write(&file, inspected(&site.html("a title").unwrap(), GREYED)).unwrap();
    let (title, log) = titled(&file);
    let seen: Value = serde_json::from_str(&title).unwrap_or_else(|error| panic!("{error}: {title}\n{log}"));
    let choices: Vec<(&str, &str)> = array(&seen["choices"])
        .iter()
        .map(|one| (one[0].as_str().unwrap(), one[1].as_str().unwrap()))
        .collect();
    let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["nothing", "same", "machine", "commit", "corpus", "changed"]);
    let barred: Vec<&str> =
        choices.iter().map(|(_, why)| why.rsplit_once(": ").map_or("", |(_, why)| why)).collect();
    assert_eq!(barred, ["", "", "another machine", "another commit", "another corpus", "another commit"]);
    // A link that was made by hand brings no figure beside either.
    assert_eq!(seen["lower"], serde_json::json!([2, 0, 0, 0, 0]), "{seen}");
    let who = |place: usize| seen["measured"][place].to_string();
    assert!(who(0).matches("maintainers of this repository, paid by nobody").count() == 2, "{seen}");
    assert!(who(1).contains("not stated"), "{seen}");
    assert!(who(2).matches("a vendor of what was measured, paid by Example Ltd").count() == 2, "{seen}");
}
