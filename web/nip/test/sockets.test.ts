/** The client and the relay of `src`, on real sockets. */
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { type ClientOptions, fetchDictionaries } from "../src/client.js";
import { Relay } from "../src/relay.js";
import { client, delivered as frames, DICTIONARY, event, handshake, OTHER_DICTIONARY, plays, TOKEN, until } from "./support.js";

const relay = await Relay.listen({ dictionaries: [DICTIONARY, OTHER_DICTIONARY] });
after(() => relay.close());

describe("client and relay", () => {
  const speak = (url: string, options: Partial<ClientOptions>, token: string) =>
    plays(url, event(1, `${token || "no token"}: ${"日本語 ".repeat(50)}`), token, options);

  test("speak with the dictionary", () => speak(relay.url, {}, TOKEN));
  test("speak with the client's first choice", () =>
    speak(relay.url, { dictionaries: [OTHER_DICTIONARY, DICTIONARY] }, `nostr.json+zstd-dict2-${OTHER_DICTIONARY.id}`));
  test("speak text without a dictionary", () => speak(relay.url, { dictionaries: [] }, ""));
  test("speak text if the relay has another dictionary", async () => {
    const other = await Relay.listen({ dictionaries: [OTHER_DICTIONARY] });
    await speak(other.url, {}, "nostr.json");
    await other.close();
  });
  test("speak text if the relay has none", async () => {
    const plain = await Relay.listen({ dictionaries: [] });
    await speak(plain.url, {}, "nostr.json");
    await plain.close();
  });

  const delivered = (kind: number, before: string[], other = "another") =>
    frames(relay.url, event(kind, `a note for two: ${kind} ${before.length} ${other.length} ${"x ".repeat(200)}`), before, other);

  test("an event is compressed once for two subscriptions", async () => {
    const [one, two] = await delivered(1, []);
    assert.equal(one!.length, 2);
    assert.notDeepEqual(one![0], two![0]);
    assert.deepEqual(one![1], two![1]);
  });
  test("a prefix beyond 1,024 bytes is compressed with its event", async () => {
    const [one, two] = await delivered(1, [], "s".repeat(1025));
    assert.deepEqual([one!.length, two!.length], [2, 1]);
  });
  for (const kind of [4, 13, 14, 15, 1059, 21059]) {
    test(`an event of kind ${kind} is a frame of its own`, async () => {
      assert.deepEqual((await delivered(kind, [])).map(({ length }) => length), [1, 1]);
    });
  }
  test("a client that has sent AUTH shares nothing", async () => {
    const frames = await delivered(1, [JSON.stringify(["AUTH", event(22_242, "")])]);
    assert.deepEqual(frames.map(({ length }) => length), [1, 1]);
  });

  test("the relay serves its dictionaries", async () => {
    const fetched = await fetchDictionaries(relay.url);
    assert.deepEqual(fetched.map(({ sha256 }) => sha256), [DICTIONARY.sha256, OTHER_DICTIONARY.sha256]);
    const missing = await fetch(`${relay.url.replace("ws", "http")}/.well-known/nostr/dictionary/00000000`);
    assert.equal(missing.status, 404);
    assert.equal(missing.headers.get("access-control-allow-origin"), "*");
  });
  test("repeated tokens are ignored", async () => {
    const protocol = `graphql-ws, graphql-ws, ${TOKEN}, ${TOKEN}, nostr.json`;
    const { status, headers } = await handshake(relay.url, { protocol, extensions: null });
    assert.deepEqual([status, headers["sec-websocket-protocol"]], [101, TOKEN]);
  });
  test("a token with something beside it is another one", async () => {
    const protocol = `${TOKEN} x, x ${TOKEN}, nostr.json`;
    const { headers } = await handshake(relay.url, { protocol, extensions: null });
    assert.equal(headers["sec-websocket-protocol"], "nostr.json");
  });
  test("a wrong id is not stored", async () => {
    const { peer, received } = await client(relay.url);
    const wrong = { ...event(1, "true"), content: "false" };
    peer.send(JSON.stringify(["EVENT", wrong]));
    await until(() => received.length === 1, "OK");
    assert.deepEqual(JSON.parse(received[0]!).slice(0, 3), ["OK", wrong.id, false]);
    peer.socket.close();
  });
});
