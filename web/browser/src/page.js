// The page that `compare browser` opens afresh for each block, in Chromium or in a frame on a device
// (device.js). It does one thing at a time when it is told to (globalThis.bench), and says in its
// document what that is.

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

async function texts(set, format) {
  const utf8 = new TextDecoder();
  return (await frames(set, format)).map((bytes) => utf8.decode(bytes));
}

/** What the row takes, as the frames of a WebSocket are: text or bytes. */
function inputs({ input, format, compression }, set) {
  const name = compression === "none" ? format : `${format}+${compression}`;
  return input === "text" ? texts(set, name) : frames(set, name);
}

/** What decoders were compared with last: over a network it is fetched once, not for each. */
let reference = { set: null, texts: [] };

let items = [];
let kept = [];
let work;
let subscription;
let live;

function say(text) {
  document.title = text;
  document.querySelector("#now").textContent = text;
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

/** Works through the next `count` items; returns how many. */
function pass(from, count) {
  const to = Math.min(from + count, items.length);
  // As an app does, what was decoded is kept for a while.
  for (let i = from; i < to; i++) kept[i] = work(items[i]);
  return to - from;
}

globalThis.bench = {
  /** What the engine is and has. */
  about: () => ({
    has_to_hex: HAS_TO_HEX,
    isolated: globalThis.crossOriginIsolated,
    user_agent: navigator.userAgent,
    clock_ms: clockStep(),
  }),

  /** Keeps the main thread busy, so that its process is known. */
  burn(milliseconds) {
    const until = performance.now() + milliseconds;
    while (performance.now() < until);
  },

  /** Compares a decoder with JSON.parse, event by event; the id of the first that differs, or null. */
  async check(name, set) {
    const row = named(name);
    say(`${name}: comparing every event with JSON.parse`);
    const { event } = await make(row);
    if (reference.set !== set) reference = { set, texts: await texts(set, "json") };
    const [given, expected] = [await inputs(row, set), reference.texts];
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
      return { id: wanted.id, found: JSON.stringify(found).slice(0, 300) };
    }
    return null;
  },

  plant(name) {
    planted = named(name).name;
  },

  /** Makes everything ready for a row and a set of events, and does nothing with them. */
  async prepare(name, set, says) {
    const row = named(name);
    const isTask = TASKS.includes(row);
    const made = await make(row);
    work = isTask ? made : made.event;
    items = isTask ? (await texts(set, "json")).map((text) => JSON.parse(text)) : await inputs(row, set);
    kept = new Array(items.length).fill(null);
    say(says);
    return items.length;
  },

  /** The first items of a page that has decoded none. */
  cold(count) {
    const began = performance.now();
    const events = pass(0, count);
    return { events, milliseconds: performance.now() - began };
  },

  /** Works for so long; `items` and the time that the page's clock saw. */
  warm(milliseconds) {
    const began = performance.now();
    let [done, at, now] = [0, 0, began];
    while (now - began < milliseconds) {
      done += pass(at, CLOCK_EVERY);
      at += CLOCK_EVERY;
      if (at >= items.length) at = 0;
      now = performance.now();
    }
    return { events: done, milliseconds: now - began };
  },

  /** Connects to a relay with this token; says what was agreed. */
  async connect(name, url, token, request, says) {
    subscription?.close();
    const row = named(name);
    const isZstd = token.endsWith("+zstd");
    const { message } = isZstd ? fzstd.overZstd(await make(row), row.input) : await make(row);
    subscription = new Subscription(message, url, token, isZstd ? fzstd.plain(request) : request);
    say(says);
    return subscription.open();
  },

  /** Asks for the stored events so many times, each time until EOSE. */
  async request(times) {
    const began = performance.now();
    const found = { events: 0, messages: 0 };
    for (let i = 0; i < times; i++) {
      const { events, messages } = await subscription.request();
      found.events += events.length;
      found.messages += messages;
    }
    return { ...found, milliseconds: performance.now() - began };
  },

  /** The ids of the events of one request, and the hash of what they hold. */
  async received() {
    const { events } = await subscription.request();
    // By script: a page from another machine without TLS has no crypto.subtle.
    const hash = sha256(utf8ToBytes(events.map((event) => JSON.stringify(event)).join("\n")));
    return { events: events.length, sha256: bytesToHex(hash), first: events[0]?.id ?? null };
  },

  /** Counts live events of the subscription from now on. */
  expect(count) {
    live = { began: performance.now(), found: count ? subscription.live(count) : null };
    // Whoever asks for the outcome hears of a failure.
    live.found?.catch(() => {});
    return count;
  },

  /** Waits for the live events that were expected. */
  async expected() {
    const { events, messages } = (await live.found) ?? { events: [], messages: 0 };
    return { events: events.length, messages, milliseconds: performance.now() - live.began };
  },
};
