// What the engine has: JSON.parse. It checks no field of an event, and neither do apps.

import { textOf } from "./bytes.js";

export const json = () => ({ event: JSON.parse, message: JSON.parse });
export const jsonBytes = () => ({ event: (bytes) => JSON.parse(textOf(bytes)) });

/** The event without NSON's descriptor. */
const plain = ({ id, pubkey, created_at, kind, tags, content, sig }) => ({ id, pubkey, created_at, kind, tags, content, sig });

/** NSON is JSON with a descriptor. To follow that by script costs over twice as much. */
export function nson() {
  const message = ([verb, sub, body]) => [verb, sub, Array.isArray(body) ? body.map(plain) : body && plain(body)];
  return { event: (text) => plain(JSON.parse(text)), message: (text) => message(JSON.parse(text)) };
}
