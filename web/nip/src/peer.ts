/** One end of an open connection: messages of NIP-01, in text or compressed. */
import type WebSocket from "ws";
import { decode, encode, type SharedEvent } from "./message.js";
import { Refused, type Dictionary } from "./zstd.js";

/** Bytes that wait for a peer that does not read; with more the connection ends. */
const MOST_WAITING = 32 << 20;

export interface Handlers {
  /** A message of NIP-01, not parsed yet. */
  message(json: string, peer: Peer): void;
  /** The connection has ended; `refused` if this end closed because of what it received. */
  closed?(code: number, refused: Refused | undefined): void;
}

export class Peer {
  /** Relay: the client has sent AUTH, so that it shares no compressed bytes. */
  authenticated = false;
  #refused: Refused | undefined;

  constructor(
    readonly socket: WebSocket,
    /** Undefined where the connection speaks text. */
    readonly dictionary: Dictionary | undefined,
    limit: number,
    handlers: Handlers,
  ) {
    socket.on("message", (data, isBinary) => {
      if (this.#refused) return;
      try {
        const bytes = data as Buffer;
        if (dictionary && !isBinary) throw new Refused(1003, "a text message");
        handlers.message(dictionary ? decode(bytes, dictionary, limit) : bytes.toString(), this);
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        this.#refused = error;
        socket.close(error.code, error.message.slice(0, 100));
      }
    });
    // The library closes by itself; what it found is kept where the draft has it, too.
    socket.on("error", (error: Error & { code?: string }) => {
      if (error.code === "WS_ERR_UNSUPPORTED_MESSAGE_LENGTH") this.#refused ??= new Refused(1009, error.message);
    });
    socket.on("close", (code) => handlers.closed?.(this.#refused?.code ?? code, this.#refused));
  }

  send(json: string): void {
    this.#write(this.dictionary ? encode(json, this.dictionary) : json);
  }

  sendEvent(event: SharedEvent, subscription: string): void {
    this.#write(
      this.dictionary
        ? event.encode(subscription, this.dictionary, this.authenticated)
        : event.text(subscription),
    );
  }

  #write(data: Uint8Array | string): void {
    if (this.socket.bufferedAmount > MOST_WAITING) this.socket.terminate();
    else if (this.socket.readyState === this.socket.OPEN) this.socket.send(data);
  }
}
