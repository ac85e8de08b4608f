import assert from "node:assert/strict";
import { test } from "node:test";
import { ServerClock, decodeFrame, selectMessage } from "../../../efftam_operator/web/wire.js";


function frame({ stamp = 1795298319517108788n, sent = 1795298319541000001n, seq = 812, width = 1280, height = 720, version = 1, codec = 1, magic = "EFTM" } = {}) {
  const buffer = new ArrayBuffer(34), data = new DataView(buffer);
  [...magic].forEach((c, i) => data.setUint8(i, c.charCodeAt(0)));
  data.setUint8(4, version);
  data.setUint8(5, codec);
  data.setUint16(6, width, true);
  data.setUint16(8, height, true);
  data.setBigUint64(10, stamp, true);
  data.setBigUint64(18, sent, true);
  data.setUint32(26, seq, true);
  [..."JPEG"].forEach((c, i) => data.setUint8(30 + i, c.charCodeAt(0)));
  return buffer;
}

test("a frame keeps every nanosecond of its stamp", () => {
  const read = decodeFrame(frame());
  assert.equal(read.stamp, 1795298319517108788n);
  assert.equal(read.sentNs, 1795298319541000001n);
  assert.equal(read.seq, 812);
  assert.deepEqual([read.width, read.height], [1280, 720]);
  assert.equal(String.fromCharCode(...read.payload), "JPEG");
});

test("neighbouring stamps stay different, which Numbers would not", () => {
  const stamp = 1795298319517108788n;
  assert.equal(Number(stamp), Number(stamp + 1n));
  assert.notEqual(decodeFrame(frame({ stamp })).stamp, decodeFrame(frame({ stamp: stamp + 1n })).stamp);
});

test("what is no frame of this version is refused", () => {
  for (const wrong of [{ magic: "EFTX" }, { version: 2 }, { codec: 9 }]) assert.throws(() => decodeFrame(frame(wrong)));
  assert.throws(() => decodeFrame(new ArrayBuffer(30)));
  assert.throws(() => decodeFrame(new ArrayBuffer(0)));
});

test("a selection carries the stamp as text and image px", () => {
  const box = selectMessage("c1", 1795298319517108789n, { box: { x: 1.5, y: 2, width: 3, height: 4 } });
  assert.deepEqual(box, { op: "select", id: "c1", stamp: "1795298319517108789", target: 0, kind: "box", box: [1.5, 2, 3, 4] });
  const point = selectMessage("c2", 5n, { points: [{ x: 7, y: 8 }], labels: [1] });
  assert.deepEqual(point, { op: "select", id: "c2", stamp: "5", target: 0, kind: "points", points: [[7, 8]], labels: [1] });
});

const ns = (ms) => (BigInt(Math.round(ms * 1000)) * 1000n).toString();

test("the age of a picture doesn't depend on the page's clock", () => {
  for (const wrongMs of [0, 3_600_000, -3_600_000]) {
    const clock = new ServerClock();
    // The server's clock reads 1e12 ms + page time - wrongMs.
    clock.add(5000, ns(1e12 + 5010 - wrongMs), 5020);
    const age = clock.ageMs(BigInt(ns(1e12 + 5900 - wrongMs)), 6000);
    assert.ok(Math.abs(age - 100) < 0.01, `${age}`);
  }
});

test("the answer with the shortest way is believed", () => {
  const clock = new ServerClock();
  clock.add(0, ns(1e12 + 10), 20);
  clock.add(1000, ns(1e12 + 1000 + 390), 1400); // 390 ms there, 10 back
  assert.ok(Math.abs(clock.at(2000) - (1e12 + 2000)) < 0.01);
  // Of the last ten: the clocks may drift apart.
  for (let i = 0; i < 9; i++) clock.add(3000, ns(1e12 + 5020), 3040);
  assert.ok(Math.abs(clock.at(4000) - (1e12 + 6000)) < 0.01);
});

test("an unknown age is unknown, never a false number", () => {
  const clock = new ServerClock();
  assert.equal(clock.ageMs(5n, 100), null);
  clock.add(0, ns(1e12), 2);
  assert.equal(clock.ageMs(5_000_000_000n, 100), null); // simulated time
  assert.equal(clock.ageMs(BigInt(ns(1e12 + 60_000)), 100), null); // from the future
});

