// What turns the values that libraries return into the object that JSON.parse would give.

import { DecodeError, exact, hexOf, kindOf } from "../bytes.js";

export const FIELDS = ["id", "pubkey", "created_at", "kind", "tags", "content", "sig"];

/** Tag values travel as text or as the bytes of hex. */
const value = (value) => (typeof value === "string" ? value : hexOf(value));
const values = (tag) => tag.map(value);

export function event(id, pubkey, created_at, kind, tags, content, sig) {
  if (typeof content !== "string") throw new DecodeError("expected text");
  return {
    id: hexOf(id),
    pubkey: hexOf(pubkey),
    created_at: exact(Number(created_at)),
    kind: kindOf(kind),
    tags: tags.map(values),
    content,
    sig: hexOf(sig),
  };
}

export function fromList(list) {
  if (!Array.isArray(list) || list.length !== 7) throw new DecodeError("an event is an array of 7");
  return event(list[0], list[1], list[2], list[3], list[4], list[5], list[6]);
}
