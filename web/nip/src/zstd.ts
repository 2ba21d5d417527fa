/** Frames of zstd (RFC 8878): their headers, and compression with a dictionary in bounded memory. */
import { createHash } from "node:crypto";
import { compressUsingDict, createCCtx, createDCtx, decompressUsingDict, init } from "@bokuweb/zstd-wasm";

await init();
const [compressor, decompressor] = [createCCtx(), createDCtx()];

/** A dictionary has at most so many bytes. */
export const MOST_DICTIONARY = 1 << 20;
const MOST_WINDOW = 8 << 20;

/** What a peer sent is not read. `message` says why. */
export class Refused extends Error {
  override name = "Refused";

  /** `code` is the one to close the WebSocket with. */
  constructor(
    readonly code: 1002 | 1003 | 1007 | 1009,
    why: string,
  ) {
    super(why);
  }
}

const view = (bytes: Uint8Array) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** A trained dictionary, as both ends hold it. */
export class Dictionary {
  /** SHA-256 in lowercase hex. */
  readonly sha256: string;
  /** What the token names: the first eight digits. */
  readonly id: string;

  constructor(readonly bytes: Uint8Array) {
    if (bytes.length < 8 || bytes.length > MOST_DICTIONARY || view(bytes).getUint32(0, true) !== 0xec30a437) {
      throw new Error(`${bytes.length} bytes are no zstd dictionary: it begins with 37 a4 30 ec and has at most 1 MiB`);
    }
    this.sha256 = createHash("sha256").update(bytes).digest("hex");
    this.id = this.sha256.slice(0, 8);
  }
}

/** A frame and what its header says. */
export interface Frame {
  bytes: Uint8Array;
  /** In bytes; undefined where the header does not say. */
  contentSize: number | undefined;
}

/** The frame that begins at `at`. Headers of its blocks say where it ends; `decompress` checks the rest. */
export function frameAt(message: Uint8Array, at: number): Frame {
  const rest = message.subarray(at);
  const data = view(rest);
  let end = 5;
  const number = (size: number) => {
    let read = 0;
    for (let byte = 0; byte < size; byte++) read += data.getUint8(end++) * 2 ** (8 * byte);
    return read;
  };
  try {
    if (data.getUint32(0, true) !== 0xfd2fb528) throw new Refused(1007, "bytes that are no zstd frame");
    const descriptor = data.getUint8(4);
    const single = (descriptor & 0x20) !== 0;
    const window = single ? 0 : number(1);
    if (2 ** (10 + (window >> 3)) * (1 + (window & 7) / 8) > MOST_WINDOW) {
      throw new Refused(1007, "a zstd frame with a window above 8 MiB");
    }
    end += [0, 1, 2, 4][descriptor & 3]!;
    const sizeSize = [single ? 1 : 0, 2, 4, 8][descriptor >> 6]!;
    const contentSize = sizeSize === 0 ? undefined : number(sizeSize) + (sizeSize === 2 ? 256 : 0);
    for (let last = false; !last; ) {
      const block = number(3);
      last = (block & 1) === 1;
      end += (block & 6) === 2 ? 1 : block >> 3;
    }
    end += descriptor & 4 ? 4 : 0;
    if (end > rest.length) throw new RangeError();
    return { bytes: rest.subarray(0, end), contentSize };
  } catch (error) {
    throw error instanceof RangeError ? new Refused(1007, "a zstd frame that is cut") : error;
  }
}

/** What a frame holds. `limit` is in bytes; the caller has compared a content size with its own. */
export function decompress(frame: Frame, dictionary: Dictionary, limit: number): Uint8Array {
  try {
    return decompressUsingDict(decompressor, frame.bytes, dictionary.bytes, { defaultHeapSize: limit });
  } catch (error) {
    // ZSTD_error_dstSize_tooSmall; with a content size the frame contradicts itself.
    if (frame.contentSize === undefined && /code -70$/.test(String(error))) {
      throw new Refused(1009, `a payload above the limit: more than ${limit} bytes`);
    }
    throw new Refused(1007, `a damaged zstd frame (${error instanceof Error ? error.message : error})`);
  }
}

/** One frame, without `Dictionary_ID`, which the token says already. */
export function compress(content: Uint8Array, dictionary: Dictionary): Uint8Array {
  const frame = compressUsingDict(compressor, content, dictionary.bytes, 3);
  const descriptor = frame[4]!;
  const at = descriptor & 0x20 ? 5 : 6;
  const head = frame.slice(0, at);
  head[4] = descriptor & ~3;
  return Buffer.concat([head, frame.subarray(at + [0, 1, 2, 4][descriptor & 3]!)]);
}
