//! The page: nothing but one file, and what a browser makes of it.

use std::{fs, process::Command};

use crate::{
    common::{PLAIN, record, result},
    loads::at_two_loads,
    ran::{Ran, Runs},
    report::{CELLS, measured, troubled},
};
use measure::{Cell, ReasonKind, RunRecord, Slice, Slices, Status, ValidityClass};

/// Names of a browser that may be installed here.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Looks at the page at both widths and writes what it saw into the title.
const INSPECT: &str = r#"<script>
const seen = [];
for (const width of [1240, 390]) {
  document.body.style.width = width + "px";
  const right = document.body.getBoundingClientRect().right;
  for (const element of document.querySelectorAll("body *")) {
    if (!element.closest(".scroll, svg") && element.getBoundingClientRect().right > right + 1)
      seen.push(`${width}: ${element.tagName} sticks out`);
  }
  for (const svg of document.querySelectorAll("svg")) {
    const texts = [...svg.querySelectorAll("text")].map(t => [t.textContent.trim(), t.getBoundingClientRect()]);
    const outer = svg.getBoundingClientRect();
    texts.forEach(([a, p], i) => {
      if (p.left < outer.left - 1 || p.right > outer.right + 1) seen.push(`${width}: "${a}" leaves its figure`);
      for (const [b, q] of texts.slice(i + 1)) {
        if (p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 3 && q.top < p.bottom - 3)
          seen.push(`${width}: "${a}" covers "${b}"`);
      }
    });
  }
}
if (!document.documentElement.classList.contains("js")) seen.push("the script did not run");
const requests = performance.getEntriesByType("resource").map(entry => entry.name);
if (requests.length) seen.push(`requests: ${requests}`);
document.title = `marks ${document.querySelectorAll(".mark").length}; faults: ${seen.join(" | ") || "none"};`;
</script></body>"#;

fn assert_without_requests(page: &str) {
    let static_part = page.replace("http://www.w3.org/2000/svg", "");
    for request in ["http:", "https:", "src=", "@import", "url(", "<link", "<img"] {
        assert!(!static_part.contains(request), "{request}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn the_page_is_one_file_without_requests_and_reads_without_javascript() {
    let result = result("standard", 12, &CELLS, measured);
    let page = report::html(&result).unwrap();
    assert_without_requests(&page);
    assert!(page.contains("<td class=\"name\">json+none</td><td>×0.60"), "{page}");
    assert!(page.matches("<svg ").count() >= 6, "{}", page.matches("<svg ").count());
}

#[test]
fn names_from_a_file_stay_text() {
    let evil = "</script><img src=x onerror=alert(1)>";
    let mut result = troubled();
    result.config.scenarios = vec![evil.to_owned()];
    result.command.push(evil.to_owned());
    for cell in &mut result.cells {
        cell.id.push_str(evil);
        cell.cell.format.push_str(evil);
        cell.cell.scenario = evil.to_owned();
    }
    let page = report::html(&result).unwrap();
    assert!(!page.contains("<img") && !page.contains("</script><img"));
    assert_eq!(page.matches("</script>").count(), 2);
}

/// A run of five seconds, whose median is in microseconds.
fn one_run() -> RunRecord {
    let mut run = record("cbor-packed+deflate", 1, PLAIN);
    let second = |n: u64| Slice { samples: 800, latency_ns_p50: Some((900 + 50 * n) * 1_000), in_flight: 3 };
    run.slices = Some(Slices { of: "response".to_owned(), seconds: (0..5).map(second).collect() });
    run
}

#[test]
fn the_page_of_one_run_says_what_that_of_a_comparison_says_of_a_cell() {
    let page = report::run_html(&one_run());
    for caption in
        ["Latency by percentile", "Latency p50 second by second", "Envelope throughput second by second"]
    {
        assert!(page.contains(&format!("<figcaption>{caption}</figcaption>")), "{caption}");
    }
    for said in [
        "mixed-day: one run of cbor-packed+deflate",
        "<p>Valid: ",
        "While work was outstanding the relay used 15 % of its cores",
        "<td class=\"name\">deliveries</td><td class=\"name\">once and unaltered</td><td>4000</td><td>100.00 %</td>",
        "level=6 window_bits=15 takeover=true",
        "cbor-packed+deflate: p50 1.05 ms in second 4",
    ] {
        assert!(page.contains(said), "{said} in\n{page}");
    }
    assert!(!page.contains("class=\"warning\"") && !page.contains("median over rounds"));
    assert_without_requests(&page);
}

#[test]
fn the_page_of_a_run_without_evidence_says_so_and_keeps_its_numbers() {
    let mut run = one_run();
    run.status = Status::Incomplete { reason: "the relay was lost".to_owned() };
    (run.counts.deliveries, run.counts.deliveries_lost) = (3_993, 7);
    let why = run.counts.balanced().unwrap_err();
    run.validity.add(ValidityClass::Invalid, ReasonKind::Unbalanced { why });
    let page = report::run_html(&run);
    let warnings: Vec<&str> = page.split("class=\"warning\">").skip(1).collect();
    assert!(warnings[0].starts_with("Incomplete: the relay was lost"), "{page}");
    assert!(
        warnings[1].starts_with("Invalid: the ledger does not balance: deliveries_lost is 7")
            && warnings.len() == 2,
        "{page}"
    );
    // Nobody waited for them.
    assert!(page.contains("<td class=\"name\">not arrived</td><td>7</td>") && !page.contains("Valid: "));
    assert_eq!(page.matches("<svg ").count(), 3);
    run.status = Status::Complete;
    assert!(report::run_html(&run).contains("<td class=\"name\">lost</td><td>7</td>"));
}

#[test]
fn words_of_a_hostile_record_stay_text_and_its_numbers_are_drawn_or_left_out() {
    let evil = "</script><img src=x onerror=alert(1)>";
    let mut run = one_run();
    let Cell { scenario, format, compression, compression_parameters, .. } = &mut run.cell;
    for word in [scenario, format, compression, compression_parameters, &mut run.corpus.name] {
        evil.clone_into(word);
    }
    run.command.push(evil.to_owned());
    run.validity.add(ValidityClass::Suspect, ReasonKind::Said { sentence: evil.to_owned() });
    run.status = Status::Incomplete { reason: evil.to_owned() };
    run.latency.insert(evil.to_owned(), run.latency["response"].clone());
    let relay = run.relay.as_mut().unwrap();
    (relay.software, relay.version) = (evil.to_owned(), evil.to_owned());
    run.slices.as_mut().unwrap().seconds.iter_mut().for_each(|second| second.samples = u64::MAX);
    (run.active_ns, run.elapsed_ns, run.counts.deliveries) = (0, 0, 0);
    let page = report::run_html(&run);
    assert!(!page.contains("<img") && page.matches("</script>").count() == 1, "{page}");
    let drawn: Vec<&str> =
        page.split("<svg ").skip(1).filter_map(|rest| rest.split("</svg>").next()).collect();
    assert!(!drawn.is_empty() && drawn.iter().all(|svg| !svg.contains("NaN") && !svg.contains("inf")));
}

#[test]
#[ignore = "needs chromium or google-chrome"]
fn a_browser_shows_the_page_at_both_widths_without_a_fault() {
    let version =
        |name: &&&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    let browser = BROWSERS.iter().find(version).expect("a browser on PATH");
    let folder = tempfile::tempdir().unwrap();
    let html = |result| report::html(&result).unwrap();
    for (name, page) in [
        ("standard", html(result("standard", 12, &CELLS, measured))),
        ("troubled", html(troubled())),
        ("loads", html(at_two_loads())),
        ("one run", report::run_html(&one_run())),
    ] {
        let marks = page.matches("class=\"mark\"").count();
        // The inspector is a second script: in this copy the policy lets it run and still forbids
        // every request.
        let page = page.replacen("script-src 'sha256-", "script-src 'unsafe-inline'; x-was 'sha256-", 1);
        let file = folder.path().join(format!("{name}.html"));
        fs::write(&file, page.replacen("</body>", INSPECT, 1)).unwrap();
        let Ran { out: dom, said: log, .. } = Command::new(browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--window-size=1280,900",
            ])
            .args(["--enable-logging=stderr", "--dump-dom"])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg(format!("file://{}", file.display()))
            .ran();
        let title = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next());
        assert_eq!(title, Some(format!("marks {marks}; faults: none;").as_str()), "{name}");
        let console: Vec<&str> =
            log.lines().filter(|line| line.contains("CONSOLE") && !line.contains("x-was")).collect();
        assert!(console.is_empty(), "{console:?}");
    }
}
