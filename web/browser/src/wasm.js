// Decoders of `codecs` in WebAssembly (wasm/src/lib.rs), with one crossing a frame: bytes in, one text and
// the lengths of its slices out. The object is made here.

import CAPNP from "./wasm/capnp.json" with { type: "json" };
import CBOR_PACKED from "./wasm/cbor-packed.json" with { type: "json" };
import DANNYPACK from "./wasm/dannypack.json" with { type: "json" };
import NOTEPACK from "./wasm/notepack.json" with { type: "json" };
import PROTO_BINARY from "./wasm/proto-binary.json" with { type: "json" };
import { DecodeError, textOf } from "./bytes.js";

/** The bytes of a module, which stand in the script as nostr-wasm's do: gzipped, in base64. */
async function inflated(base64) {
  const gzipped = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([gzipped]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

/** The event in an answer, or the error; its form stands in wasm/src/lib.rs. */
function read(bytes, numbers, at, length) {
  const end = at + length;
  const textAt = numbers.getUint32(at, true);
  if (textAt === 0) return new DecodeError(textOf(bytes.subarray(at + 4, end)));
  const text = textOf(bytes.subarray(at + textAt, end));
  // Below 2^53, as wasm/ makes sure.
  const created_at = numbers.getInt32(at + 8, true) * 2 ** 32 + numbers.getUint32(at + 4, true);
  const kind = numbers.getUint32(at + 12, true);
  const tags = [];
  let left = numbers.getUint32(at + 16, true);
  let from = 256;
  for (at += 20; left > 0; left--) {
    const tag = [];
    let values = numbers.getUint32(at, true);
    for (at += 4; values > 0; values--, at += 4) {
      const to = from + numbers.getUint32(at, true);
      tag.push(text.slice(from, to));
      from = to;
    }
    tags.push(tag);
  }
  const [id, pubkey, sig] = [text.slice(0, 64), text.slice(64, 128), text.slice(128, 256)];
  return { id, pubkey, created_at, kind, tags, content: text.slice(from), sig };
}

/** A decoder by the bytes of a module, whose imports are those of the crate wasm-minimal-protocol. */
export async function decoderBy(module) {
  let [given, found, bytes, numbers] = [];
  /** Looks at the memory anew where it has grown, which detaches its buffer. */
  const look = () => {
    if (bytes?.length) return;
    const { buffer } = instance.exports.memory;
    [bytes, numbers] = [new Uint8Array(buffer), new DataView(buffer)];
  };
  const typst_env = {
    wasm_minimal_protocol_write_args_to_buffer(at) {
      look();
      bytes.set(given, at);
    },
    // What is sent is freed when the call returns, so it is read here; an exception would leave it there.
    wasm_minimal_protocol_send_result_to_host(at, length) {
      look();
      found = read(bytes, numbers, at, length);
    },
  };
  const { instance } = await WebAssembly.instantiate(module, { typst_env });
  const event = (frame) => {
    given = frame;
    instance.exports.event(frame.length);
    if (found instanceof DecodeError) throw found;
    return found;
  };
  return { event };
}

export const wasmCborPacked = () => inflated(CBOR_PACKED).then(decoderBy);
export const wasmProtoBinary = () => inflated(PROTO_BINARY).then(decoderBy);
export const wasmCapnp = () => inflated(CAPNP).then(decoderBy);
export const wasmDannypack = () => inflated(DANNYPACK).then(decoderBy);
export const wasmNotepack = () => inflated(NOTEPACK).then(decoderBy);
