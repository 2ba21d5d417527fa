// The page of a block of `compare browser`. It asks `compare` for its task, does it, marks where a step begins
// and ends, and posts what it found.

import * as DECODERS from "./decoders.js";
import { HAS_TO_HEX } from "./bytes.js";
import { ROWS, TASKS } from "./rows.js";
import { Subscription } from "./subscription.js";

/** Time for a browser to finish its own start, which is not the page's. */
const SETTLES_MS = 300;
/** Events of the first step: a screen or two. */
const FIRST_EVENTS = 100;
/** Time of the step before the measured one: V8 has optimised a hot function by then. */
const WARM_UP_MS = 200;
/** Requests before the measured ones. */
const WARM_UP_REQUESTS = 3;
/** Requests of a step at most. */
const MAX_REQUESTS = 1_000;
/** Events between two looks at the clock. */
const CLOCK_EVERY = 32;
/** Longest text of an error that is told; `compare` refuses long answers. */
const ERROR_CHARACTERS = 300;

function named(name) {
  const row = [...ROWS, ...TASKS].find((row) => row.name === name);
  if (!row) throw new Error(`no row is called ${name}`);
  return row;
}

/** The row's function or functions. */
const make = ({ source }) => DECODERS[source.make](...source.args);

/** The frames of a set of events in a format, each in a buffer of its own, as a WebSocket hands them out. */
async function frames(set, format) {
  const answer = await fetch(`events/${set}/${format}`);
  if (!answer.ok) throw new Error(`${answer.url}: ${answer.status}`);
  const buffer = await answer.arrayBuffer();
  const view = new DataView(buffer);
  const found = [];
  for (let at = 0; at < buffer.byteLength; ) {
    const from = at + 4;
    at = from + view.getUint32(at, true);
    found.push(new Uint8Array(buffer.slice(from, at)));
  }
  return found;
}

function asTexts(frames) {
  const utf8 = new TextDecoder();
  return frames.map((bytes) => utf8.decode(bytes));
}

const formatOf = ({ format, compression }) => (compression === "none" ? format : `${format}+${compression}`);

/** What the row takes, as the frames of a WebSocket are: text or bytes. */
const asInputs = ({ input }, given) => (input === "text" ? asTexts(given) : given);

let items = [];
/** The bytes of the items before each, and of all. */
let bytesBefore = [0];
let kept = [];
let work;
let subscription;

/** Tells `compare` something in this block and returns its answer. */
async function tell(what, said = {}) {
  const answer = await fetch(what, { method: "POST", body: JSON.stringify(said) });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

/** Bytes of the heap after a collection. */
function heap() {
  gc();
  return performance.memory.usedJSHeapSize;
}

/** Makes everything ready for a row and a set of events, and does nothing with them. */
async function prepare(name, set) {
  const row = named(name);
  const isTask = TASKS.includes(row);
  const made = await make(row);
  work = isTask ? made : made.event;
  const given = await frames(set, formatOf(row));
  items = asInputs(row, given);
  for (const { length } of given) bytesBefore.push(bytesBefore.at(-1) + (isTask ? 0 : length));
  if (isTask) items = items.map((text) => JSON.parse(text));
  kept = new Array(items.length).fill(null);
}

/** Works through the next `count` items; returns how many. */
function pass(from, count) {
  const to = Math.min(from + count, items.length);
  // As an app does, what was decoded is kept for a while.
  for (let i = from; i < to; i++) kept[i] = work(items[i]);
  return to - from;
}

/** Works through all items for so long. */
function warm(milliseconds) {
  const began = performance.now();
  let [events, at] = [0, 0];
  while (performance.now() - began < milliseconds) {
    events += pass(at, CLOCK_EVERY);
    at += CLOCK_EVERY;
    if (at >= items.length) at = 0;
  }
  const bytes = Math.floor(events / items.length) * bytesBefore.at(-1) + bytesBefore[events % items.length];
  return { events, bytes };
}

/** Does a step between marks, at which `compare` reads clocks; the first two say what a mark costs. */
async function step(deed) {
  gc();
  for (let mark = 0; mark < 3; mark++) await tell("mark");
  const began = performance.now();
  const found = await deed();
  const milliseconds = performance.now() - began;
  await tell("mark");
  return { ...found, milliseconds };
}

/** Connects to a relay. */
async function connect({ id, row, url, token, deflates, request }) {
  subscription?.close();
  const { input } = named(row);
  const isZstd = token.endsWith("+zstd");
  const made = await make(named(row));
  const { message } = isZstd ? DECODERS.overZstd(made, input) : made;
  subscription = new Subscription(message, url, token, isZstd ? DECODERS.plain(request) : request);
  const { protocol, extensions } = await subscription.open();
  if (protocol !== token || extensions.includes("permessage-deflate") !== deflates) {
    throw new Error(`${id}: the relay agreed to ${protocol} with ${extensions || "no extension"}, not to ${token}`);
  }
}

/** Asks for the stored events so many times, each time until EOSE. */
async function request(times) {
  const found = { events: 0, messages: 0 };
  for (let i = 0; i < times; i++) {
    const { events, messages } = await subscription.request();
    found.events += events.length;
    found.messages += messages;
  }
  return found;
}

/** How the first event that differs does so, if one does. */
function difference(name, read, given, expected) {
  if (given.length !== expected.length) return `${name} reads ${given.length} events of ${expected.length}`;
  for (const [i, text] of expected.entries()) {
    const wanted = JSON.parse(text);
    let found;
    try {
      found = read(given[i]);
      if (JSON.stringify(found) === text) continue;
    } catch (error) {
      found = `${error}`;
    }
    return `${name} reads event ${wanted.id} otherwise than JSON.parse does: ${JSON.stringify(found)}`;
  }
}

const DEEDS = {
  /** Compares decoders with JSON.parse, event by event, and what connections receive with what the first does. */
  async check({ rows, set, connections }) {
    const about = { has_to_hex: HAS_TO_HEX, isolated: crossOriginIsolated };
    const expected = asTexts(await frames(set, "json")).map((text) => JSON.stringify(JSON.parse(text)));
    let differs;
    for (const row of rows.map(named)) {
      const given = asInputs(row, await frames(set, formatOf(row)));
      differs ??= difference(row.name, (await make(row)).event, given, expected);
    }
    let first;
    for (const connection of connections) {
      await connect(connection);
      const { events } = await subscription.request();
      first ??= events.map((event) => JSON.stringify(event));
      differs ??= difference(connection.id, (event) => event, events, first);
      // A sign of life: over a link this may take minutes.
      await tell("mark");
    }
    if (first?.length === 0) throw new Error("the relays have no event");
    return { about, differs: differs?.slice(0, ERROR_CHARACTERS) };
  },

  /** Decodes the first events of a page, then as many as a step has time for. */
  async decode({ row, set, step_ms }) {
    await prepare(row, set);
    gc();
    const began = performance.now();
    const events = pass(0, FIRST_EVENTS);
    const first = { events, milliseconds: performance.now() - began };
    warm(WARM_UP_MS);
    return { ...(await step(() => warm(step_ms))), first };
  },

  /** Asks for the stored events until EOSE, again and again; once where the page has a link. */
  async request({ connection, over_a_link, step_ms }) {
    await connect(connection);
    // There the first request is what a user waits for.
    if (over_a_link) return step(() => request(1));
    const began = performance.now();
    await request(WARM_UP_REQUESTS);
    const each = (performance.now() - began) / WARM_UP_REQUESTS;
    return step(() => request(Math.max(1, Math.min(MAX_REQUESTS, Math.floor(step_ms / each)))));
  },
};

(async () => {
  const task = await tell("task");
  await new Promise((resolve) => setTimeout(resolve, SETTLES_MS));
  let found;
  try {
    found = await DEEDS[task.deed](task);
    found.heap_bytes = heap();
  } catch (error) {
    found = { error: `${error}`.slice(0, ERROR_CHARACTERS) };
  }
  await tell("done", found);
  // Where `compare` has ended, the browser that it started ends, too.
})().catch(() => close());
