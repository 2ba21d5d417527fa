/** Bombs, damage, and peers that lie. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { connect as connectTcp, type AddressInfo } from "node:net";
import { after, describe, mock, test } from "node:test";
import { fetchDictionaries } from "../src/client.js";
import { decode, encode } from "../src/message.js";
import { Relay } from "../src/relay.js";
import { Dictionary, Refused } from "../src/zstd.js";
import { client, DICTIONARY, event, framesOf, liar, LIMIT, OTHER_DICTIONARY, raw, TOKEN } from "./support.js";
import { until, VECTORS } from "./support.js";

const MAGIC = [0x28, 0xb5, 0x2f, 0xfd];
const relay = await Relay.listen({ dictionaries: [DICTIONARY], limit: LIMIT });
after(() => relay.close());

/** A last block of RLE: `size` bytes of `x` in four. */
const repeated = (size: number) => [...Buffer.from(Uint32Array.of((size << 3) | 3).buffer).subarray(0, 3), 0x78];
/** A frame of `x` with this window and without a content size. */
const unsized = (window: number, size: number) => [...MAGIC, 0, window, ...repeated(size)];
/** A frame of `x` that claims a content size of eight bytes. */
const claiming = (claimed: bigint, size: number) =>
  [...MAGIC, 0xe0, ...Buffer.from(BigUint64Array.of(claimed).buffer), ...repeated(size)];
const packed = (...frames: number[][]) => Buffer.from([1, ...frames.flat()]);

function refuses(message: Uint8Array, code: number, limit = LIMIT): void {
  assert.throws(() => decode(message, DICTIONARY, limit), (error) => error instanceof Refused && error.code === code);
}

describe("bombs", () => {
  test("frames that fit alone, but not together", () => {
    const frame = unsized(0x38, 1 << 17);
    assert.equal(decode(packed(...Array<number[]>(8).fill(frame)), DICTIONARY, LIMIT).length, LIMIT);
    refuses(packed(...Array<number[]>(9).fill(frame)), 1009);
    refuses(packed(claiming(BigInt(LIMIT), 1), unsized(0x38, 1)), 1007);
    refuses(packed(unsized(0x38, 1), claiming(BigInt(LIMIT), 1)), 1009);
  });
  test("content sizes of up to 2^64 - 1 reserve nothing", () => {
    const before = process.memoryUsage().rss;
    for (const claimed of [1n << 21n, 0xffff_fffen, 0xffff_ffffn, 1n << 32n, 1n << 63n, (1n << 64n) - 1n]) {
      refuses(packed(claiming(claimed, 1)), 1009);
    }
    refuses(packed(...Array<number[]>(256).fill(claiming(BigInt(LIMIT), 1))), 1009);
    assert.ok(process.memoryUsage().rss - before < 64 << 20);
  });
  test("a content size that is wrong", () => {
    assert.equal(decode(packed(claiming(3n, 3)), DICTIONARY, LIMIT), "xxx");
    refuses(packed(claiming(2n, 3)), 1007);
    refuses(packed(claiming(4n, 3)), 1007);
    refuses(packed(claiming(10n, 1 << 17)), 1007);
  });
  test("windows of 8 MiB and above", () => {
    assert.equal(decode(packed(unsized(13 << 3, 3)), DICTIONARY, LIMIT), "xxx");
    refuses(packed(unsized((13 << 3) + 1, 3)), 1007);
    refuses(packed(unsized(0xff, 3)), 1007);
  });
  test("a payload of the limit and one byte above it", () => {
    const payload = "y".repeat(1000);
    const message = encode(payload, DICTIONARY);
    assert.equal(decode(message, DICTIONARY, 1000), payload);
    refuses(message, 1009, 999);
    refuses(Buffer.from(`\0${payload}`), 1009, 1000);
  });
  test("a message above the relay's limit, in a header alone", async () => {
    const { socket, closeCode } = await raw(relay.url);
    socket.send(Buffer.alloc(LIMIT + 1));
    await until(() => closeCode() !== undefined, "the close");
    assert.equal(closeCode(), 1009);
  });
});

describe("damage", () => {
  const messages = [...VECTORS.messages, ...VECTORS.also_valid].map(({ bytes }) => Buffer.from(bytes, "hex"));

  test("a message that is cut anywhere", () => {
    for (const message of messages.filter(([first]) => first === 1)) {
      const ends = new Set([message.length]);
      for (const frame of framesOf(message).reverse()) ends.add(Math.min(...ends) - frame.length);
      for (let length = 0; length < message.length; length++) {
        // Whole frames are a message, too: what they hold is for the reader of JSON.
        if (ends.has(length) && length > 1) decode(message.subarray(0, length), DICTIONARY, LIMIT);
        else refuses(message.subarray(0, length), length === 0 ? 1002 : 1007);
      }
    }
  });
  test("a message with any bit flipped is refused or bounded", () => {
    let refused = 0;
    for (const message of messages) {
      for (let bit = 0; bit < 8 * message.length; bit += 7) {
        const damaged = Buffer.from(message);
        damaged[bit >> 3]! ^= 1 << (bit & 7);
        try {
          assert.ok(decode(damaged, DICTIONARY, LIMIT).length <= LIMIT);
        } catch (error) {
          assert.ok(error instanceof Refused, String(error));
          refused++;
        }
      }
    }
    assert.ok(refused > 100, `${refused}`);
    for (const [index, message] of messages.entries()) {
      assert.equal(decode(message, DICTIONARY, LIMIT), [...VECTORS.messages, ...VECTORS.also_valid][index]!.payload);
    }
  });
  test("skippable frames, reserved bits and blocks, another magic number", () => {
    refuses(packed([0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 0]), 1007);
    refuses(packed(unsized(0, 3), [0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0]), 1007);
    refuses(packed([...MAGIC, 8, 0, ...repeated(3)]), 1007);
    refuses(packed([...MAGIC, 0, 0, 7, 0, 0]), 1007);
    refuses(packed([0x27, 0xb5, 0x2f, 0xfd, 0, 0, ...repeated(3)]), 1007);
  });
  test("a dictionary that is none", () => {
    for (const bytes of [Buffer.alloc(0), Buffer.from("37a430ec", "hex"), Buffer.alloc(100), Buffer.alloc(1 << 21)]) {
      assert.throws(() => new Dictionary(bytes), /no zstd dictionary/);
    }
  });
});

describe("peers that lie", () => {
  const echo = { protocol: TOKEN, extensions: null };
  const text = { protocol: null, extensions: null };

  test("a relay that echoes the token and sends text is asked for text for an hour", async () => {
    mock.timers.enable({ apis: ["Date"], now: 1_700_000_000_000 });
    const fake = await liar([echo, text, echo], (socket) => socket.send('["NOTICE","hello"]'));
    const one = await client(fake.url);
    await until(() => one.closeCode() !== undefined, "the close");
    assert.equal(one.closeCode(), 1003);
    assert.deepEqual(one.received, []);
    mock.timers.tick(3_599_000);
    const two = await client(fake.url);
    await until(() => two.received.length === 1, "text");
    mock.timers.tick(2_000);
    await client(fake.url);
    mock.timers.reset();
    assert.deepEqual(fake.offers, [`${TOKEN},nostr.json`, undefined, `${TOKEN},nostr.json`]);
    fake.close();
  });
  for (const status of [400, 404, 426, 401, 403, 429, 500, 302]) {
    const requests = [400, 404, 426].includes(status) ? 2 : 1;
    test(`a relay that answers ${status} gets ${requests} requests`, async () => {
      const fake = await liar([status, text]);
      const opened = client(fake.url);
      if (requests === 2) (await opened).peer.socket.close();
      else await assert.rejects(opened, new RegExp(`status ${status}`));
      assert.deepEqual(fake.offers, [`${TOKEN},nostr.json`, undefined].slice(0, requests));
      fake.close();
    });
  }
  test("a relay that refuses text, too, gets no third request", async () => {
    const fake = await liar([400]);
    await assert.rejects(client(fake.url), /status 400/);
    assert.equal(fake.offers.length, 2);
    fake.close();
  });
  for (const protocol of [`${TOKEN}, nostr.json`, "", TOKEN.toUpperCase()]) {
    test(`a relay that answers with the token "${protocol}"`, async () => {
      const fake = await liar([{ protocol, extensions: null }]);
      await assert.rejects(client(fake.url), /subprotocol/);
      fake.close();
    });
  }
  test("a relay that serves another dictionary than it names", async () => {
    const server = createServer((request, response) => {
      const wire = { dictionaries: { [DICTIONARY.id]: { sha256: DICTIONARY.sha256, bytes: 32_768 } } };
      response.end(request.url === "/" ? JSON.stringify({ wire }) : OTHER_DICTIONARY.bytes);
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    await assert.rejects(fetchDictionaries(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`), /other bytes/);
    server.close();
  });
  test("clients that send what is no message of NIP-01 get an answer", async () => {
    const { socket, received } = await raw(relay.url);
    const deep = "[".repeat(200_000) + "]".repeat(200_000);
    const unlike = ["{", "[]", "null", '["REQ"]', '["REQ",1]', '["REQ","a",1]', '["EVENT",{}]', '["EVENT",{"id":1}]'];
    const wrong = [
      `["AUTH",{"id":${deep}}]`,
      `["REQ","a",{"since":${deep},"ids":${deep}}]`,
      `["EVENT",{"id":"a","tags":${deep}}]`,
      '["REQ","a",{"kinds":1}]',
      ...unlike,
    ];
    for (const json of wrong) socket.send(Buffer.from(`\0${json}`));
    await until(() => received.length === wrong.length, "answers");
    const answers = received.map((message) => JSON.parse(decode(message, DICTIONARY, LIMIT))[0]);
    assert.deepEqual(answers, ["OK", "EOSE", "OK", "EOSE", ...unlike.map(() => "NOTICE")]);
    socket.close();
  });
  test("what follows a refused message is not read", async () => {
    const fake = await liar([echo], (socket) => {
      for (const bytes of [[2], [0, 0x5b, 0x5d]]) socket.send(Buffer.from(bytes));
    });
    const { received, closeCode } = await client(fake.url);
    await until(() => closeCode() !== undefined, "the close");
    assert.deepEqual([closeCode(), received], [1002, []]);
    fake.close();
  });
  test("a client that vanishes inside a message leaves others alone", async () => {
    const { port } = new URL(relay.url);
    const stream = connectTcp(Number(port), "127.0.0.1");
    const request = [
      "GET / HTTP/1.1",
      "Host: relay",
      "Connection: Upgrade",
      "Upgrade: websocket",
      "Sec-WebSocket-Version: 13",
      "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
      `Sec-WebSocket-Protocol: ${TOKEN}`,
    ];
    stream.write(`${request.join("\r\n")}\r\n\r\n`);
    await once(stream, "data");
    stream.write(Buffer.from([0x82, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 1, 2, 3, 4, 1]));
    stream.destroy();
    const { peer, received } = await client(relay.url);
    peer.send('["REQ","a",{"limit":0}]');
    await until(() => received.length === 1, "EOSE");
    peer.socket.close();
  });
  test("a client that does not read is cut off", async () => {
    const { peer, received: others } = await client(relay.url);
    const large = event(1, Array.from({ length: 30_000 }, (_, index) => Math.sin(index)).join(""));
    peer.send(JSON.stringify(["EVENT", large]));
    await until(() => others.length === 1, "OK");
    const { socket, received, closeCode } = await raw(relay.url);
    socket.pause();
    const asked = 300;
    for (let count = 0; count < asked; count++) socket.send(Buffer.from(`\0["REQ","a",{"ids":["${large.id}"]}]`));
    peer.send('["REQ","b",{"limit":0}]');
    await until(() => others.length === 2, "OK and EOSE");
    socket.resume();
    await until(() => closeCode() !== undefined, "the end");
    assert.equal(closeCode(), 1006);
    assert.ok(received.length < asked, `${received.length}`);
    peer.socket.close();
  });
});
