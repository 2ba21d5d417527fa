import protobuf from "protobufjs/light.js";
import SCHEMAS from "../schemas.json" with { type: "json" };
import { protoItem, protoMessage } from "./common.js";

/** Its decoders are made from the schema when the page loads; the static ones of pbjs are the same code. */
export function protobufJs(schema) {
  const root = protobuf.Root.fromJSON(SCHEMAS[schema].json);
  const [Event, RelayMsg] = ["Event", "RelayMsg"].map((name) => root.lookupType(`${schema}.${name}`));
  const item = protoItem(schema, ({ created_at }) => (typeof created_at === "number" ? created_at : created_at.toNumber()));
  return {
    event: (bytes) => item(Event.decode(bytes)),
    message(bytes) {
      const found = RelayMsg.decode(bytes);
      return protoMessage(found.message, found[found.message], item);
    },
  };
}
