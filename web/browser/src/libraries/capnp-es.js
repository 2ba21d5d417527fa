import { Message, ObjectSize, Struct, utils } from "capnp-es";
import { tagsOf } from "../capnp.js";
import { Reader, kindOf } from "../bytes.js";

/** As capnp-es writes it of nostr.capnp: three pointers. */
class NostrEvent extends Struct {
  static _capnp = { displayName: "NostrEvent", id: "0", size: new ObjectSize(0, 3) };
}

export function capnpEs() {
  const data = (pointer, slot) => utils.getData(slot, pointer).toUint8Array();
  const event = (bytes) => {
    const root = new Message(bytes, false).getRoot(NostrEvent);
    const fixed = new Reader(data(root, 0));
    const [id, pubkey, sig] = [fixed.hex(32), fixed.hex(32), fixed.hex(64)];
    const [created_at, kind] = [fixed.i64(), kindOf(fixed.u16())];
    return { id, pubkey, created_at, kind, tags: tagsOf(data(root, 1)), content: utils.getText(2, root), sig };
  };
  return { event };
}
