// The web socket to the server. It is opened again when it breaks. Whether it works is judged by the messages that arrive.

import { ServerClock } from "./wire.js";

const PING_MS = 1000;
// The link counts as silent after this time without a message. The server sends one every second. The state of the socket
// does not show it: for minutes it stays "open" after the server or the network has stopped.
const SILENT_MS = 2500;
// A socket without a message for this time is closed, and another one is opened.
const GIVEN_UP_MS = 5000;
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 4000;
const CLOSED_OVER = 4000;

export class Link extends EventTarget {
  clock = new ServerClock();
  receivedMs = -Infinity;
  #socket = null;
  // Text of the server's last message "over".
  #last = "";
  #openedMs = -Infinity;
  #admitted = false;
  #waitMs = FIRST_WAIT_MS;
  /** Why the server refused this page; empty if it did not. */
  refused = "";
  /** The text that the server has sent before it ended, because there is nothing more to show; else empty. */
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

  /** Whether there is no working link: the server has not admitted the page, or nothing has arrived for SILENT_MS. */
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

  /** Send a message, with the time of sending. Returns false, and sends nothing, if there is no working link. The time shows
   * the server when a message was delayed for long in a dead socket. */
  send(message) {
    const nowMs = performance.now();
    if (this.isSilent(nowMs) || this.#socket.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(JSON.stringify({ ...message, t: nowMs }));
    return true;
  }

  #lose() {
    const socket = this.#socket;
    // Without a socket the loss was handled already, and another socket will be opened.
    if (!socket) return;
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
