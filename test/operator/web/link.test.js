// The link over a stand-in socket: what is remembered after what.
import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { Link } from "../../../efftam_operator/web/link.js";
import { pick, randomOf } from "./numbers.js";

let sockets = [];
globalThis.WebSocket = class {
  static OPEN = 1;
  readyState = 1;
  sent = [];
  constructor() { sockets.push(this); }
  send(text) { this.sent.push(JSON.parse(text)); }
  close() { this.readyState = 3; }
};
globalThis.CustomEvent ??= class extends Event { constructor(type, { detail }) { super(type); this.detail = detail; } };

let nowMs = 1000;
mock.method(performance, "now", () => nowMs);

function opened() {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setInterval", "setTimeout"] });
  sockets = [];
  const link = new Link("ws://x/ws", "secret");
  link.open();
  socket().onopen();
  return link;
}
const socket = () => sockets.at(-1);
const hear = (message) => socket().onmessage({ data: JSON.stringify(message) });
function pass(ms) {
  nowMs += ms;
  mock.timers.tick(ms);
}

/** The model: what is known of this connection, and how many there were since one was admitted. */
test("whatever came before, an admitted page knows nothing of it", () => {
  const random = randomOf(3);
  for (let run = 0; run < 200; run++) {
    const link = opened();
    let failures = 0, last = "", refused = "", over = "", isAdmitted = false, hasClock = false;
    const serverNs = () => BigInt(1000 + sockets.length) * 10n ** 15n + BigInt(nowMs) * 1000000n; // each has its own clock
    for (let step = 0; step < 12; step++) {
      const what = pick(random, ["hello", "hello", "pong", "refused", "over", "closed", "ended", "silent"]);
      pass(100);
      if (["closed", "ended", "silent"].includes(what)) {
        const count = sockets.length, lost = socket(), receivedMs = nowMs;
        if (what === "ended") over = last || "ended";
        if (what !== "silent") lost.onclose({ code: what === "ended" ? 4000 : 1006, reason: "ended" });
        while (lost.readyState === 1) pass(100);
        assert.ok(nowMs - receivedMs <= 6000);
        assert.ok(link.isSilent(nowMs) && !link.send({ op: "steer", action: "stop" }));
        pass(Math.min(500 * 2 ** failures, 4000) - 1);
        assert.equal(sockets.length, count);
        pass(1);
        assert.equal(sockets.length, count + 1);
        socket().onopen();
        assert.deepEqual(socket().sent, [{ op: "hello", token: "secret" }]);
        failures += 1;
        isAdmitted = false;
      } else {
        hear({ op: what, message: `${what} ${step}`, t: nowMs, server_ns: serverNs().toString() });
        if (what === "pong") hasClock = isAdmitted;
        if (what === "refused") refused = `refused ${step}`;
        if (what === "over") last = `over ${step}`;
        if (what === "hello") [failures, last, refused, over, isAdmitted, hasClock] = [0, "", "", "", true, false];
        assert.equal(link.isSilent(nowMs), !isAdmitted);
        assert.equal(link.send({ op: "ack" }), isAdmitted);
      }
      assert.deepEqual([link.refused, link.over], [refused, over]);
      if (isAdmitted) assert.equal(link.clock.ageMs(serverNs(), nowMs), hasClock ? 0 : null);
    }
  }
});

test("an open socket without a word for 2.5 s is no link", () => {
  const link = opened();
  hear({ op: "hello" });
  assert.ok(!link.isSilent(nowMs + 2500));
  assert.ok(link.isSilent(nowMs + 2501));
});
