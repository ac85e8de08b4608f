// The link over a stand-in socket: what is remembered after what.
import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { Link } from "../../../efftam_ros/operator/web/link.js";

const sockets = [];
globalThis.WebSocket = class {
  static OPEN = 1;
  readyState = 1;
  sent = [];
  constructor() { sockets.push(this); }
  send(text) { this.sent.push(JSON.parse(text)); }
  close() { this.readyState = 3; }
};
globalThis.CustomEvent ??= class extends Event { constructor(type, { detail }) { super(type); this.detail = detail; } };

mock.timers.enable({ apis: ["setInterval", "setTimeout"] });
let nowMs = 1000;
mock.method(performance, "now", () => nowMs);

function opened() {
  const link = new Link("ws://x/ws", "");
  link.open();
  return link;
}
const socket = () => sockets.at(-1);
const hear = (message) => socket().onmessage({ data: JSON.stringify(message) });

test("the clock of the last connection is not believed on the next", () => {
  const link = opened();
  hear({ op: "hello" });
  hear({ op: "pong", t: nowMs, server_ns: "1000000000000000000" });
  assert.equal(link.clock.ageMs(1000000000000000000n, nowMs), 0);
  socket().onclose({ code: 1006, reason: "" });
  mock.timers.tick(5000);
  nowMs += 5000;
  hear({ op: "hello" }); // another server, or the same with its clock set
  assert.equal(link.clock.ageMs(1000000000000000000n, nowMs), null);
  hear({ op: "pong", t: nowMs, server_ns: "2000000000000000000" });
  assert.equal(link.clock.ageMs(2000000000000000000n, nowMs), 0);
});

test("a closed socket is no link at once, and nothing is sent on it", () => {
  const link = opened();
  assert.ok(link.isSilent(nowMs));
  hear({ op: "hello" });
  assert.ok(!link.isSilent(nowMs));
  assert.ok(link.send({ op: "steer", action: "stop" }));
  socket().onclose({ code: 1006, reason: "" });
  assert.ok(link.isSilent(nowMs));
  assert.ok(!link.send({ op: "steer", action: "stop" }));
});

test("an open socket without a word for 2.5 s is no link", () => {
  const link = opened();
  hear({ op: "hello" });
  assert.ok(!link.isSilent(nowMs + 2500));
  assert.ok(link.isSilent(nowMs + 2501));
});
