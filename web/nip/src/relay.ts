/** A small relay in memory: NIP-01, NIP-11 and the draft. It checks ids, not signatures. */
import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { WebSocketServer } from "ws";
import { choose, dictionaryOf, PLAIN, tokenOf } from "./handshake.js";
import { SharedEvent } from "./message.js";
import { Peer } from "./peer.js";
import type { Dictionary } from "./zstd.js";

export interface RelayOptions {
  dictionaries: Dictionary[];
  /** `limitation.max_message_length` in bytes. Default: 1 MiB. */
  limit?: number;
  /** Default: any free port. */
  port?: number;
}

interface Event {
  id: string;
  pubkey: string;
  created_at: number;
  kind: number;
  tags: string[][];
  content: string;
  sig: string;
}

/** A filter of NIP-01; a key that is not there matches everything. */
type Filter = Record<string, unknown>;

interface Stored {
  event: Event;
  shared: SharedEvent;
}

/** Bounds on what peers make the relay keep. */
const MOST_STORED = 256 << 20;
const MOST_SUBSCRIPTIONS = 64;
const MOST_FILTERS = 16;

const isList = (value: unknown): value is unknown[] => Array.isArray(value);
const isText = (value: unknown): value is string => typeof value === "string";
const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !isList(value);

/** The event with its seven fields alone; undefined if a field is missing or the id is another event's. */
function eventOf(value: unknown): Event | undefined {
  if (!isObject(value)) return undefined;
  const { id, pubkey, created_at, kind, tags, content, sig } = value as unknown as Event;
  const shaped =
    [id, pubkey, content, sig].every(isText) &&
    [created_at, kind].every(Number.isSafeInteger) &&
    isList(tags) &&
    tags.every((tag) => isList(tag) && tag.every(isText));
  if (!shaped) return undefined;
  const hashed = createHash("sha256").update(JSON.stringify([0, pubkey, created_at, kind, tags, content]));
  return hashed.digest("hex") === id ? { id, pubkey, created_at, kind, tags, content, sig } : undefined;
}

function matches(filter: Filter, event: Event): boolean {
  return Object.entries(filter).every(([key, wanted]) => {
    if (key === "limit") return true;
    if (key === "since") return typeof wanted === "number" && event.created_at >= wanted;
    if (key === "until") return typeof wanted === "number" && event.created_at <= wanted;
    if (!isList(wanted)) return false;
    if (key === "ids") return wanted.includes(event.id);
    if (key === "authors") return wanted.includes(event.pubkey);
    if (key === "kinds") return wanted.includes(event.kind);
    return key[0] === "#" && event.tags.some(([name, value]) => name === key.slice(1) && wanted.includes(value));
  });
}

export class Relay {
  readonly #http: Server;
  readonly #stored = new Map<string, Stored>();
  #storedBytes = 0;
  readonly #subscriptions = new Map<Peer, Map<string, Filter[]>>();

  private constructor(readonly options: RelayOptions) {
    const limit = options.limit ?? 1 << 20;
    const sockets = new WebSocketServer({ noServer: true, maxPayload: limit, perMessageDeflate: true });
    this.#http = createServer((request, response) => this.#answer(request, response, limit));
    this.#http.on("upgrade", (request, socket, head) => {
      const token = choose(request.headers["sec-websocket-protocol"], options.dictionaries);
      const dictionary = token && dictionaryOf(token, options.dictionaries);
      // The library answers with what is left of the headers.
      if (token) request.headers["sec-websocket-protocol"] = token;
      else delete request.headers["sec-websocket-protocol"];
      if (dictionary) delete request.headers["sec-websocket-extensions"];
      sockets.handleUpgrade(request, socket, head, (opened) => {
        const peer = new Peer(opened, dictionary || undefined, limit, {
          message: (json, from) => this.#receive(json, from),
          closed: () => this.#subscriptions.delete(peer),
        });
        this.#subscriptions.set(peer, new Map());
      });
    });
  }

  /** Listens on 127.0.0.1. */
  static async listen(options: RelayOptions): Promise<Relay> {
    const relay = new Relay(options);
    await new Promise<void>((resolve, reject) => {
      relay.#http.once("error", reject);
      relay.#http.listen(options.port ?? 0, "127.0.0.1", resolve);
    });
    return relay;
  }

  get url(): string {
    return `ws://127.0.0.1:${(this.#http.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    for (const peer of this.#subscriptions.keys()) peer.socket.terminate();
    await new Promise((resolve) => this.#http.close(resolve));
  }

  #answer(request: IncomingMessage, response: ServerResponse, limit: number): void {
    const { dictionaries } = this.options;
    const dictionary = dictionaries.find(({ id }) => request.url === `/.well-known/nostr/dictionary/${id}`);
    const found = dictionary !== undefined || request.url === "/";
    const type = dictionary ? "application/octet-stream" : "application/nostr+json";
    response.writeHead(found ? 200 : 404, { "Content-Type": type, "Access-Control-Allow-Origin": "*" });
    const wire = {
      tokens: [PLAIN, ...dictionaries.map(tokenOf)],
      dictionaries: Object.fromEntries(
        dictionaries.map(({ id, sha256, bytes }) => [id, { sha256, bytes: bytes.length }]),
      ),
    };
    const document = { supported_nips: [1, 11], limitation: { max_message_length: limit }, wire };
    response.end(found ? (dictionary?.bytes ?? JSON.stringify(document)) : undefined);
  }

  #receive(json: string, peer: Peer): void {
    const say = (...message: unknown[]) => peer.send(JSON.stringify(message));
    let message: unknown;
    try {
      message = JSON.parse(json);
    } catch {
      return say("NOTICE", "error: a message that is no JSON");
    }
    const [type, first, ...rest] = isList(message) ? message : [];
    const own = this.#subscriptions.get(peer)!;
    const id = isObject(first) && isText(first["id"]) ? first["id"] : undefined;
    if (type === "EVENT" && id !== undefined) {
      const event = eventOf(first);
      if (!event) say("OK", id, false, "invalid: not the event of this id");
      else say("OK", id, true, this.#store(event) ? "" : "duplicate: already here");
    } else if (type === "REQ" && typeof first === "string" && rest.length <= MOST_FILTERS && rest.every(isObject)) {
      if (!own.has(first) && own.size === MOST_SUBSCRIPTIONS) {
        return say("CLOSED", first, `error: more than ${MOST_SUBSCRIPTIONS} subscriptions`);
      }
      own.set(first, rest);
      for (const stored of this.#find(rest)) peer.sendEvent(stored.shared, first);
      say("EOSE", first);
    } else if (type === "CLOSE" && typeof first === "string") {
      own.delete(first);
    } else if (type === "AUTH") {
      peer.authenticated = true;
      say("OK", id ?? "", false, "error: nothing here needs AUTH");
    } else {
      say("NOTICE", "error: neither EVENT, REQ, CLOSE nor AUTH of NIP-01");
    }
  }

  /** False if the event is stored already. */
  #store(event: Event): boolean {
    if (this.#stored.has(event.id)) return false;
    const shared = new SharedEvent(event);
    const ephemeral = event.kind >= 20_000 && event.kind < 30_000;
    if (!ephemeral) {
      this.#stored.set(event.id, { event, shared });
      this.#storedBytes += shared.size;
    }
    for (const [id, oldest] of this.#stored) {
      if (this.#storedBytes <= MOST_STORED) break;
      this.#stored.delete(id);
      this.#storedBytes -= oldest.shared.size;
    }
    for (const [peer, subscriptions] of this.#subscriptions) {
      for (const [id, filters] of subscriptions) {
        if (filters.some((filter) => matches(filter, event))) peer.sendEvent(shared, id);
      }
    }
    return true;
  }

  #find(filters: Filter[]): Iterable<Stored> {
    const newest = [...this.#stored.values()].sort(({ event: a }, { event: b }) =>
      b.created_at - a.created_at || (a.id < b.id ? -1 : 1),
    );
    const found = filters.flatMap((filter) => {
      const most = Number.isSafeInteger(filter["limit"]) ? Math.max(0, Number(filter["limit"])) : undefined;
      return newest.filter(({ event }) => matches(filter, event)).slice(0, most);
    });
    return new Set(found);
  }
}
