// Pictures on their way to the screen, over stand-ins of the browser: what is acknowledged, shown and freed.
import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { pick, randomOf } from "./numbers.js";
import { pictureMessage } from "./pictures.js";

let seen;
globalThis.document = { addEventListener: (type, listener) => { seen = listener; }, hidden: false };
globalThis.CustomEvent ??= class extends Event { constructor(type, { detail }) { super(type); this.detail = detail; } };
const { Frames } = await import("../../../efftam_operator/web/frames.js");

let nowMs = 0;
mock.method(performance, "now", () => nowMs);
const decoding = []; // what the browser works on

globalThis.createImageBitmap = () => new Promise((resolve, reject) => decoding.push({ resolve, reject }));
const settle = () => new Promise((resolve) => setImmediate(resolve));

const message = (seq) => pictureMessage(seq, seq);

/** The model: what waits, what is decoded, what is shown, and the bitmaps that are not freed. */
test("every picture is acknowledged once, the newest is shown, and what was shown before is freed", async () => {
  const random = randomOf(7);
  for (let run = 0; run < 60; run++) {
    const acknowledged = [], open = new Set(), whole = [];
    const frames = new Frames((seq) => acknowledged.push(seq));
    frames.addEventListener("whole", ({ detail }) => whole.push(detail));
    let seq = 0, waiting = null, work = null, shown = null, smallMs = null, wanted = [];
    const next = () => {
      if (work !== null || waiting === null || document.hidden) return;
      [work, waiting] = [waiting, null];
    };
    for (let step = 0; step < 30; step++) {
      nowMs += 100;
      const what = pick(random, ["add", "add", "small", "large", "bad", "hide", "whole", "release", "forget"]);
      if (what === "add") {
        frames.add(message(++seq));
        if (waiting !== null) wanted.push(waiting.seq);
        waiting = { seq, arrivedMs: nowMs };
        next();
      } else if (work !== null && ["small", "large", "bad"].includes(what)) {
        const { resolve, reject } = decoding.shift(), width = what === "small" ? 320 : 640;
        const bitmap = { width, height: width * 9 / 16, close: () => assert.ok(open.delete(bitmap)) };
        if (what === "bad") reject(new Error("no picture"));
        else {
          open.add(bitmap);
          resolve(bitmap);
          shown = { seq: work.seq, bitmap };
          smallMs = what === "small" ? smallMs ?? work.arrivedMs : null;
        }
        wanted.push(work.seq);
        work = null;
        next();
      } else if (what === "hide") {
        document.hidden = !document.hidden;
        seen();
        next();
      } else if (what === "whole" && work === null) {
        frames.add(message(0));
        const bitmap = { width: 640, height: 360, close: () => assert.ok(open.delete(bitmap)) };
        open.add(bitmap);
        decoding.pop().resolve(bitmap);
        wanted.push(0);
        await settle();
        assert.equal(whole.at(-1).bitmap, bitmap);
        frames.release(bitmap); // drawn on
        assert.ok(open.has(bitmap));
      } else if (what === "release") {
        frames.release(null);
        assert.deepEqual([...open], shown === null ? [] : [shown.bitmap]);
      } else if (what === "forget") {
        frames.forget(); // a new connection counts from the beginning
        [waiting, smallMs] = [null, null];
      }
      await settle();
      assert.deepEqual(acknowledged, wanted);
      assert.equal(decoding.length, work === null ? 0 : 1);
      assert.equal(frames.shown?.stamp, shown === null ? undefined : BigInt(shown.seq));
      assert.equal(frames.shown?.isSmall ?? false, shown !== null && shown.bitmap.width === 320);
      assert.equal(frames.smallMs, smallMs);
    }
    document.hidden = false;
    decoding.length = 0;
  }
});
