// The page that `compare browser` opens afresh for each block, in Chromium or in a frame on a device
// (device.js). It asks `compare` for its task, does it, marks where a step begins and ends, and posts
// what it found.

import { sha256 } from "@noble/hashes/sha2.js";
import { bytesToHex, utf8ToBytes } from "@noble/hashes/utils.js";
import * as engine from "./engine.js";
import * as tuned from "./tuned.js";
import * as tasks from "./tasks.js";
import * as capnpEs from "./libraries/capnp-es.js";
import * as cborX from "./libraries/cbor-x.js";
import * as cborg from "./libraries/cborg.js";
import * as fzstd from "./libraries/fzstd.js";
import * as msgpack from "./libraries/msgpack.js";
import * as msgpackr from "./libraries/msgpackr.js";
import * as protobufEs from "./libraries/protobuf-es.js";
import * as protobufJsBinary from "./libraries/protobufjs-binary.js";
import * as protobufJsString from "./libraries/protobufjs-string.js";
import * as wasm from "./wasm.js";
import { HAS_TO_HEX, useHex } from "./bytes.js";
import { ROWS, TASKS } from "./rows.js";
import { Subscription } from "./subscription.js";

const MODULES = {
  ...engine,
  ...tuned,
  ...wasm,
  ...tasks,
  ...capnpEs,
  ...cborX,
  ...cborg,
  ...fzstd,
  ...msgpack,
  ...msgpackr,
  ...protobufEs,
  ...protobufJsBinary,
  ...protobufJsString,
};

/** Events between two looks at the clock. */
const CLOCK_EVERY = 32;
/** Requests of a step at most. */
const MAX_REQUESTS = 1_000;
/** Longest text of an error that is told; `compare` refuses long answers. */
const ERROR_CHARACTERS = 300;

function named(name) {
  const row = [...ROWS, ...TASKS].find((row) => row.name === name);
  if (!row) throw new Error(`no row is called ${name}`);
  return row;
}

/** A row that is broken on purpose, to test that the comparison with JSON.parse finds it. */
let planted = null;

/** The row's function or functions. */
async function make({ name, source, hex }) {
  useHex(hex === "table" || !HAS_TO_HEX ? "table" : "native");
  const made = await MODULES[source.make](...source.args);
  if (name !== planted) return made;
  const altered = (event) => (event.kind === 1 ? { ...event, content: `${event.content} ` } : event);
  return { ...made, event: (data) => altered(made.event(data)) };
}

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
async function inputs(row, set) {
  const given = await frames(set, formatOf(row));
  return row.input === "text" ? asTexts(given) : given;
}

let items = [];
/** The bytes of the items before each, and of all. */
let bytesBefore = [0];
let kept = [];
let work;
let subscription;

function say(text) {
  document.title = text;
  document.querySelector("#now").textContent = text;
}

const isHidden = () => document.visibilityState !== "visible";
let hidden = isHidden();
document.addEventListener("visibilitychange", () => (hidden ||= isHidden()));

/** Tells `compare` something in this block and returns its answer. */
async function tell(what, said = {}) {
  const answer = await fetch(`${what}${location.search}`, { method: "POST", body: JSON.stringify(said) });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

/** Time that the clock is watched for, in milliseconds. */
const CLOCK_WATCHED_MS = 20;

/** The step of the page's clock, in milliseconds: 5 µs where a page is isolated, up to 100 ms elsewhere. */
function clockStep() {
  let least = Infinity;
  const began = performance.now();
  for (let before = began, now = began; now - began < CLOCK_WATCHED_MS; before = now) {
    now = performance.now();
    if (now > before) least = Math.min(least, now - before);
  }
  return least;
}

/** Bytes of the heap after a collection, where the browser lets a page do that. */
function heap() {
  globalThis.gc?.();
  return globalThis.gc ? performance.memory.usedJSHeapSize : null;
}

/** Makes everything ready for a row and a set of events, and does nothing with them. */
async function prepare(name, set) {
  const row = named(name);
  const isTask = TASKS.includes(row);
  const made = await make(row);
  work = isTask ? made : made.event;
  const given = await frames(set, isTask ? "json" : formatOf(row));
  items = isTask || row.input === "text" ? asTexts(given) : given;
  if (isTask) items = items.map((text) => JSON.parse(text));
  for (const { length } of given) bytesBefore.push(bytesBefore.at(-1) + (isTask ? 0 : length));
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
  globalThis.gc?.();
  for (let mark = 0; mark < 3; mark++) await tell("mark");
  const began = performance.now();
  const found = await deed();
  const milliseconds = performance.now() - began;
  await tell("mark");
  return { ...found, milliseconds };
}

/** Connects to a relay; says what was agreed. */
async function connect({ row, url, token, request }) {
  subscription?.close();
  const { input } = named(row);
  const isZstd = token.endsWith("+zstd");
  const { message } = isZstd ? fzstd.overZstd(await make(named(row)), input) : await make(named(row));
  subscription = new Subscription(message, url, token, isZstd ? fzstd.plain(request) : request);
  return subscription.open();
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

const DEEDS = {
  /** Compares decoders with JSON.parse, event by event; says what the engine has, and the first that differs. */
  async check({ rows, set }) {
    const expected = asTexts(await frames(set, "json"));
    const about = {
      has_to_hex: HAS_TO_HEX,
      isolated: globalThis.crossOriginIsolated,
      user_agent: navigator.userAgent,
      clock_ms: clockStep(),
    };
    for (const row of rows.map(named)) {
      say(`${row.name}: comparing every event with JSON.parse`);
      const { event } = await make(row);
      const given = await inputs(row, set);
      if (given.length !== expected.length) throw new Error(`${given.length} frames for ${expected.length} events`);
      for (const [i, text] of expected.entries()) {
        const wanted = JSON.parse(text);
        let found;
        try {
          found = event(given[i]);
          const same = row.implementation === "head" ? found === wanted.id : JSON.stringify(found) === JSON.stringify(wanted);
          if (same) continue;
        } catch (error) {
          found = `${error}`;
        }
        return { about, differs: { row: row.name, id: wanted.id, found: JSON.stringify(found).slice(0, ERROR_CHARACTERS) } };
      }
    }
    return { about };
  },

  /** The terms of one connection, and the hash of what it receives. */
  async receive(task) {
    const agreed = await connect(task);
    const { events } = await subscription.request();
    // By script: a page from another machine without TLS has no crypto.subtle.
    const hash = sha256(utf8ToBytes(events.map((event) => JSON.stringify(event)).join("\n")));
    return { agreed, received: { events: events.length, sha256: bytesToHex(hash) } };
  },

  /** Decodes the first events of a page, then as many as a step has time for. */
  async decode({ row, set, first_events, warm_up_ms, step_ms }) {
    await prepare(row, set);
    globalThis.gc?.();
    const began = performance.now();
    const events = pass(0, first_events);
    const first = { events, milliseconds: performance.now() - began };
    warm(warm_up_ms);
    return { ...(await step(() => warm(step_ms))), first };
  },

  /** Asks for the stored events until EOSE, again and again; once where the page has a link. */
  async request({ connection, warm_up, step_ms }) {
    await connect(connection);
    if (warm_up === 0) return step(() => request(1));
    const began = performance.now();
    await request(warm_up);
    const each = (performance.now() - began) / warm_up;
    return step(() => request(Math.max(1, Math.min(MAX_REQUESTS, Math.floor(step_ms / each)))));
  },

  /** Waits for live events, which `compare` publishes when it is told to: first some, then those that count. */
  async live({ connection, counts }) {
    await connect(connection);
    await request(1);
    let found;
    for (const count of counts) {
      await tell("prepare", { count });
      found = await step(async () => {
        const live = subscription.live(count);
        await tell("publish");
        const { events, messages } = await live;
        return { events: events.length, messages };
      });
    }
    return found;
  },
};

globalThis.bench = {
  plant(name) {
    planted = named(name).name;
  },
};

(async () => {
  const task = await tell("task");
  say(task.says);
  // What a browser does when it starts is not the page's.
  await new Promise((resolve) => setTimeout(resolve, task.wait_ms));
  let found;
  try {
    found = await DEEDS[task.deed](task);
    found.heap_bytes = heap();
  } catch (error) {
    found = { error: `${error}`.slice(0, ERROR_CHARACTERS) };
  }
  await tell("done", { ...found, hidden });
  // Where `compare` has ended, the browser that it started ends, too.
})().catch(() => close());
