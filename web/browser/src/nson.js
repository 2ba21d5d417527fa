// NSON by hand: codecs/src/formats/nson.rs. Its descriptor counts bytes and a WebSocket hands out UTF-16,
// so that texts with other characters than ASCII's miss their places and are read as the JSON they are;
// so is everything whose parts do not end where the descriptor says.

import { kindOf } from "./bytes.js";

/** What stands between the parts of fixed length, and where. */
const MARKS = [
  [0, '{"id":"'],
  [71, '","pubkey":"'],
  [147, '","sig":"'],
  [284, '","created_at":'],
  [309, ',"nson":"'],
];
const TIME = 299;
const DESCRIPTOR = 318;
const LOWERCASE_HEX = /^[0-9a-f]+$/;
const NEEDS_PARSING = /["\\\u0000-\u001f]/;

class Misplaced extends Error {}
const MISPLACED = new Misplaced();

function hexByte(text, at) {
  const value = Number.parseInt(text.slice(at, at + 2), 16);
  if (!(value >= 0)) throw MISPLACED;
  return value;
}

class Parts {
  constructor(text, at) {
    this.text = text;
    this.at = at;
  }
  mark(text) {
    if (!this.text.startsWith(text, this.at)) throw MISPLACED;
    this.at += text.length;
  }
  take(length) {
    this.at += length;
    return this.text.slice(this.at - length, this.at);
  }
  string(length) {
    const found = this.take(length);
    return NEEDS_PARSING.test(found) ? JSON.parse(`"${found}"`) : found;
  }
  digits(length) {
    const found = this.take(length);
    const value = Number(found);
    if (String(value) !== found) throw MISPLACED;
    return value;
  }
  hex(from, to) {
    const found = this.text.slice(from, to);
    if (!LOWERCASE_HEX.test(found)) throw MISPLACED;
    return found;
  }
}

function byDescriptor(text) {
  for (const [at, mark] of MARKS) if (!text.startsWith(mark, at)) throw MISPLACED;
  const end = DESCRIPTOR + 2 + 2 * hexByte(text, DESCRIPTOR);
  if (!LOWERCASE_HEX.test(text.slice(DESCRIPTOR, end))) throw MISPLACED;
  let at = DESCRIPTOR + 2;
  const u8 = () => hexByte(text, (at += 2) - 2);
  const u16 = () => (u8() << 8) | u8();
  const parts = new Parts(text, end);
  const [id, pubkey, sig] = [parts.hex(7, 71), parts.hex(83, 147), parts.hex(156, 284)];
  const created_at = new Parts(text, TIME).digits(10);
  parts.mark('","kind":');
  const kind = kindOf(parts.digits(u8()));
  parts.mark(',"content":"');
  const content = parts.string(u16());
  parts.mark('","tags":[');
  const tags = [];
  for (let left = u8(); left > 0; left--) {
    const tag = [];
    parts.mark(tags.length ? ",[" : "[");
    for (let values = u8(); values > 0; values--) {
      parts.mark(tag.length ? ',"' : '"');
      tag.push(parts.string(u16()));
      parts.mark('"');
    }
    parts.mark("]");
    tags.push(tag);
  }
  parts.mark("]}");
  if (at !== end || parts.at !== text.length) throw MISPLACED;
  return { id, pubkey, created_at, kind, tags, content, sig };
}

/** The event without its descriptor. */
const plain = ({ id, pubkey, created_at, kind, tags, content, sig }) => ({
  id,
  pubkey,
  created_at,
  kind,
  tags,
  content,
  sig,
});

export function nson(text) {
  try {
    return byDescriptor(text);
  } catch {
    return plain(JSON.parse(text));
  }
}

const EVENT = '["EVENT",';

export function nsonMessage(text) {
  const quote = text.indexOf('"', EVENT.length + 1);
  const usual = text.startsWith(`${EVENT}"`) && text[quote + 1] === "," && text.endsWith("]");
  if (!usual || text.slice(EVENT.length, quote).includes("\\")) {
    const message = JSON.parse(text);
    if (message[0] === "EVENT") message[2] = plain(message[2]);
    if (message[0] === "EVENTS") message[2] = message[2].map(plain);
    return message;
  }
  return ["EVENT", text.slice(EVENT.length + 1, quote), nson(text.slice(quote + 2, -1))];
}
