// Every decoder against the repository's vectors: events and messages that they must read, and bytes that
// the decoders of this repository must refuse.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ROWS } from "../src/rows.js";

const vectors = (name) => JSON.parse(readFileSync(new URL(`../../../codecs/vectors/${name}`, import.meta.url)));
const bytesOf = (hex) => Uint8Array.from(Buffer.from(hex, "hex"));

/** Text in parts: as it is, or a unit repeated. */
const expand = (parts) => [parts].flat().map((part) => typeof part === "string" ? part : part.repeat.repeat(part.times)).join("");

async function make({ source: { file, make, args } }) {
  return (await import(`../src/${file}`))[make](...args);
}

/** What a row takes for these bytes. */
function input(row, bytes) {
  if (row.compression === "zstd") return Uint8Array.of(0, ...bytes);
  return row.input === "text" ? Buffer.from(bytes).toString() : bytes;
}

for (const row of ROWS) {
  test(`${row.name} reads every event and message as JSON.parse does`, async () => {
    const decoder = await make(row);
    const { events, relay } = vectors("v1.json");
    let read = 0;
    for (const { name, json, bytes } of events) {
      if (!bytes[row.format]) continue;
      const found = decoder.event(input(row, bytesOf(bytes[row.format].hex)));
      assert.deepEqual(found, JSON.parse(json), name);
      read += 1;
    }
    assert(read >= 10, `${read} events`);
    const first = ROWS.find(({ format }) => format === row.format);
    assert(decoder.message || row !== first, "the first row of a format reads messages");
    let messages = 0;
    for (const { name, json, bytes } of decoder.message ? relay : []) {
      const expected = JSON.parse(json);
      if (!["EVENT", "EVENTS", "EOSE"].includes(expected[0]) || !bytes[row.format]) continue;
      const found = decoder.message(input(row, bytesOf(bytes[row.format].hex)));
      // Hints of EOSE are left to an app that wants them.
      const parts = expected[0] === "EOSE" ? 2 : 3;
      assert.deepEqual(found.slice(0, parts), expected.slice(0, parts), name);
      messages += 1;
    }
    assert(messages > 0 || !decoder.message, "no message");
  });
}

/** A found event as the vectors describe what a lenient reader took: 20 characters of each tag's value. */
function described({ kind, created_at, tags, content }) {
  const short = JSON.stringify(tags.map((tag) => tag.map((value) => value.slice(0, 20))));
  return `accept kind=${kind} created_at=${created_at} ntags=${tags.length} tags=${short} content=${JSON.stringify(content)}`;
}

/** Cases without a form that a number of JavaScript holds, or that this project decides otherwise than the file. */
const DECIDED = {
  "notepack created_at_2^63_wraps_negative": "reject",
};

// Code of this repository, which takes what it is known to take and nothing else.
for (const row of ROWS.filter((row) => row.implementation === "tuned")) {
  test(`${row.name} refuses hostile bytes and never shows another event`, async () => {
    const decoder = await make(row);
    for (const { case: name, recommended, reference, hex } of vectors("malformed.json")[row.format] ?? []) {
      const asked = DECIDED[`${row.format} ${name}`] ?? recommended;
      let found = null;
      try {
        found = decoder.event(bytesOf(expand(hex)));
      } catch (error) {
        assert.equal(error.constructor.name, "DecodeError", `${name}: ${error.stack}`);
      }
      if (/^(newer: )?reject/.test(asked)) assert.equal(found, null, name);
      else if (/^accept/.test(asked)) assert.notEqual(found, null, name);
      if (found) assert.equal(described(found), reference.replaceAll("\\0", "\\u0000"), name);
    }
  });

  test(`${row.name} refuses every event that is cut short or has more behind it`, async () => {
    const decoder = await make(row);
    for (const { name, bytes } of vectors("v1.json").events.filter(({ bytes }) => bytes[row.format])) {
      const whole = bytesOf(bytes[row.format].hex);
      for (let length = 0; length < whole.length; length++) {
        assert.throws(() => decoder.event(whole.slice(0, length)), { name: "Error" }, `${name}: ${length} of ${whole.length} bytes`);
      }
      const more = new Uint8Array(whole.length + 1);
      more.set(whole);
      assert.throws(() => decoder.event(more), { name: "Error" }, `${name}: one byte more`);
    }
  });

  test(`${row.name} gives an Error or an event for any flipped bit, nothing else`, async () => {
    const decoder = await make(row);
    const { bytes } = vectors("v1.json").events.find(({ name }) => name === "kind4_dm");
    const whole = bytesOf(bytes[row.format].hex);
    for (let bit = 0; bit < 8 * whole.length; bit++) {
      const flipped = whole.slice();
      flipped[bit >> 3] ^= 1 << (bit & 7);
      let found;
      try {
        found = decoder.event(flipped);
      } catch (error) {
        assert.equal(error.constructor.name, "DecodeError", `bit ${bit}: ${error.stack}`);
        continue;
      }
      assert.match(found.id + found.pubkey + found.sig, /^[0-9a-f]{256}$/);
      assert(Number.isSafeInteger(found.created_at) && found.kind >= 0 && found.kind <= 0xffff, `bit ${bit}`);
      assert(found.tags.every((tag) => tag.every((value) => typeof value === "string")), `bit ${bit}`);
      assert.equal(typeof found.content, "string");
    }
  });
}

test("a message of the zstd layer is a payload, a zstd frame or refused", async () => {
  const { event } = await make(ROWS.find(({ name }) => name === "json:fzstd"));
  const text = Buffer.from('{"id":"é"}');
  // RFC 8878 §3.1.1: the magic number, one segment with its size in a byte, and one raw block, the last.
  const header = (text.length << 3) | 1;
  const frame = [0x28, 0xb5, 0x2f, 0xfd, 0x20, text.length, header & 0xff, header >> 8, 0, ...text];
  assert.deepEqual(event(Uint8Array.of(0, ...text)), { id: "é" });
  assert.deepEqual(event(Uint8Array.of(1, ...frame)), { id: "é" });
  for (const other of [[], [2, ...frame], [1, ...text], [1, ...frame.slice(0, -3)]]) {
    assert.throws(() => event(Uint8Array.from(other)), Error, `${other}`);
  }
});
