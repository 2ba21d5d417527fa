// Readers by hand, the rows called `tuned`: bytes to the object that JSON.parse would give. They take
// what the format's encoder writes and some other encodings of the same event; other bytes are an Error.

import { DecodeError, Reader, kindOf } from "./bytes.js";

// --- DannyPack: codecs/src/formats/dannypack.rs ---------------------------------------------------

function dannyString(reader) {
  const head = reader.u8();
  let length = head & 0x7f;
  if (length === 0x7f) {
    length = reader.varint();
    if (length < 0x7f) throw new DecodeError("a length that is longer than need be");
  }
  if (head < 0x80) return reader.text(length);
  if (length < 4) throw new DecodeError("short hex is stored as text");
  return reader.hex(length);
}

export function dannypack(bytes) {
  const reader = new Reader(bytes);
  const id = reader.hex(32);
  const pubkey = reader.hex(32);
  const sig = reader.hex(64);
  const created_at = reader.i64();
  const kind = reader.u16();
  const blockBytes = reader.varint();
  const blockEnd = reader.at + blockBytes;
  const tags = [];
  for (let left = reader.varint(); left > 0; left--) {
    const tag = [];
    for (let values = reader.u8(); values > 0; values--) tag.push(dannyString(reader));
    tags.push(tag);
  }
  if (reader.at !== blockEnd) throw new DecodeError("tags that end elsewhere than they say");
  const content = dannyString(reader);
  reader.finish();
  return { id, pubkey, created_at, kind, tags, content, sig };
}

// --- Notepack: codecs/src/formats/notepack/mod.rs -------------------------------------------------

function notepackValue(reader) {
  const head = reader.varint();
  const length = Math.floor(head / 2);
  if (head % 2 === 0) return reader.text(length);
  if (length === 0) throw new DecodeError("an empty value is stored as text");
  return reader.hex(length);
}

export function notepack(bytes) {
  const reader = new Reader(bytes);
  if (reader.varint() !== 1) throw new DecodeError("a version other than 1");
  const id = reader.hex(32);
  const pubkey = reader.hex(32);
  const sig = reader.hex(64);
  const created_at = reader.signedVarint();
  const kind = kindOf(reader.varint());
  const content = reader.text(reader.varint());
  const tags = [];
  for (let left = reader.varint(); left > 0; left--) {
    const tag = [];
    for (let values = reader.varint(); values > 0; values--) tag.push(notepackValue(reader));
    tags.push(tag);
  }
  reader.finish();
  return { id, pubkey, created_at, kind, tags, content, sig };
}

// --- leaner: codecs/src/formats/go_nostr.rs -------------------------------------------------------

export function leaner(bytes) {
  const reader = new Reader(bytes);
  const id = reader.hex(32);
  const pubkey = reader.hex(32);
  const sig = reader.hex(64);
  const created_at = reader.u32BE();
  const kind = reader.u16BE();
  const content = reader.text(reader.u16BE());
  const tags = [];
  for (let left = reader.u8(); left > 0; left--) {
    const tag = [];
    for (let values = reader.u8(); values > 0; values--) {
      tag.push(reader.text(reader.u16BE()));
      if (reader.u8() !== 0) throw new DecodeError("a value without its 00");
    }
    tags.push(tag);
  }
  reader.finish();
  return { id, pubkey, created_at, kind, tags, content, sig };
}

// --- the common envelope: codecs/src/envelope/mod.rs ----------------------------------------------

/** The page asks for stored events only. */
export function unread(verb) {
  return new DecodeError(`expected EVENT, EVENTS or EOSE, not message ${verb}`);
}

/** Messages of a format that defines only an event. */
export function enveloped(readEvent) {
  return (bytes) => {
    const reader = new Reader(bytes);
    const verb = reader.u8();
    if (verb !== 0x81 && verb !== 0x83 && verb !== 0x8a) throw unread(verb - 0x80);
    const sub = reader.text(reader.u8());
    if (verb === 0x81) return ["EVENT", sub, readEvent(reader.rest())];
    if (verb === 0x83) {
      if (reader.u8() > 3) throw new DecodeError("hints that NIP-67 does not have");
      reader.finish();
      return ["EOSE", sub];
    }
    const events = [];
    do {
      const length = reader.varint();
      const from = reader.skip(length);
      events.push(readEvent(bytes.subarray(from, from + length)));
    } while (reader.at < reader.end);
    return ["EVENTS", sub, events];
  };
}
