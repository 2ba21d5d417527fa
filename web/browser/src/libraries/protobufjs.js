// By static code that pbjs writes (`npm run protobuf`), decoders only (docs/browsers.md says why).

import { protoItem } from "./common.js";

/** A decoder by the types of a schema. */
export function protobufJs(schema, { Event, RelayMsg }) {
  const item = protoItem(schema, ({ createdAt }) => (typeof createdAt === "number" ? createdAt : createdAt.toNumber()));
  return {
    event: (bytes) => item(Event.decode(bytes)),
    message(bytes) {
      const { message, event, events, eose } = RelayMsg.decode(bytes);
      if (message === "event") return ["EVENT", event.sub, item(event.event)];
      return message === "events" ? ["EVENTS", events.sub, events.events.map(item)] : [message.toUpperCase(), eose?.sub];
    },
  };
}
