// Reads codecs/vectors/v1.json in every format with the libraries that JavaScript programs use, and without this
// project's code. Cap'n Proto and its packed form are read by hand: its libraries want generated code.
//
// npm install --prefix target/interop/node cbor-x protobufjs @msgpack/msgpack flatbuffers
// NODE_PATH=target/interop/node/node_modules node codecs/interop/read.mjs

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// `require` follows NODE_PATH; `import` would not.
const require = createRequire(import.meta.url);
const cbor = new (require("cbor-x").Decoder)({ mapsAsObjects: false, int64AsNumber: true });
const protobuf = require("protobufjs");
const msgpack = require("@msgpack/msgpack");
const { ByteBuffer } = require("flatbuffers");

const CODECS = new URL("..", import.meta.url);
const CLIENT = { 1: "EVENT", 2: "REQ", 3: "CLOSE", 4: "AUTH", 5: "COUNT", 6: "NEG-OPEN", 7: "NEG-MSG", 8: "NEG-CLOSE" };
const RELAY = { 1: "EVENT", 2: "OK", 3: "EOSE", 4: "CLOSED", 5: "NOTICE", 6: "AUTH", 7: "COUNT" };
Object.assign(RELAY, { 8: "NEG-MSG", 9: "NEG-ERR", 10: "EVENTS" });
const FILTER = { 1: "ids", 2: "authors", 3: "kinds", 4: "since", 5: "until", 6: "limit", 7: "search" };
const HINTS = ["finish", "more"];

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const hex = (bytes) => Buffer.from(bytes).toString("hex");
// Tag values travel as text or as the bytes of hex; ids always as bytes.
const text = (value) => (value instanceof Uint8Array ? hex(value) : value);
const number = (value) => Number(value);
const range = (count, make) => Array.from({ length: Number(count) }, make);

function event(id, pubkey, created_at, kind, tags, content, sig) {
  tags = tags.map((tag) => tag.map(text));
  return { id: text(id), pubkey: text(pubkey), created_at: number(created_at), kind, tags, content, sig: text(sig) };
}

/** neg_msg is NEG-MSG. */
const spelled = (name) => name.toUpperCase().replace("_", "-");
const eose = (sub, hints) => ["EOSE", sub, ...(hints.length ? [hints] : [])];

function count(sub, answer, approximate, hll) {
  answer = { count: number(answer) };
  if (approximate) answer.approximate = true;
  if (hll?.length) answer.hll = text(hll);
  return ["COUNT", sub, answer];
}

/** Also NSON, whose extra field a JSON reader passes over. */
function json() {
  const message = (data) => JSON.parse(utf8.decode(data), (key, value) => (key === "nson" ? undefined : value));
  return { event: message, client: message, relay: message };
}

function cborFormat(layout) {
  const spelled = layout === "schemaless";
  const item = (item) => {
    if (layout === "packed") return event(...item);
    const names = ["id", "pubkey", "created_at", "kind", "tags", "content", "sig"];
    return event(...names.map((name, index) => item.get(spelled ? name : index)));
  };
  const filter = (item) => {
    const found = {};
    for (const [key, value] of item) {
      if (!spelled && key === 8) for (const [letter, values] of value) found["#" + letter] = values.map(text);
      else found[spelled ? key : FILTER[key]] = Array.isArray(value) ? value.map(text) : plain(value);
    }
    return found;
  };
  const plain = (value) => (typeof value === "bigint" ? number(value) : value);
  const open = (data, verbs) => {
    const [verb, ...rest] = cbor.decode(data);
    return [spelled ? verb : verbs[verb], rest];
  };
  return {
    event: (data) => item(cbor.decode(data)),
    client(data) {
      const [verb, rest] = open(data, CLIENT);
      if (verb === "EVENT" || verb === "AUTH") return [verb, item(rest[0])];
      return [verb, rest[0], ...rest.slice(1).map((part) => (part instanceof Map ? filter(part) : text(part)))];
    },
    relay(data) {
      const [verb, rest] = open(data, RELAY);
      if (verb === "EVENT") return [verb, rest[0], item(rest[1])];
      if (verb === "EVENTS") return [verb, rest[0], rest[1].map(item)];
      return verb === "COUNT" ? count(...rest) : [verb, ...rest.map(text)];
    },
  };
}

function protobufFormat(schema) {
  const source = readFileSync(new URL(`schema/${schema}.proto`, CODECS), "utf8");
  const root = protobuf.parse(source, { keepCase: true }).root;
  const [Event, ClientMsg, RelayMsg] = ["Event", "ClientMsg", "RelayMsg"].map((name) => root.lookupType(`${schema}.${name}`));
  const value = (value) => (typeof value === "string" ? value : text(value[value.value]));
  const item = (e) => {
    const tags = e.tags.map((tag) => tag.values.map(value));
    return event(e.id, e.pubkey, e.created_at, e.kind, tags, e.content, e.sig);
  };
  const filter = (f) => {
    const found = {};
    for (const name of ["ids", "authors", "kinds"]) if (f[name].length) found[name] = f[name].map(text);
    for (const name of ["since", "until", "limit"]) if (Object.hasOwn(f, name)) found[name] = number(f[name]);
    if (Object.hasOwn(f, "search")) found.search = f.search;
    for (const tag of f.tags) found["#" + tag.name] = tag.values.map(value);
    return found;
  };
  return {
    event: (data) => item(Event.decode(data)),
    client(data) {
      const message = ClientMsg.decode(data);
      const [verb, body] = [spelled(message.message), message[message.message]];
      if (verb === "EVENT" || verb === "AUTH") return [verb, item(body)];
      if (verb === "CLOSE" || verb === "NEG-CLOSE") return [verb, body];
      if (verb === "NEG-OPEN") return [verb, body.sub, filter(body.filter), text(body.data)];
      if (verb === "NEG-MSG") return [verb, body.sub, text(body.data)];
      return [verb, body.sub, ...body.filters.map(filter)];
    },
    relay(data) {
      const message = RelayMsg.decode(data);
      const [verb, body] = [spelled(message.message), message[message.message]];
      if (verb === "EVENT") return [verb, body.sub, item(body.event)];
      if (verb === "EVENTS") return [verb, body.sub, body.events.map(item)];
      if (verb === "NEG-MSG") return [verb, body.sub, text(body.data)];
      if (verb === "OK") return [verb, text(body.id), body.accepted, body.text];
      if (verb === "EOSE") return eose(body.sub, body.hints);
      if (verb === "COUNT") return count(body.sub, body.count, body.approximate, body.hll);
      return verb === "CLOSED" || verb === "NEG-ERR" ? [verb, body.sub, body.text] : [verb, body];
    },
  };
}

class Reader {
  constructor(data) {
    this.data = Buffer.from(data);
    this.at = 0;
  }
  get left() {
    return this.data.length - this.at;
  }
  take(length) {
    assert(length <= this.left, "the input ended early");
    this.at += length;
    return this.data.subarray(this.at - length, this.at);
  }
  rest() {
    return this.take(this.left);
  }
  text(length) {
    return utf8.decode(this.take(length));
  }
  u8() {
    return this.take(1)[0];
  }
  /** A BigInt: created_at may need all of its 64 bits. */
  varint() {
    for (let value = 0n, shift = 0n; ; shift += 7n) {
      const byte = this.u8();
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }
  length() {
    return Number(this.varint());
  }
  signed() {
    return number(BigInt.asIntN(64, this.varint()));
  }
  until(make) {
    const found = [];
    while (this.left) found.push(make(this));
    return found;
  }
  end() {
    assert.equal(this.left, 0, "bytes are left over");
  }
}

const keys = (data) => new Reader(data).until((reader) => hex(reader.take(32)));

function element(reader) {
  const head = reader.length();
  return head & 1 ? hex(reader.take(head >> 1)) : reader.text(head >> 1);
}

// --- Cap'n Proto ---------------------------------------------------------------------------------------------

function unpack(data) {
  const reader = new Reader(data);
  const words = reader.until(() => {
    const tag = reader.u8();
    const word = range(8, (_, bit) => ((tag >> bit) & 1 ? reader.u8() : 0));
    if (tag === 0) return Buffer.alloc(8 * (1 + reader.u8()));
    return Buffer.concat([Buffer.from(word), tag === 0xff ? reader.take(8 * reader.u8()) : Buffer.alloc(0)]);
  });
  return Buffer.concat(words);
}

/** A struct of a message; slots are counted in bytes (data) and words (pointers), as the schema's compiler lays them out. */
class Struct {
  constructor(segments, segment, at, dataWords, pointers) {
    Object.assign(this, { segments, segment, at, dataWords, pointers });
  }
  static root(data) {
    const segmentCount = data.readUInt32LE(0) + 1;
    let at = 8 * Math.ceil((segmentCount + 1) / 2);
    const segments = range(segmentCount, (_, index) => {
      const length = 8 * data.readUInt32LE(4 + 4 * index);
      at += length;
      return data.subarray(at - length, at);
    });
    return new Struct(segments, 0, 0, 0, 1).struct(0);
  }
  /** Follows a pointer through far pointers; null where it is null. */
  pointer(slot) {
    let [segment, at] = [this.segment, this.at + 8 * (this.dataWords + slot)];
    if (slot >= this.pointers) return null;
    let [low, high] = [0, 4].map((part) => this.segments[segment].readUInt32LE(at + part));
    if ((low & 3) === 2) {
      assert.equal((low >> 2) & 1, 0, "one landing pad");
      [segment, at] = [high, 8 * (low >>> 3)];
      [low, high] = [0, 4].map((part) => this.segments[segment].readUInt32LE(at + part));
    }
    return low || high ? { segment, at: at + 8 + 8 * (low >> 2), kind: low & 3, high } : null;
  }
  struct(slot) {
    const { segment, at, high } = this.pointer(slot);
    return new Struct(this.segments, segment, at, high & 0xffff, high >>> 16);
  }
  list(slot) {
    const { segment, at, high } = this.pointer(slot);
    assert.equal(high & 7, 7, "a list of structs");
    const [elements, size] = [this.segments[segment].readUInt32LE(at) >>> 2, this.segments[segment].readUInt32LE(at + 4)];
    const [dataWords, pointers] = [size & 0xffff, size >>> 16];
    return range(elements, (_, i) => new Struct(this.segments, segment, at + 8 + 8 * i * (dataWords + pointers), dataWords, pointers));
  }
  data(slot, elementBytes = 1) {
    const found = this.pointer(slot);
    if (!found) return null;
    const length = (found.high >>> 3) * elementBytes;
    return this.segments[found.segment].subarray(found.at, found.at + length);
  }
  /** A list of data. */
  blobs(slot) {
    const { segment, at, high } = this.pointer(slot);
    assert.equal(high & 7, 6, "a list of pointers");
    const list = new Struct(this.segments, segment, at, 0, high >>> 3);
    return range(high >>> 3, (_, i) => list.data(i));
  }
  text(slot) {
    return utf8.decode(this.data(slot).subarray(0, -1)); // without its NUL
  }
  number(method, at) {
    return this.segments[this.segment][method](this.at + at);
  }
}

function capnpFormat(open) {
  const item = (data) => {
    const root = Struct.root(data);
    const [fixed, reader] = [root.data(0), new Reader(root.data(1))];
    const value = () => {
      const head = reader.take(2).readUInt16LE();
      return head & 0x8000 ? hex(reader.take(head & 0x7fff)) : reader.text(head);
    };
    const tags = range(reader.take(2).readUInt16LE(), () => range(reader.u8(), value));
    reader.end();
    const part = (from, to) => fixed.subarray(from, to);
    return event(part(0, 32), part(32, 64), fixed.readBigInt64LE(128), fixed.readUInt16LE(136), tags, root.text(2), part(64, 128));
  };
  // Data: the unions since 0, until 2, limit 4 (u16); their values 8, 16, 24. Pointers in the schema's order.
  const filter = (f) => {
    const found = {};
    if (f.data(0)) found.ids = keys(f.data(0));
    if (f.data(1)) found.authors = keys(f.data(1));
    const kinds = f.data(2, 2);
    if (kinds) found.kinds = range(kinds.length / 2, (_, i) => kinds.readUInt16LE(2 * i));
    for (const [name, which, at] of [["since", SINCE.which, SINCE.at], ["until", UNTIL.which, UNTIL.at], ["limit", LIMIT.which, LIMIT.at]])
      if (f.number("readUInt16LE", which)) found[name] = number(f.number("readBigInt64LE", at));
    if (f.data(3)) found.search = f.text(3);
    for (const tag of f.pointer(4) ? f.list(4) : [])
      found["#" + String.fromCharCode(tag.number("readUInt8", 0))] = new Reader(tag.data(0)).until(element);
    return found;
  };
  return {
    event: (data) => item(open(data)),
    client(data) {
      const root = Struct.root(open(data));
      const verb = CLIENT[root.number("readUInt16LE", 0) + 1];
      if (verb === "EVENT" || verb === "AUTH") return [verb, item(root.data(0))];
      if (verb === "CLOSE" || verb === "NEG-CLOSE") return [verb, root.text(0)];
      const body = root.struct(0);
      if (verb === "NEG-OPEN") return [verb, body.text(0), filter(body.struct(1)), hex(body.data(2))];
      if (verb === "NEG-MSG") return [verb, body.text(0), hex(body.data(1))];
      return [verb, body.text(0), ...body.list(1).map(filter)];
    },
    relay(data) {
      const root = Struct.root(open(data));
      const verb = RELAY[root.number("readUInt16LE", 0) + 1];
      if (verb === "NOTICE" || verb === "AUTH") return [verb, root.text(0)];
      const body = root.struct(0);
      if (verb === "EVENT") return [verb, body.text(0), item(body.data(1))];
      if (verb === "EVENTS") return [verb, body.text(0), body.blobs(1).map(item)];
      if (verb === "NEG-MSG") return [verb, body.text(0), hex(body.data(1))];
      if (verb === "OK") return [verb, hex(body.data(0)), body.number("readUInt8", 0) === 1, body.text(1)];
      if (verb === "EOSE") return eose(body.text(0), HINTS.filter((_, bit) => (body.number("readUInt8", 0) >> bit) & 1));
      if (verb === "CLOSED" || verb === "NEG-ERR") return [verb, body.text(0), body.text(1)];
      return count(body.text(0), body.number("readBigUInt64LE", 0), body.number("readUInt8", 8) & 1, body.data(1));
    },
  };
}
const [SINCE, UNTIL, LIMIT] = [{ which: 0, at: 8 }, { which: 2, at: 16 }, { which: 4, at: 24 }];

// --- event formats in the common envelope ---------------------------------------------------------------------

function dannypack(data) {
  const reader = new Reader(data);
  const string = (reader) => {
    const head = reader.u8();
    const length = (head & 0x7f) === 0x7f ? reader.length() : head & 0x7f;
    return head & 0x80 ? hex(reader.take(length)) : reader.text(length);
  };
  const [id, pubkey, sig] = [32, 32, 64].map((length) => reader.take(length));
  const [created_at, kind] = [reader.take(8).readBigInt64LE(), reader.take(2).readUInt16LE()];
  const block = new Reader(reader.take(reader.length()));
  const tags = range(block.varint(), () => range(block.u8(), () => string(block)));
  const content = string(reader);
  block.end(), reader.end();
  return event(id, pubkey, created_at, kind, tags, content, sig);
}

function notepack(data) {
  const reader = new Reader(data);
  assert.equal(reader.varint(), 1n, "version 1");
  const [id, pubkey, sig] = [32, 32, 64].map((length) => reader.take(length));
  const [created_at, kind] = [reader.signed(), reader.length()];
  const content = reader.text(reader.length());
  const tags = range(reader.varint(), () => range(reader.varint(), () => element(reader)));
  reader.end();
  return event(id, pubkey, created_at, kind, tags, content, sig);
}

function goNostr(tagCount) {
  return (data) => {
    const reader = new Reader(data);
    const string = () => reader.text(reader.take(2).readUInt16BE());
    const value = () => [string(), assert.equal(reader.u8(), 0)][0];
    const [id, pubkey, sig] = [32, 32, 64].map((length) => reader.take(length));
    const [created_at, kind] = [reader.take(4).readUInt32BE(), reader.take(2).readUInt16BE()];
    const content = string();
    const tags = range(tagCount(reader), () => range(reader.u8(), value));
    reader.end();
    return event(id, pubkey, created_at, kind, tags, content, sig);
  };
}

function tlv(data) {
  const fields = Object.fromEntries(
    new Reader(data).until((reader) => [reader.u8(), reader.take(reader.take(2).readUInt16BE())]),
  );
  const tags = new Reader(fields[5]).until((block) => range(block.u8(), () => block.text(block.u8())));
  const [kind, created_at] = [fields[1].readUInt32BE(), fields[4].readBigInt64BE()];
  return event(fields[0], fields[3], created_at, kind, tags, utf8.decode(fields[2]), fields[6]);
}

/** Through the library's buffer, with the calls that generated code makes. */
function flat(data) {
  const buffer = new ByteBuffer(new Uint8Array(data));
  const place = (table, slot) => {
    const offset = buffer.__offset(table, slot);
    return offset ? table + offset : 0;
  };
  const blob = (table, slot) => {
    const at = place(table, slot);
    if (!at) return undefined;
    const start = buffer.__vector(at);
    return buffer.bytes().subarray(start, start + buffer.__vector_len(at));
  };
  const tables = (table, slot) => {
    const at = place(table, slot);
    return range(buffer.__vector_len(at), (_, i) => buffer.__indirect(buffer.__vector(at) + 4 * i));
  };
  const value = (table) => (place(table, 4) ? utf8.decode(blob(table, 4)) : hex(blob(table, 6)));
  const root = buffer.readInt32(0);
  const tags = tables(root, 12).map((tag) => tables(tag, 4).map(value));
  const created_at = place(root, 8) ? buffer.readInt64(place(root, 8)) : 0n;
  const kind = place(root, 10) ? buffer.readUint16(place(root, 10)) : 0;
  return event(blob(root, 4), blob(root, 6), created_at, kind, tags, utf8.decode(blob(root, 14)), blob(root, 16));
}

/** The common envelope of codecs/src/envelope/mod.rs around an event format. */
function envelope(readEvent) {
  const sub = (reader) => reader.text(reader.u8());
  const filter = (reader) => {
    const found = {};
    while (reader.left) {
      const [tag, field] = [reader.u8(), new Reader(reader.take(reader.length()))];
      if (tag <= 2) found[FILTER[tag]] = keys(field.rest());
      else if (tag === 3) found.kinds = field.until((field) => field.length());
      else if (tag <= 6) found[FILTER[tag]] = field.signed();
      else if (tag === 7) found.search = utf8.decode(field.rest());
      else {
        const letter = field.text(1);
        found["#" + letter] = field.until(element);
      }
      field.end();
    }
    return found;
  };
  return {
    event: readEvent,
    client(data) {
      const reader = new Reader(data);
      const verb = CLIENT[reader.u8()];
      if (verb === "EVENT" || verb === "AUTH") return [verb, readEvent(reader.rest())];
      const message = [verb, sub(reader)];
      if (verb === "NEG-OPEN") message.push(filter(new Reader(reader.take(reader.length()))));
      if (verb === "NEG-OPEN" || verb === "NEG-MSG") message.push(hex(reader.rest()));
      if (verb === "REQ" || verb === "COUNT") message.push(...range(reader.varint(), () => filter(new Reader(reader.take(reader.length())))));
      reader.end();
      return message;
    },
    relay(data) {
      const reader = new Reader(data);
      const verb = RELAY[reader.u8() - 0x80];
      if (verb === "NOTICE" || verb === "AUTH") return [verb, utf8.decode(reader.rest())];
      if (verb === "OK") return [verb, hex(reader.take(32)), reader.u8() === 1, utf8.decode(reader.rest())];
      const name = sub(reader);
      if (verb === "EVENT") return [verb, name, readEvent(reader.rest())];
      if (verb === "EVENTS") return [verb, name, reader.until(() => readEvent(reader.take(reader.length())))];
      if (verb === "NEG-MSG") return [verb, name, hex(reader.rest())];
      if (verb === "CLOSED" || verb === "NEG-ERR") return [verb, name, utf8.decode(reader.rest())];
      if (verb === "EOSE") {
        const bits = reader.u8();
        return eose(name, HINTS.filter((_, bit) => (bits >> bit) & 1));
      }
      const [answer, flags] = [reader.varint(), reader.u8()];
      return count(name, answer, flags & 1, flags & 2 ? reader.rest() : null);
    },
  };
}

const FORMATS = {
  json: json(),
  "cbor-schemaless": cborFormat("schemaless"),
  "cbor-packed": cborFormat("packed"),
  "cbor-intkey": cborFormat("intkey"),
  "proto-string": protobufFormat("nostr"),
  "proto-binary": protobufFormat("nostr_binary"),
  capnp: capnpFormat((data) => data),
  dannypack: envelope(dannypack),
  notepack: envelope(notepack),
  "capnp-packed": capnpFormat(unpack),
  "proto-compact": protobufFormat("nostr_compact"),
  msgpack: envelope((data) => event(...msgpack.decode(data))),
  flatbuffers: envelope(flat),
  nson: json(),
  "go-nostr-binary": envelope(goNostr((reader) => reader.take(2).readUInt16BE())),
  leaner: envelope(goNostr((reader) => reader.u8())),
  tlv: envelope(tlv),
};

const sha256 = (data) => createHash("sha256").update(data).digest("hex");

/** NIP-01; control characters are written as JSON writes them. */
const idOf = (e) => sha256(JSON.stringify([0, e.pubkey, e.created_at, e.kind, e.tags, e.content]));

const vectors = JSON.parse(readFileSync(new URL("vectors/v1.json", CODECS)));
assert.equal(vectors.version, 1);
let [read, ids] = [0, 0];
for (const [kind, cases] of [["event", vectors.events], ["client", vectors.client], ["relay", vectors.relay]]) {
  for (const { name, json: line, bytes } of cases) {
    const expected = JSON.parse(line);
    for (const [format, entry] of Object.entries(bytes)) {
      const label = `${kind} ${name} in ${format}`;
      const data = Buffer.from(entry.hex, "hex");
      assert.equal(sha256(data), entry.sha256, `${label}: SHA-256`);
      const found = FORMATS[format][kind](data);
      assert.deepEqual(found, expected, label);
      for (const part of kind === "event" ? [found] : found.flat()) {
        if (part?.pubkey) {
          assert.equal(idOf(part), part.id, `${label}: the id is not the hash of the content`);
          ids += 1;
        }
      }
      read += 1;
    }
  }
}
console.log(`JavaScript: ${read} events and messages in ${Object.keys(FORMATS).length} formats read as expected, ${ids} ids recomputed`);
