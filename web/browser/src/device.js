// The page that a person opens on a device (`compare browser --serve`). It asks `compare` for the next
// block, opens the block's page in a frame, and shows what is measured and how far the run is.

(async () => {
  const device = `${Math.random()}`;
  const element = (id) => document.querySelector(`#${id}`);

  function show({ now, done, of, left, last }) {
    element("now").textContent = now;
    Object.assign(element("done"), { value: done, max: of });
    element("left").textContent = `${done} of ${of} blocks, ${left} left`;
    element("last").textContent = last ? `Before: ${last}` : "";
  }

  function end(words) {
    element("now").textContent = words;
    element("title").textContent = "The run has ended";
    document.title = "ended";
    for (const id of ["done", "left", "last", "hint"]) element(id).remove();
    document.querySelector("main").replaceChildren();
  }

  // A page that a browser fetches ahead must not begin a run.
  if (document.prerendering) await new Promise((resolve) => document.addEventListener("prerenderingchange", resolve));
  // Where a page may keep the screen on, which needs TLS or 127.0.0.1; elsewhere the person does.
  navigator.wakeLock?.request("screen").catch(() => {});
  addEventListener("pagehide", () => navigator.sendBeacon("left", JSON.stringify({ device })));

  element("now").textContent = "Comparing every decoder with JSON.parse before anything is timed";
  for (;;) {
    let next;
    try {
      next = await (await fetch("next", { method: "POST", body: JSON.stringify({ device }) })).json();
    } catch {
      return end("The connection to compare ended; what it measured until then is kept there.");
    }
    if (next.end) return end(next.end);
    if (next.show) show(next.show);
    // The script of each block is compiled anew.
    const frame = Object.assign(document.createElement("iframe"), { src: `page.html?${next.block}` });
    document.querySelector("main").replaceChildren(frame);
  }
})();
