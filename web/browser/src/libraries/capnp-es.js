import { DataList, Message, ObjectSize, Struct, utils } from "capnp-es";
import { DecodeError, Reader, kindOf } from "../bytes.js";
import { unread } from "../readers.js";

/** A struct of nostr.capnp as capnp-es writes it: bytes of data, and pointers. */
const struct = (displayName, bytes, pointers) =>
  class extends Struct {
    static _capnp = { displayName, id: "0", size: new ObjectSize(bytes, pointers) };
  };

const NostrEvent = struct("NostrEvent", 0, 3);
const RelayMsg = struct("RelayMsg", 8, 1);
/** What the messages that a page asks for have in common: a subscription first. */
const Body = struct("Body", 0, 1);

function tagValue(reader) {
  const head = reader.u16();
  const length = head & 0x7fff;
  if (head < 0x8000) return reader.text(length);
  if (length < 4) throw new DecodeError("short hex is stored as text");
  return reader.hex(length);
}

/** The tags in tagData, which no library reads. */
function tagsOf(bytes) {
  const reader = new Reader(bytes);
  const tags = [];
  for (let left = reader.u16(); left > 0; left--) {
    const tag = [];
    for (let values = reader.u8(); values > 0; values--) tag.push(tagValue(reader));
    tags.push(tag);
  }
  reader.finish();
  return tags;
}

function event(bytes) {
  const root = new Message(bytes, false).getRoot(NostrEvent);
  const data = (slot) => utils.getData(slot, root).toUint8Array();
  const fixed = new Reader(data(0));
  const [id, pubkey, sig] = [fixed.hex(32), fixed.hex(32), fixed.hex(64)];
  const [created_at, kind] = [fixed.i64(), kindOf(fixed.u16())];
  return { id, pubkey, created_at, kind, tags: tagsOf(data(1)), content: utils.getText(2, root), sig };
}

function message(bytes) {
  const root = new Message(bytes, false).getRoot(RelayMsg);
  const verb = utils.getUint16(0, root);
  if (verb !== 0 && verb !== 2 && verb !== 9) throw unread(verb + 1);
  const body = utils.getStruct(0, Body, root);
  const sub = utils.getText(0, body);
  if (verb === 2) return ["EOSE", sub];
  if (verb === 0) return ["EVENT", sub, event(utils.getData(1, body).toUint8Array())];
  const events = utils.getList(1, DataList, body).toArray();
  return ["EVENTS", sub, events.map((one) => event(one.toUint8Array()))];
}

export const capnpEs = () => ({ event, message });
