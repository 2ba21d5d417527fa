import { Decoder } from "cbor-x";
import { FIELDS, cborMessage, event, fromList } from "./common.js";

export function cborX(layout) {
  const decoder = new Decoder({ mapsAsObjects: true, useRecords: false, int64AsNumber: true });
  const keys = layout === "intkey" ? FIELDS.map((_, key) => key) : FIELDS;
  const item = layout === "packed" ? fromList : (map) => event(...keys.map((key) => map[key]));
  return {
    event: (bytes) => item(decoder.decode(bytes)),
    message: (bytes) => cborMessage(decoder.decode(bytes), item),
  };
}
