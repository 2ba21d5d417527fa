/** Every vector of the draft, on real sockets where it is about a connection. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { after, describe, test } from "node:test";
import { tokenOf } from "../src/handshake.js";
import { decode, encode, SharedEvent } from "../src/message.js";
import { Relay } from "../src/relay.js";
import { DICTIONARY, client, framesOf, handshake, liar, LIMIT, raw, TOKEN, until, VECTORS } from "./support.js";

const relay = await Relay.listen({ dictionaries: [DICTIONARY], limit: LIMIT });
after(() => relay.close());

describe("vectors", () => {
  test("the dictionary has the id and the token", () => {
    assert.equal(DICTIONARY.id, VECTORS.dictionary.id);
    assert.equal(DICTIONARY.sha256, VECTORS.dictionary.sha256);
    assert.equal(tokenOf(DICTIONARY), TOKEN);
  });

  test("no list of vectors is empty", () => {
    for (const list of ["handshakes", "answers", "messages", "also_valid", "refused"] as const) {
      assert.notEqual(VECTORS[list].length, 0, list);
    }
  });

  for (const { what, offer, answer } of VECTORS.handshakes) {
    test(`handshake: ${what}`, async () => {
      const { status, headers } = await handshake(relay.url, offer);
      assert.equal(status, 101);
      assert.equal(headers["sec-websocket-protocol"] ?? null, answer.protocol);
      assert.equal(headers["sec-websocket-extensions"] ?? null, answer.extensions);
    });
  }

  for (const { what, answer, speaks } of VECTORS.answers) {
    test(`answer: ${what}`, async () => {
      const fake = await liar([answer]);
      const opened = client(fake.url);
      if (speaks === null) {
        await assert.rejects(opened);
      } else {
        const { dictionary } = (await opened).peer;
        assert.equal(dictionary ? tokenOf(dictionary) : "nostr.json", speaks);
      }
      assert.deepEqual(fake.offers, [`${TOKEN},nostr.json`]);
      fake.close();
    });
  }

  for (const { what, payload, bytes, prefix_bytes } of VECTORS.messages) {
    test(`message: ${what}`, () => {
      const theirs = Buffer.from(bytes, "hex");
      assert.equal(decode(theirs, DICTIONARY, LIMIT), payload);
      const [type, subscription, event] = JSON.parse(payload);
      const ours = type === "EVENT"
        ? new SharedEvent(event).encode(subscription, DICTIONARY, prefix_bytes === null && event.kind === 1)
        : encode(payload, DICTIONARY);
      assert.equal(decode(ours, DICTIONARY, LIMIT), payload);
      // Another compressor, the same layout: first byte, number of frames, the prefix's frame to the byte.
      assert.equal(ours[0], theirs[0]);
      if (theirs[0] === 1) assert.equal(framesOf(ours).length, framesOf(theirs).length);
      if (prefix_bytes !== null) assert.deepEqual(framesOf(ours)[0], framesOf(theirs)[0]);
    });
  }

  for (const { what, payload, bytes } of VECTORS.also_valid) {
    test(`also valid: ${what}`, () => {
      assert.equal(decode(Buffer.from(bytes, "hex"), DICTIONARY, LIMIT), payload);
    });
  }

  for (const { what, frame, bytes, close } of VECTORS.refused) {
    const message = Buffer.from(bytes, "hex");
    test(`refused by the relay: ${what}`, async () => {
      const peer = await raw(relay.url);
      peer.socket.send(message, { binary: frame === "binary" });
      const [code] = await once(peer.socket, "close");
      assert.equal(code, close);
      assert.deepEqual(peer.received, []);
    });
    test(`refused by the client: ${what}`, async () => {
      const fake = await liar([{ protocol: TOKEN, extensions: null }]);
      const { received, closeCode } = await client(fake.url, { limit: LIMIT });
      await until(() => fake.open.length > 0, "the connection");
      fake.open[0]!.send(message, { binary: frame === "binary" });
      const [code] = await once(fake.open[0]!, "close");
      await until(() => closeCode() !== undefined, "the client's close");
      assert.equal(code, close);
      assert.equal(closeCode(), close);
      assert.deepEqual(received, []);
      fake.close();
    });
  }
});
