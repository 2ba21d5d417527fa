// A cursor over untrusted bytes, and hex and text as an app wants them: strings.

export class DecodeError extends Error {}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The longest text that is read byte by byte: a call of TextDecoder costs more than that. */
const SHORT_TEXT_BYTES = 24;

const DIGITS = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));
const HIGH = DIGITS.map((digits) => digits.charCodeAt(0));
const LOW = DIGITS.map((digits) => digits.charCodeAt(1));
const LETTERS = Array.from({ length: 128 }, (_, code) => String.fromCharCode(code));
const KEY_CODES = new Array(64).fill(0);

/** Makes 32 bytes at a time one flat string, where adding digits would leave a rope to its reader. */
function hexByTable(bytes, from, to) {
  let text = "";
  for (; to - from >= 32; from += 32) {
    for (let i = 0; i < 32; i++) {
      const byte = bytes[from + i];
      KEY_CODES[2 * i] = HIGH[byte];
      KEY_CODES[2 * i + 1] = LOW[byte];
    }
    text += String.fromCharCode.apply(null, KEY_CODES);
  }
  for (; from < to; from++) text += DIGITS[bytes[from]];
  return text;
}

function hexByEngine(bytes, from, to) {
  return bytes.subarray(from, to).toHex();
}

/** Whether the engine has Uint8Array.prototype.toHex. */
export const HAS_TO_HEX = typeof Uint8Array.prototype.toHex === "function";

/** Lowercase hex of bytes[from..to]: by the engine, or by script where it cannot. */
const hex = HAS_TO_HEX ? hexByEngine : hexByTable;

/** Lowercase hex of a whole array, as libraries return ids. */
export function hexOf(bytes) {
  if (!(bytes instanceof Uint8Array)) throw new DecodeError("expected bytes");
  return hex(bytes, 0, bytes.length);
}

/** Text, or a DecodeError for what is not UTF-8. */
export function textOf(bytes) {
  try {
    return utf8.decode(bytes);
  } catch {
    throw new DecodeError("not UTF-8");
  }
}

/** UTF-8 in bytes[from..to]. */
function text(bytes, from, to) {
  const length = to - from;
  if (length === 1 && bytes[from] < 0x80) return LETTERS[bytes[from]];
  if (length > SHORT_TEXT_BYTES) return textOf(bytes.subarray(from, to));
  const codes = new Array(length);
  for (let i = 0; i < length; i++) {
    const byte = bytes[from + i];
    if (byte >= 0x80) return textOf(bytes.subarray(from, to));
    codes[i] = byte;
  }
  return String.fromCharCode.apply(null, codes);
}

/** Every method throws a DecodeError where the bytes do not hold what is asked for. */
export class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
    this.end = bytes.length;
  }

  /** Moves on by so many bytes; returns where they begin. */
  skip(length) {
    const from = this.at;
    if (length > this.end - from) throw new DecodeError("the input ended early");
    this.at = from + length;
    return from;
  }

  finish() {
    if (this.at !== this.end) throw new DecodeError(`${this.end - this.at} bytes are left over`);
  }

  u8() {
    return this.bytes[this.skip(1)];
  }

  u16() {
    const at = this.skip(2);
    return this.bytes[at] | (this.bytes[at + 1] << 8);
  }

  u16BE() {
    const at = this.skip(2);
    return (this.bytes[at] << 8) | this.bytes[at + 1];
  }

  u32BE() {
    const { bytes } = this;
    const at = this.skip(4);
    return ((bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3]) >>> 0;
  }

  /** An i64 in little-endian order, as a number that is exact. */
  i64() {
    const { bytes } = this;
    const at = this.skip(8);
    const low = (bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24)) >>> 0;
    const high = bytes[at + 4] | (bytes[at + 5] << 8) | (bytes[at + 6] << 16) | (bytes[at + 7] << 24);
    return exact(high * 2 ** 32 + low);
  }

  /** Unsigned LEB128 in its shortest form, as a number that is exact. */
  varint() {
    let byte = this.u8();
    if (byte < 0x80) return byte;
    let value = byte & 0x7f;
    let factor = 128;
    do {
      if (factor > 2 ** 49) throw new DecodeError("a number above 2^53");
      byte = this.u8();
      value += (byte & 0x7f) * factor;
      factor *= 128;
    } while (byte >= 0x80);
    if (byte === 0) throw new DecodeError("a number that is longer than need be");
    return exact(value);
  }

  /** An i64 that was cast through u64: one below zero takes ten bytes. */
  signedVarint() {
    const { bytes, at, end } = this;
    let last = at;
    while (last < end && bytes[last] >= 0x80) last++;
    if (last - at < 9) return this.varint();
    this.skip(10);
    if (last - at > 9 || bytes[last] > 1) throw new DecodeError("a number of more than 64 bits");
    let value = 0n;
    for (let i = 0; i < 10; i++) value |= BigInt(bytes[at + i] & 0x7f) << BigInt(7 * i);
    return exact(Number(BigInt.asIntN(64, value)));
  }

  hex(length) {
    const from = this.skip(length);
    return hex(this.bytes, from, from + length);
  }

  text(length) {
    const from = this.skip(length);
    return text(this.bytes, from, from + length);
  }

  rest() {
    return this.bytes.subarray(this.skip(this.end - this.at), this.end);
  }
}

/** A number that a double holds exactly. */
export function exact(value) {
  if (!Number.isSafeInteger(value)) throw new DecodeError("a number beyond 2^53");
  return value;
}

/** NIP-01 bounds kinds. */
export function kindOf(value) {
  if (!(value >= 0 && value <= 0xffff)) throw new DecodeError("a kind above 65535");
  return value;
}
