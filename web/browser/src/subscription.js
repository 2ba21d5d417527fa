// One subscription on a WebSocket, as a client has it.

/** How long a relay may be silent. */
const SILENCE_MS = 10_000;

export class Subscription {
  /** `read` turns a frame into a message; `frame` is the REQ, in the format that the token names. */
  constructor(read, url, token, frame) {
    this.read = read;
    this.frame = frame;
    this.socket = new WebSocket(url, [token]);
    this.socket.binaryType = "arraybuffer";
    this.waiting = null;
  }

  open() {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.socket.onerror(), SILENCE_MS);
      this.socket.onopen = () => {
        clearTimeout(timer);
        resolve({ protocol: this.socket.protocol, extensions: this.socket.extensions });
      };
      this.socket.onerror = () => {
        clearTimeout(timer);
        reject(new Error(`no connection to ${this.socket.url}`));
      };
      this.socket.onclose = ({ code, reason }) => this.fail(new Error(`the relay closed: ${code} ${reason}`));
      this.socket.onmessage = ({ data }) => this.receive(data);
    });
  }

  /** The stored events, and in how many messages they and EOSE came. */
  request() {
    const done = this.until((verb) => verb === "EOSE");
    this.socket.send(typeof this.frame === "string" ? this.frame : Uint8Array.from(this.frame));
    return done;
  }

  /** The next live events. */
  live(count) {
    return this.until((_, events) => events.length >= count);
  }

  until(isEnd) {
    return new Promise((resolve, reject) => {
      this.waiting = { events: [], messages: 0, isEnd, resolve, reject, timer: null };
      this.watch(-1);
    });
  }

  /** Ends a wait in which no message came since the last look; a timer for each message would cost. */
  watch(before) {
    const { messages } = this.waiting;
    if (messages === before) this.fail(new Error(`the relay was silent for ${SILENCE_MS} ms`));
    else this.waiting.timer = setTimeout(() => this.watch(messages), SILENCE_MS);
  }

  receive(data) {
    const { waiting } = this;
    if (!waiting) return;
    let message;
    try {
      message = this.read(typeof data === "string" ? data : new Uint8Array(data));
    } catch (error) {
      this.fail(error);
      return;
    }
    const verb = message[0];
    waiting.messages += 1;
    if (verb === "EVENT") waiting.events.push(message[2]);
    else if (verb === "EVENTS") for (const event of message[2]) waiting.events.push(event);
    else if (verb !== "EOSE") this.fail(new Error(`the relay said ${JSON.stringify(message)}`));
    if (waiting.isEnd(verb, waiting.events)) {
      clearTimeout(waiting.timer);
      this.waiting = null;
      waiting.resolve(waiting);
    }
  }

  fail(error) {
    const { waiting } = this;
    this.waiting = null;
    if (!waiting) return;
    clearTimeout(waiting.timer);
    waiting.reject(error);
  }

  close() {
    this.socket.onclose = null;
    this.socket.close();
  }
}
