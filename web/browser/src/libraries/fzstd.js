// relay-sim's zstd layer (docs/transport.md) undone by script: the DecompressionStream of browsers has no zstd.

import { decompress } from "fzstd";
import { DecodeError, textOf } from "../bytes.js";
import { json } from "../engine.js";
import { tunedDannypack } from "../tuned.js";

/** The first byte of a message. */
const [PLAIN, FRAME] = [0, 1];

/** The payload of a message. */
function payloadOf(message) {
  if (message[0] === PLAIN) return message.subarray(1);
  if (message[0] === FRAME) return decompress(message.subarray(1));
  throw new DecodeError(`expected a payload or a zstd frame, not transform ${message[0]}`);
}

/** A decoder of messages of the layer, from one of payloads, which takes text or bytes. */
export function overZstd(made, input) {
  const payload = input === "text" ? (message) => textOf(payloadOf(message)) : payloadOf;
  return { event: (message) => made.event(payload(message)), message: (message) => made.message(payload(message)) };
}

/** A request in the layer, as it is: text, or a list of bytes. */
export function plain(request) {
  const bytes = typeof request === "string" ? new TextEncoder().encode(request) : request;
  return [PLAIN, ...bytes];
}

export const zstdJson = () => overZstd(json(), "text");
export const zstdDannypack = () => overZstd(tunedDannypack(), "bytes");
