import { decode } from "cborg";
import { FIELDS, event, fromList } from "./common.js";

/** Only a Map can have integer keys. */
const READERS = {
  packed: [{}, fromList],
  schemaless: [{}, (map) => event(...FIELDS.map((key) => map[key]))],
  intkey: [{ useMaps: true }, (map) => event(...FIELDS.map((_, key) => map.get(key)))],
};

export function cborg(layout) {
  const [options, item] = READERS[layout];
  return { event: (bytes) => item(decode(bytes, options)) };
}
