// Writes codecs/vectors/foreign-cbor.json: an event of v1.json as cbor-x writes it when nobody tells it how.
//
// npm install --prefix target/interop/node cbor-x@1
// NODE_PATH=target/interop/node/node_modules node codecs/interop/foreign-cbor.cjs

const { readFileSync, writeFileSync } = require("node:fs");
const { join } = require("node:path");
const cbor = require("cbor-x");

const vectors = join(__dirname, "..", "vectors");
const { events } = JSON.parse(readFileSync(join(vectors, "v1.json")));
const json = events.map(({ json }) => json).find((json) => json.length < 900 && JSON.parse(json).tags.flat().some((v) => /^[0-9a-f]{64}$/.test(v)));
const event = JSON.parse(json);
const array = (hex) => new Uint8Array(Buffer.from(hex, "hex"));
const object = { ...event, id: array(event.id), pubkey: array(event.pubkey), sig: array(event.sig) };
const values = [object.id, object.pubkey, event.created_at, event.kind, event.tags, event.content, object.sig];
const numbered = new Map(values.map((value, key) => [key, value]));
const backwards = Object.fromEntries(Object.entries(object).reverse());
const filter = { "#p": [event.pubkey], limit: 5, kinds: [1], ids: [object.id] };

const cases = [
  ["cbor-schemaless", "event", "an object", object],
  ["cbor-schemaless", "event", "an object whose fields were set in another order", backwards],
  ["cbor-schemaless", "client", "an object in a message", ["EVENT", object]],
  ["cbor-schemaless", "relay", "an object in a relay's message", ["EVENT", "sub", object]],
  ["cbor-packed", "event", "a list", values],
  ["cbor-packed", "client", "a list in a message", [1, values]],
  ["cbor-packed", "relay", "a list in a relay's message, subscription of hex digits", [1, "deadbeef", values]],
  ["cbor-intkey", "event", "a Map", numbered],
  ["cbor-intkey", "client", "a Map in a message", [1, numbered]],
  ["cbor-schemaless", "request", "a filter", ["REQ", "sub", filter]],
  ["cbor-packed", "request", "a filter as a Map", [2, "sub", new Map([[8, { p: [event.pubkey] }], [6, 5], [3, [1]], [1, [object.id]]])]],
];
const made = cases.map(([format, side, what, value]) => ({ format, side, what, hex: cbor.encode(value).toString("hex") }));
const file = { encoder: `cbor-x ${require("cbor-x/package.json").version}`, event_json: json, cases: made };
writeFileSync(join(vectors, "foreign-cbor.json"), JSON.stringify(file, null, 1) + "\n");
