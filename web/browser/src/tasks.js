// What an app does with an event besides decoding it: check it, show it.

import { schnorr } from "@noble/curves/secp256k1.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { bytesToHex, hexToBytes, utf8ToBytes } from "@noble/hashes/utils.js";
import { initNostrWasm } from "nostr-wasm";

/** Id and signature (NIP-01), as nostr-tools does it. */
export function verifyByNoble() {
  return (event) => {
    const { pubkey, created_at, kind, tags, content } = event;
    const id = bytesToHex(sha256(utf8ToBytes(JSON.stringify([0, pubkey, created_at, kind, tags, content]))));
    if (id !== event.id || !schnorr.verify(hexToBytes(event.sig), hexToBytes(id), hexToBytes(pubkey))) {
      throw new Error(`event ${event.id} is not what its author signed`);
    }
  };
}

/** Id and signature by libsecp256k1 in WebAssembly. */
export async function verifyByWasm() {
  const library = await initNostrWasm();
  return (event) => library.verifyEvent(event);
}

/** Notes that stay in the document: a screen and what is scrolled past. */
const SHOWN_NOTES = 50;

/** A note in the document, styled and laid out; the browser paints when it paints. */
export function render() {
  const feed = document.body.appendChild(document.createElement("main"));
  return (event) => {
    const note = document.createElement("article");
    const author = note.appendChild(document.createElement("b"));
    author.textContent = event.pubkey.slice(0, 8);
    const time = note.appendChild(document.createElement("time"));
    time.textContent = new Date(event.created_at * 1000).toLocaleString();
    note.appendChild(document.createElement("p")).textContent = event.content;
    feed.prepend(note);
    if (feed.childElementCount > SHOWN_NOTES) feed.lastElementChild.remove();
    return feed.offsetHeight;
  };
}
