/** Messages of NIP-01 as the draft's bytes, and back. */
import { compress, decompress, frameAt, Refused, type Dictionary, type Frame } from "./zstd.js";

const [AS_IT_IS, COMPRESSED] = [Buffer.of(0), Buffer.of(1)];
const MOST_FRAMES = 256;
/** Shorter payloads, in bytes, are sent as they are. */
const LEAST_COMPRESSED = 128;
/** Longer prefixes, in bytes, do not fit into a frame's window of 1 KiB. */
const MOST_PREFIX = 1024;
/** Kinds of events that are compressed for each receiver anew. */
const PRIVATE_KINDS = [4, 13, 14, 15, 1059, 21059];

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** `frames` of `payload`, or the payload as it is where that is not longer. */
const shorter = (payload: Uint8Array, ...frames: Uint8Array[]) =>
  frames.reduce((sum, frame) => sum + frame.length, 0) < payload.length
    ? Buffer.concat([COMPRESSED, ...frames])
    : Buffer.concat([AS_IT_IS, payload]);

/** One message that shares no bytes with another. */
export function encode(json: string, dictionary: Dictionary): Uint8Array {
  const payload = Buffer.from(json);
  return payload.length < LEAST_COMPRESSED
    ? Buffer.concat([AS_IT_IS, payload])
    : shorter(payload, compress(payload, dictionary));
}

/** The payload of a binary message; `limit` in bytes holds for both. Throws `Refused`. */
export function decode(message: Uint8Array, dictionary: Dictionary, limit: number): string {
  if (message.length > limit) throw new Refused(1009, `a message above the limit of ${limit} bytes`);
  let payload: Uint8Array;
  if (message[0] === 0) payload = message.subarray(1);
  else if (message[0] === 1) payload = unpack(message, dictionary, limit);
  else throw new Refused(1002, message.length === 0 ? "an empty message" : `first byte ${message[0]}, not 0 or 1`);
  try {
    return utf8.decode(payload);
  } catch {
    throw new Refused(1007, "a payload that is not UTF-8");
  }
}

function unpack(message: Uint8Array, dictionary: Dictionary, limit: number): Uint8Array {
  const frames: Frame[] = [];
  for (let at = 1; at < message.length; at += frames.at(-1)!.bytes.length) {
    if (frames.length === MOST_FRAMES) throw new Refused(1007, `more than ${MOST_FRAMES} zstd frames`);
    frames.push(frameAt(message, at));
  }
  if (frames.length === 0) throw new Refused(1007, "01 without a zstd frame");
  const declared = frames.reduce((sum, frame) => sum + (frame.contentSize ?? 0), 0);
  if (declared > limit) throw new Refused(1009, `a payload above the limit: ${declared} of ${limit} bytes`);
  // A frame without a content size gets what the others do not claim.
  let left = limit - declared;
  const contents = frames.map((frame) => {
    const content = decompress(frame, dictionary, left);
    left -= frame.contentSize === undefined ? content.length : 0;
    return content;
  });
  return Buffer.concat(contents);
}

/** An event for many subscriptions. Its part of the message is compressed once, unless it is private. */
export class SharedEvent {
  readonly #json: string;
  readonly #shared: boolean;
  readonly #frames = new Map<Dictionary, Uint8Array>();

  constructor(event: { kind: number }) {
    this.#json = JSON.stringify(event);
    this.#shared = !PRIVATE_KINDS.includes(event.kind);
  }

  /** In bytes of memory, without what is compressed. */
  get size(): number {
    return 2 * this.#json.length;
  }

  text(subscription: string): string {
    return `["EVENT",${JSON.stringify(subscription)},${this.#json}]`;
  }

  /** The message; `alone` for a connection whose client has sent AUTH. */
  encode(subscription: string, dictionary: Dictionary, alone: boolean): Uint8Array {
    const json = this.text(subscription);
    const payload = Buffer.from(json);
    const prefix = payload.subarray(0, payload.length - Buffer.byteLength(this.#json) - 1);
    if (alone || !this.#shared || prefix.length > MOST_PREFIX || payload.length < LEAST_COMPRESSED) {
      return encode(json, dictionary);
    }
    let rest = this.#frames.get(dictionary);
    if (!rest) this.#frames.set(dictionary, (rest = compress(payload.subarray(prefix.length), dictionary)));
    const head = Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0, 0, 0]);
    head.writeUIntLE(8 * prefix.length + 1, 6, 3);
    return shorter(payload, head, prefix, rest);
  }
}
