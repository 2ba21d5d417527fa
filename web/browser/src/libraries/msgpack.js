import { decode } from "@msgpack/msgpack";
import { enveloped } from "../readers.js";
import { fromList } from "./common.js";

export function msgpack() {
  const event = (bytes) => fromList(decode(bytes));
  return { event, message: enveloped(event) };
}
