// By static code that pbjs writes (`npm run protobuf`), decoders only.

import { exact, kindOf } from "../bytes.js";

/** A decoder by the types of nostr.proto, whose ids are text, or of nostr_binary.proto. */
export function protobufJs(id, { Event, RelayMsg }) {
  const item = ({ id: hash, pubkey, createdAt, kind, tags, content, sig }) => ({
    id: id(hash),
    pubkey: id(pubkey),
    created_at: exact(typeof createdAt === "number" ? createdAt : createdAt.toNumber()),
    kind: kindOf(kind),
    tags: tags.map((tag) => tag.values),
    content,
    sig: id(sig),
  });
  return {
    event: (bytes) => item(Event.decode(bytes)),
    message(bytes) {
      const { message, event, events, eose } = RelayMsg.decode(bytes);
      if (message === "event") return ["EVENT", event.sub, item(event.event)];
      return message === "events" ? ["EVENTS", events.sub, events.events.map(item)] : [message.toUpperCase(), eose?.sub];
    },
  };
}
