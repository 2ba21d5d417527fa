// By static code that pbjs writes (`npm run protobuf`), decoders only (docs/browsers.md says why).

import { protoItem, protoMessage } from "./common.js";

/** A decoder by the types of a schema. */
export function protobufJs(schema, { Event, RelayMsg }) {
  const item = protoItem(schema, ({ createdAt }) => (typeof createdAt === "number" ? createdAt : createdAt.toNumber()));
  return {
    event: (bytes) => item(Event.decode(bytes)),
    message(bytes) {
      const found = RelayMsg.decode(bytes);
      return protoMessage(found.message, found[found.message], item);
    },
  };
}
