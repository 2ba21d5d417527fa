// Cap'n Proto by hand: codecs/schema/nostr.capnp, without its libraries, which want generated code.

import { DecodeError, Reader, kindOf } from "./bytes.js";
import { unread } from "./readers.js";

const FIXED_BYTES = 138;
const MAX_SEGMENTS = 512;

function u32(bytes, at) {
  return (bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24)) >>> 0;
}

/** A message: its segments as pairs of byte offsets, and the pointer that was followed last. */
class Message {
  constructor(bytes) {
    const { length } = bytes;
    if (length < 8) throw new DecodeError("the input ended early");
    const count = u32(bytes, 0) + 1;
    if (count > MAX_SEGMENTS) throw new DecodeError("too many segments");
    let at = 8 * Math.ceil((count + 1) / 2);
    this.bytes = bytes;
    this.starts = [];
    this.ends = [];
    if (at > length) throw new DecodeError("the input ended early");
    for (let i = 0; i < count; i++) {
      this.starts.push(at);
      at += 8 * u32(bytes, 4 + 4 * i);
      this.ends.push(at);
    }
    if (at !== length) throw new DecodeError("segments that do not fill the message");
    this.segment = 0;
    this.target = 0;
    this.low = 0;
    this.high = 0;
  }

  /** Follows the pointer at an offset of a segment, through one far pointer; false where it is null. */
  follow(segment, at) {
    this.word(segment, at);
    if ((this.low & 3) === 2) {
      if (this.low & 4) throw new DecodeError("a landing pad of two words");
      segment = this.high;
      if (segment >= this.starts.length) throw new DecodeError("a pointer to no segment");
      at = this.starts[segment] + 8 * (this.low >>> 3);
      this.word(segment, at);
      if ((this.low & 3) > 1) throw new DecodeError("a far pointer to a far pointer");
    }
    this.segment = segment;
    this.target = at + 8 + 8 * (this.low >> 2);
    return this.low !== 0 || this.high !== 0;
  }

  word(segment, at) {
    if (at < this.starts[segment] || at + 8 > this.ends[segment]) throw new DecodeError("a pointer out of bounds");
    this.low = u32(this.bytes, at);
    this.high = u32(this.bytes, at + 4);
  }

  bounds(length) {
    if (this.target < this.starts[this.segment] || this.target + length > this.ends[this.segment]) {
      throw new DecodeError("a pointer out of bounds");
    }
  }

  /** The struct behind a pointer. */
  struct(segment, at) {
    if (!this.follow(segment, at) || (this.low & 3) !== 0) throw new DecodeError("expected a struct");
    const data = 8 * (this.high & 0xffff);
    const pointers = this.high >>> 16;
    this.bounds(data + 8 * pointers);
    return { segment: this.segment, data: this.target, pointers: this.target + data, count: pointers };
  }

  /** The offsets of a list of bytes, as this.target and what is returned. */
  blob(segment, at) {
    if (!this.follow(segment, at) || (this.low & 3) !== 1 || (this.high & 7) !== 2) {
      throw new DecodeError("expected bytes");
    }
    const length = this.high >>> 3;
    this.bounds(length);
    return this.target + length;
  }

  data(struct, slot) {
    if (slot >= struct.count) throw new DecodeError("a field is missing");
    const end = this.blob(struct.segment, struct.pointers + 8 * slot);
    return this.bytes.subarray(this.target, end);
  }

  text(struct, slot) {
    const bytes = this.data(struct, slot);
    if (bytes.length === 0 || bytes[bytes.length - 1] !== 0) throw new DecodeError("text without its NUL");
    return new Reader(bytes).text(bytes.length - 1);
  }
}

function tagValue(reader) {
  const head = reader.u16();
  const length = head & 0x7fff;
  if (head < 0x8000) return reader.text(length);
  if (length < 4) throw new DecodeError("short hex is stored as text");
  return reader.hex(length);
}

/** The tags in tagData, which is the same for every library. */
export function tagsOf(bytes) {
  const reader = new Reader(bytes);
  const tags = [];
  for (let left = reader.u16(); left > 0; left--) {
    const tag = [];
    for (let values = reader.u8(); values > 0; values--) tag.push(tagValue(reader));
    tags.push(tag);
  }
  reader.finish();
  return tags;
}

export function capnp(bytes) {
  const message = new Message(bytes);
  const root = message.struct(0, message.starts[0]);
  const fixed = new Reader(message.data(root, 0));
  if (fixed.end !== FIXED_BYTES) throw new DecodeError(`expected ${FIXED_BYTES} bytes`);
  const id = fixed.hex(32);
  const pubkey = fixed.hex(32);
  const sig = fixed.hex(64);
  const created_at = fixed.i64();
  const kind = kindOf(fixed.u16());
  const tags = tagsOf(message.data(root, 1));
  const content = message.text(root, 2);
  return { id, pubkey, created_at, kind, tags, content, sig };
}

export function capnpMessage(bytes) {
  const message = new Message(bytes);
  const root = message.struct(0, message.starts[0]);
  if (root.pointers === root.data) throw new DecodeError("a message without its verb");
  const verb = bytes[root.data] | (bytes[root.data + 1] << 8);
  if (verb !== 0 && verb !== 2 && verb !== 9) throw unread(verb + 1);
  const body = message.struct(root.segment, root.pointers);
  const sub = message.text(body, 0);
  if (verb === 2) return ["EOSE", sub];
  if (verb === 0) return ["EVENT", sub, capnp(message.data(body, 1))];
  if (body.count < 2 || !message.follow(body.segment, body.pointers + 8)) throw new DecodeError("expected a list");
  if ((message.low & 3) !== 1 || (message.high & 7) !== 6) throw new DecodeError("expected a list");
  const count = message.high >>> 3;
  message.bounds(8 * count);
  const [segment, first] = [message.segment, message.target];
  const events = [];
  for (let i = 0; i < count; i++) {
    const end = message.blob(segment, first + 8 * i);
    events.push(capnp(bytes.subarray(message.target, end)));
  }
  return ["EVENTS", sub, events];
}
