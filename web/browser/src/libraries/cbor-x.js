import { Decoder } from "cbor-x";
import { FIELDS, event, fromList } from "./common.js";

const VERBS = { 1: "EVENT", 3: "EOSE", 10: "EVENTS" };

/** The message around what CBOR holds: its verb is a number, or in cbor-schemaless its name. */
function relayMessage([verb, sub, body], item) {
  const name = VERBS[verb] ?? verb;
  return [name, sub, name === "EVENT" ? item(body) : name === "EVENTS" ? body.map(item) : undefined];
}

export function cborX(layout) {
  const decoder = new Decoder({ mapsAsObjects: true, useRecords: false, int64AsNumber: true });
  const keys = layout === "intkey" ? FIELDS.map((_, key) => key) : FIELDS;
  const item = layout === "packed" ? fromList : (map) => event(...keys.map((key) => map[key]));
  return {
    event: (bytes) => item(decoder.decode(bytes)),
    message: (bytes) => relayMessage(decoder.decode(bytes), item),
  };
}
