// One subscription on a WebSocket, as a client has it.

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
      const { socket } = this;
      socket.onopen = () => resolve(socket);
      socket.onerror = () => reject(new Error(`no connection to ${socket.url}`));
      socket.onclose = ({ code, reason }) => this.waiting?.reject(new Error(`the relay closed: ${code} ${reason}`));
      socket.onmessage = ({ data }) => this.receive(data);
    });
  }

  /** The stored events, and in how many messages they and EOSE came. */
  request() {
    return new Promise((resolve, reject) => {
      this.waiting = { events: [], messages: 0, resolve, reject };
      this.socket.send(typeof this.frame === "string" ? this.frame : Uint8Array.from(this.frame));
    });
  }

  receive(data) {
    const { waiting } = this;
    try {
      const [verb, , body] = this.read(typeof data === "string" ? data : new Uint8Array(data));
      waiting.messages += 1;
      if (verb === "EVENT") waiting.events.push(body);
      else if (verb === "EVENTS") for (const event of body) waiting.events.push(event);
      else if (verb === "EOSE") waiting.resolve(waiting);
      else throw new Error(`the relay said ${verb}: ${body}`);
    } catch (error) {
      waiting.reject(error);
    }
  }

  close() {
    this.socket.onclose = null;
    this.socket.close();
  }
}
