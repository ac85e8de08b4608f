// The socket: opened again when it breaks, and judged by what arrives, not by its own state.

import { ServerClock } from "./wire.js";

const PING_MS = 1000;
// The server speaks every second; a stopped server or a dead link leaves the socket "open" for minutes.
const SILENT_MS = 2500;
// A socket without a message for so long is given up: the system reports a dead one late, if at all.
const GIVEN_UP_MS = 5000;
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 4000;
const CLOSED_OVER = 4000;

export class Link extends EventTarget {
  clock = new ServerClock();
  receivedMs = -Infinity;
  #socket = null;
  #last = ""; // the server's text on its end
  #openedMs = -Infinity;
  #admitted = false;
  #waitMs = FIRST_WAIT_MS;
  /** Why the server turned this page away; empty while it did not. */
  refused = "";
  /** The server's text when it ended because there is no more to show; empty until then. */
  over = "";

  constructor(url, token) {
    super();
    this.url = url;
    this.token = token;
    setInterval(() => {
      if (performance.now() - Math.max(this.receivedMs, this.#openedMs) > GIVEN_UP_MS) this.#lose();
      else this.send({ op: "ping" });
    }, PING_MS);
  }

  /** Whether there is no link, as far as is known; a closed socket is none at once. */
  isSilent(nowMs) {
    return !this.#admitted || nowMs - this.receivedMs > SILENT_MS;
  }

  open() {
    const socket = new WebSocket(this.url);
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    this.#openedMs = performance.now();
    socket.onopen = () => socket.send(JSON.stringify({ op: "hello", token: this.token }));
    socket.onmessage = ({ data }) => this.#receive(data);
    socket.onclose = ({ code, reason }) => {
      if (code === CLOSED_OVER) this.over = this.#last || reason;
      this.#lose();
    };
  }

  /** Send a message; false where there is no link to send it on, or nothing arrived lately. By its time the server
   * recognises a message that lay in a dead socket. */
  send(message) {
    const nowMs = performance.now();
    if (this.isSilent(nowMs) || this.#socket.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(JSON.stringify({ ...message, t: nowMs }));
    return true;
  }

  #lose() {
    const socket = this.#socket;
    if (!socket) return; // the next one is due
    this.#socket = socket.onopen = socket.onmessage = socket.onclose = null;
    const had = this.#admitted;
    this.#admitted = false;
    socket.close();
    if (had) this.dispatchEvent(new Event("lost"));
    setTimeout(() => this.open(), this.#waitMs);
    this.#waitMs = Math.min(2 * this.#waitMs, LONGEST_WAIT_MS);
  }

  #receive(data) {
    this.receivedMs = performance.now();
    if (data instanceof ArrayBuffer) {
      this.dispatchEvent(new CustomEvent("frame", { detail: data }));
      return;
    }
    const message = JSON.parse(data);
    if (message.op === "pong") this.clock.add(message.t, message.server_ns, performance.now());
    else if (message.op === "over") this.#last = message.message;
    else if (message.op === "refused") this.refused = message.message;
    else if (message.op === "hello") {
      this.#admitted = true;
      this.refused = this.over = this.#last = "";
      this.#waitMs = FIRST_WAIT_MS;
      this.clock = new ServerClock();
      this.send({ op: "ping" });
    }
    this.dispatchEvent(new CustomEvent("message", { detail: message }));
  }
}
