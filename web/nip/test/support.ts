/** What tests share: the draft's dictionary and vectors, peers that obey no rule, and waiting. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, request, type IncomingHttpHeaders, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import WebSocket, { WebSocketServer } from "ws";
import { connect, type ClientOptions } from "../src/client.js";
import { decode } from "../src/message.js";
import type { Peer } from "../src/peer.js";
import { Dictionary, frameAt } from "../src/zstd.js";

export const ROOT = new URL("../../../../", import.meta.url);
export const DICTIONARY = new Dictionary(readFileSync(new URL("data/dictionaries/json.zdict", ROOT)));
export const OTHER_DICTIONARY = new Dictionary(readFileSync(new URL("data/dictionaries/tlv.zdict", ROOT)));

export interface Headers {
  protocol: string | null;
  extensions: string | null;
}

interface Message {
  what: string;
  payload: string;
  prefix_bytes: number | null;
  bytes: string;
}

export const VECTORS = JSON.parse(readFileSync(new URL("docs/nip/vectors.json", ROOT), "utf8")) as {
  token: string;
  dictionary: { id: string; sha256: string };
  max_message_bytes: number;
  handshakes: { what: string; offer: Headers; answer: Headers }[];
  answers: { what: string; answer: Headers; speaks: string | null }[];
  messages: Message[];
  also_valid: Message[];
  refused: { what: string; frame: "text" | "binary"; bytes: string; close: number }[];
};
export const TOKEN = VECTORS.token;
export const LIMIT = VECTORS.max_message_bytes;

/** An event with the right id and no signature. */
export function event(kind: number, content: string) {
  const pubkey = "ab".repeat(32);
  const signed = JSON.stringify([0, pubkey, 1_700_000_000, kind, [], content]);
  const id = createHash("sha256").update(signed).digest("hex");
  return { id, pubkey, created_at: 1_700_000_000, kind, tags: [], content, sig: "00".repeat(64) };
}

/** The frames of a message that begins with 01. */
export function framesOf(message: Uint8Array): Uint8Array[] {
  const frames: Uint8Array[] = [];
  for (let at = 1; at < message.length; at += frames.at(-1)!.length) {
    frames.push(frameAt(message, at).bytes);
  }
  return frames;
}

/** Resolves when `condition` holds, and fails after ten seconds. */
export async function until(condition: () => boolean, what: string): Promise<void> {
  for (const end = Date.now() + 10_000; !condition(); ) {
    if (Date.now() > end) throw new Error(`waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

/** A client of `src` and all that it received. */
export async function client(url: string, options: Partial<ClientOptions> = {}) {
  const received: string[] = [];
  let close: number | undefined;
  const peer: Peer = await connect(url, {
    dictionaries: [DICTIONARY],
    message: (json) => received.push(json),
    closed: (code) => (close = code),
    ...options,
  });
  return { peer, received, closeCode: () => close };
}

/** A WebSocket that sends what it is told, and what it received. */
export async function raw(url: string, tokens: string[] = [TOKEN]) {
  const received: Buffer[] = [];
  const socket = new WebSocket(url, tokens, { perMessageDeflate: false });
  let close: number | undefined;
  socket.on("message", (data) => received.push(data as Buffer));
  socket.on("close", (code) => (close = code));
  await once(socket, "open");
  return { socket, received, closeCode: () => close };
}

/** Two clients publish an event and read it, stored and live. */
export async function plays(url: string, noted: { id: string }, token: string, options: Partial<ClientOptions> = {}) {
  const [one, two] = [await client(url, options), await client(url, options)];
  assert.equal(one.peer.socket.protocol, token);
  two.peer.send(JSON.stringify(["REQ", "live", { kinds: [1], since: 1_600_000_000, ids: [noted.id] }]));
  await until(() => two.received.length === 1, "EOSE");
  one.peer.send(JSON.stringify(["EVENT", noted]));
  await until(() => one.received.length === 1 && two.received.length === 2, "OK and the event");
  one.peer.send(JSON.stringify(["REQ", "stored", { ids: [noted.id], limit: 5 }]));
  await until(() => one.received.length === 3, "the stored event");
  const [ok, ...stored] = one.received.map((json) => JSON.parse(json));
  assert.deepEqual(ok.slice(0, 3), ["OK", noted.id, true]);
  assert.deepEqual(stored, [["EVENT", "stored", noted], ["EOSE", "stored"]]);
  assert.deepEqual(two.received.map((json) => JSON.parse(json)), [["EOSE", "live"], ["EVENT", "live", noted]]);
  for (const { peer } of [one, two]) peer.socket.close();
}

/** The frames that two subscriptions get for one event, after `before`. */
export async function delivered(url: string, noted: { id: string }, before: string[] = [], other = "another") {
  const readers = [await raw(url), await raw(url)];
  for (const [index, { socket }] of readers.entries()) {
    const texts = [...before, JSON.stringify(["REQ", index === 0 ? "one" : other, { ids: [noted.id] }])];
    for (const text of texts) socket.send(Buffer.concat([Buffer.of(0), Buffer.from(text)]));
  }
  await until(() => readers.every(({ received }) => received.length === before.length + 1), "EOSE");
  const { peer } = await client(url);
  peer.send(JSON.stringify(["EVENT", noted]));
  await until(() => readers.every(({ received }) => received.length === before.length + 2), "the event");
  const messages = readers.map(({ received }) => received.at(-1)!);
  for (const [index, message] of messages.entries()) {
    const json = JSON.stringify(["EVENT", index === 0 ? "one" : other, noted]);
    assert.equal(decode(message, DICTIONARY, LIMIT), json);
    assert.equal(message[0], 1);
  }
  for (const { socket } of [...readers, peer]) socket.close();
  return messages.map(framesOf);
}

/** The headers of a relay's answer to a handshake with these. */
export async function handshake(
  url: string,
  offer: Headers,
): Promise<{ status: number; headers: IncomingHttpHeaders }> {
  const headers: Record<string, string> = {
    Connection: "Upgrade",
    Upgrade: "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
  };
  if (offer.protocol !== null) headers["Sec-WebSocket-Protocol"] = offer.protocol;
  if (offer.extensions !== null) headers["Sec-WebSocket-Extensions"] = offer.extensions;
  const asked = request(url.replace(/^ws/, "http"), { headers });
  asked.end();
  const [response, socket] = await new Promise<[IncomingMessage, Duplex?]>((resolve, reject) => {
    asked.on("upgrade", (answer, stream) => resolve([answer, stream]));
    asked.on("response", (answer) => resolve([answer]));
    asked.on("error", reject);
  });
  socket?.destroy();
  response.destroy();
  return { status: response.statusCode!, headers: response.headers };
}

/** A relay that answers each handshake as told: headers of a 101, or a status; `offers` has what it was asked. */
export async function liar(answers: (Headers | number)[], opened: (socket: WebSocket) => void = () => {}) {
  const offers: (string | undefined)[] = [];
  const sockets = new WebSocketServer({ noServer: true });
  const open: WebSocket[] = [];
  const server = createServer();
  server.on("upgrade", (asked, stream, head) => {
    offers.push(asked.headers["sec-websocket-protocol"]);
    const answer = answers[Math.min(offers.length, answers.length) - 1]!;
    if (typeof answer === "number") {
      stream.end(`HTTP/1.1 ${answer} No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
      return;
    }
    delete asked.headers["sec-websocket-protocol"];
    delete asked.headers["sec-websocket-extensions"];
    sockets.once("headers", (headers: string[]) => {
      if (answer.protocol !== null) headers.push(`Sec-WebSocket-Protocol: ${answer.protocol}`);
      if (answer.extensions !== null) headers.push(`Sec-WebSocket-Extensions: ${answer.extensions}`);
    });
    sockets.handleUpgrade(asked, stream, head, (socket) => {
      open.push(socket);
      socket.on("error", () => {});
      opened(socket);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const close = () => {
    for (const socket of open) socket.terminate();
    server.close();
  };
  return { url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}`, offers, open, close };
}
