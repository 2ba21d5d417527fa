/** A client: opens connections, falls back to text, fetches dictionaries. */
import WebSocket from "ws";
import { dictionaryOf, offer, PLAIN } from "./handshake.js";
import { Peer, type Handlers } from "./peer.js";
import { Dictionary, MOST_DICTIONARY } from "./zstd.js";

export interface ClientOptions extends Handlers {
  /** What the client holds, best first. Default: none, which is NIP-01. */
  dictionaries?: Dictionary[];
  /** The longest message, in bytes, compressed or not. Default: 1 MiB. */
  limit?: number;
}

/** Statuses that another request does not change. */
const FINAL_STATUSES = [401, 403, 429];
/** How long a handshake or a request may take. */
const PATIENCE_MS = 10_000;
const PLAIN_FOR_MS = 3_600_000;
/** A relay may name more; the first ones are fetched. */
const MOST_DICTIONARIES = 16;
/** Relays that broke the agreement, until when (ms since 1970) they are asked for text. */
const plainUntil = new Map<string, number>();

class Status extends Error {
  constructor(readonly status: number) {
    super(`the relay refused the connection with status ${status}`);
  }
}

/** Connects to a relay's URL. Rejects if it cannot be reached or breaks the handshake. */
export async function connect(url: string, options: ClientOptions): Promise<Peer> {
  const dictionaries = (plainUntil.get(url) ?? 0) > Date.now() ? [] : (options.dictionaries ?? []);
  try {
    return await open(url, dictionaries, options);
  } catch (error) {
    const status = error instanceof Status ? error.status : 0;
    if (dictionaries.length === 0 || status < 400 || status > 499 || FINAL_STATUSES.includes(status)) throw error;
    return open(url, [], options);
  }
}

function open(url: string, dictionaries: Dictionary[], options: ClientOptions): Promise<Peer> {
  const limit = options.limit ?? 1 << 20;
  const tokens = dictionaries.length > 0 ? offer(dictionaries) : [];
  const socket = new WebSocket(url, tokens, { maxPayload: limit, handshakeTimeout: PATIENCE_MS });
  return new Promise((resolve, reject) => {
    socket.on("error", reject);
    socket.once("unexpected-response", (request, response) => {
      request.destroy();
      reject(new Status(response.statusCode ?? 0));
    });
    socket.once("upgrade", (response) => {
      // The library would reject an answer without a token, which the draft reads as text.
      if (dictionaries.length > 0) response.headers["sec-websocket-protocol"] ??= PLAIN;
    });
    socket.once("open", () => {
      const dictionary = dictionaryOf(socket.protocol, dictionaries);
      if (dictionary && socket.extensions !== "") {
        socket.terminate();
        reject(new Error(`answered with ${socket.protocol} and ${socket.extensions}, which exclude each other`));
        return;
      }
      const closed: Handlers["closed"] = (code, refused) => {
        if (refused && dictionary) plainUntil.set(url, Date.now() + PLAIN_FOR_MS);
        options.closed?.(code, refused);
      };
      resolve(new Peer(socket, dictionary, limit, { message: options.message, closed }));
    });
  });
}

/** The dictionaries that a relay names in its NIP-11 document. Rejects if it serves others. */
export async function fetchDictionaries(url: string): Promise<Dictionary[]> {
  const http = url.replace(/^ws/, "http");
  const text = await fetchBytes(http, { accept: "application/nostr+json" });
  const named: unknown = JSON.parse(text.toString())?.wire?.dictionaries ?? {};
  const found: Dictionary[] = [];
  for (const [id, entry] of Object.entries(named as object).slice(0, MOST_DICTIONARIES)) {
    const path = `/.well-known/nostr/dictionary/${encodeURIComponent(id)}`;
    const dictionary = new Dictionary(await fetchBytes(new URL(path, http).href));
    if (dictionary.id !== id || dictionary.sha256 !== entry?.sha256) {
      throw new Error(`${http} serves other bytes as dictionary ${id}: their SHA-256 is ${dictionary.sha256}`);
    }
    found.push(dictionary);
  }
  return found;
}

/** A body of at most 1 MiB. */
async function fetchBytes(url: string, headers: Record<string, string> = {}): Promise<Buffer> {
  const response = await fetch(url, { headers, signal: AbortSignal.timeout(PATIENCE_MS) });
  if (response.status !== 200) throw new Error(`${url} answers with status ${response.status}`);
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.length;
    if (size > MOST_DICTIONARY) throw new Error(`${url} has more than ${MOST_DICTIONARY} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
