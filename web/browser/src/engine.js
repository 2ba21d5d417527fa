// What the engine has: JSON.parse. It checks no field of an event, and neither do apps.

import { textOf } from "./bytes.js";

export const json = () => ({ event: JSON.parse, message: JSON.parse });

export function jsonBytes() {
  const parse = (bytes) => JSON.parse(textOf(bytes));
  return { event: parse, message: parse };
}
