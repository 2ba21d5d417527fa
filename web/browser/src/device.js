// The page that a person opens on a device (`compare browser --serve`). It connects to `compare`, plays the
// blocks that it is told to, each in a frame of its own, and shows what is measured and how far the run is.

(async () => {
  /** Longest text of an error that is told; `compare` refuses long answers. */
  const ERROR_CHARACTERS = 300;

  const element = (id) => document.querySelector(`#${id}`);
  const wasHidden = () => document.visibilityState !== "visible";

  let frame = null;
  let frames = 0;
  let hidden = false;

  /** What `compare` can ask for. */
  const DEEDS = {
    /** Opens the page of a block, whose script is compiled anew. */
    open() {
      frames += 1;
      hidden = wasHidden();
      frame = Object.assign(document.createElement("iframe"), { src: `page.html?${frames}` });
      return new Promise((resolve, reject) => {
        frame.onload = () => (frame.contentWindow.bench ? resolve(null) : reject(new Error("the page did not load")));
        document.querySelector("main").replaceChildren(frame);
      });
    },

    /** Evaluates an expression in the page of the block. */
    run: (expression) => frame.contentWindow.eval(expression),

    /** Closes the page of the block; says whether this page was hidden meanwhile, when browsers slow it down. */
    close() {
      frame.remove();
      frame = null;
      return { hidden };
    },
  };

  function show({ now, done, of, left, last }) {
    element("now").textContent = now;
    Object.assign(element("done"), { value: done, max: of });
    element("left").textContent = `${done} of ${of} blocks, ${left} left`;
    element("last").textContent = last ? `Before: ${last}` : "";
  }

  async function answer({ id, deed, argument }) {
    try {
      return { id, value: (await DEEDS[deed](argument)) ?? null };
    } catch (error) {
      return { id, error: `${error}`.slice(0, ERROR_CHARACTERS) };
    }
  }

  // A page that a browser fetches ahead must not begin a run.
  if (document.prerendering) await new Promise((resolve) => document.addEventListener("prerenderingchange", resolve));
  document.addEventListener("visibilitychange", () => (hidden ||= wasHidden()));
  // Where a page may keep the screen on, which needs TLS or 127.0.0.1; elsewhere the person does.
  navigator.wakeLock?.request("screen").catch(() => {});

  const socket = new WebSocket(new URL("device", location.href.replace(/^http/, "ws")));
  const end = "The connection to compare ended; what it measured until then is kept there.";
  socket.onopen = () => (element("now").textContent = "Comparing every decoder with JSON.parse before anything is timed");
  socket.onmessage = async ({ data }) => {
    const message = JSON.parse(data);
    if (message.show) show(message.show);
    else socket.send(JSON.stringify(await answer(message)));
  };
  socket.onclose = ({ reason }) => {
    element("now").textContent = reason || end;
    element("title").textContent = "The run has ended";
    document.title = "ended";
    for (const id of ["done", "left", "last", "hint"]) element(id).remove();
    document.querySelector("main").replaceChildren();
  };
})();
