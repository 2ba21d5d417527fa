//! The page: nothing but one file, and what a browser makes of it.

use std::{fs, process::Command};

use crate::{
    common::result,
    report::{CELLS, measured, troubled},
};

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

#[test]
fn the_page_is_one_file_without_requests_and_reads_without_javascript() {
    let result = result("standard", 12, &CELLS, measured);
    let page = report::html(&result).unwrap();
    let static_part = page.replace("http://www.w3.org/2000/svg", "");
    for request in ["http:", "https:", "src=", "@import", "url(", "<link", "<img"] {
        assert!(!static_part.contains(request), "{request}");
    }
    assert!(page.contains("default-src 'none'"));
    assert!(page.contains("cbor-packed+none</b> against json+none: wire bytes <span class=\"better\">×0.60"));
    assert!(page.matches("<svg ").count() >= 8, "{}", page.matches("<svg ").count());
    // Five cells without the control, in two Pareto plots.
    assert_eq!(page.matches(" B on the wire").count(), 10);
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

#[test]
#[ignore = "needs chromium or google-chrome"]
fn a_browser_shows_the_page_at_both_widths_without_a_fault() {
    let version =
        |name: &&&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    let browser = BROWSERS.iter().find(version).expect("a browser on PATH");
    let folder = tempfile::tempdir().unwrap();
    for (name, result) in [("standard", result("standard", 12, &CELLS, measured)), ("troubled", troubled())] {
        let page = report::html(&result).unwrap();
        let marks = page.matches("class=\"mark\"").count();
        // The inspector is a second script: in this copy the policy lets it run and still forbids
        // every request.
        let page = page.replacen("script-src 'sha256-", "script-src 'unsafe-inline'; x-was 'sha256-", 1);
        let file = folder.path().join(format!("{name}.html"));
        fs::write(&file, page.replacen("</body>", INSPECT, 1)).unwrap();
        let output = Command::new(browser)
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
            .output()
            .unwrap();
        let (dom, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let title = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next());
        assert_eq!(title, Some(format!("marks {marks}; faults: none;").as_str()), "{name}");
        let console: Vec<&str> =
            log.lines().filter(|line| line.contains("CONSOLE") && !line.contains("x-was")).collect();
        assert!(console.is_empty(), "{console:?}");
    }
}
