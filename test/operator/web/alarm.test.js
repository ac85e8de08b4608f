// Loss and return: what is said and heard after what.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Alarm } from "../../../efftam_operator/web/alarm.js";

globalThis.navigator ??= {};
let tones = []; // their frequencies
globalThis.AudioContext = class {
  currentTime = 0;
  destination = null;
  close() {}
};
globalThis.OscillatorNode = class {
  constructor(context, { frequency }) { tones.push(frequency); }
  connect() {}
  start() {}
  stop() {}
};

/** `steps`: state and selection, a second apart, each unseen for so many seconds as it is far in the list. */
function after(...steps) {
  const alarm = new Alarm();
  assert.ok(alarm.toggle());
  assert.deepEqual(tones, [660, 880]); // a sample
  tones = [];
  steps.forEach((step, i) => {
    const [state, selection] = step.split(" ");
    alarm.see(state, selection && { id: 0, selection: Number(selection) }, i, 1000 * i);
  });
  const heard = tones.length / 2;
  tones = [];
  const { title, text = "", seconds } = alarm.banner(1000 * (steps.length - 1)) ?? {};
  return [title, title === "LOST" ? seconds : text.split(";")[0], heard];
}

test("a loss is said while it lasts, a return of what was lost for five seconds", () => {
  for (const [steps, ...wanted] of [
    [["TRACKING 1"], undefined, "", 0],
    [["TRACKING 1", "LOST 1"], "LOST", 1, 2],
    [["TRACKING 1", "LOST 1", "LOST 1"], "LOST", 2, 2],
    [["LOST 1", "UNKNOWN", "UNKNOWN"], "LOST", 0, 2],
    [["TRACKING 1", "LOST 1", "LOST 1", "TRACKING 1"], "SEEN AGAIN", "after 2 s", 3],
    [["LOST 1", "TRACKING 1", ...Array(5).fill("TRACKING 1")], "SEEN AGAIN", "after 0 s", 3],
    [["LOST 1", "TRACKING 1", ...Array(6).fill("TRACKING 1")], undefined, "", 3],
    [["LOST 1", "UNKNOWN", "TRACKING 1"], "SEEN AGAIN", "after 0 s", 3],
    [["LOST 1", "TRACKING 1", "LOST 1"], "LOST", 2, 5],
    [["LOST 1", "TRACKING 2"], undefined, "", 2], // drawn by hand
    [["LOST 1", "TRACKING 1", "ACQUIRING 2"], undefined, "", 3],
    [["LOST 1", "ACQUIRING 1"], undefined, "", 2],
    [["LOST 1", "IDLE"], undefined, "", 2],
    [["LOST 1", "IDLE", "TRACKING 1"], undefined, "", 2],
  ]) assert.deepEqual(after(...steps), wanted, steps.join(", "));
});

test("each other alarm is heard once, when it begins", () => {
  const alarm = new Alarm();
  alarm.toggle();
  tones = [];
  const heard = (...names) => {
    alarm.ring(names);
    const count = tones.length;
    tones = [];
    return count;
  };
  assert.deepEqual([heard(), heard("control"), heard("control"), heard("control", "gimbal"), heard(), heard("control")], [0, 4, 0, 4, 0, 4]);
});

test("without sound nothing is heard", () => {
  const alarm = new Alarm();
  alarm.see("LOST", { id: 0, selection: 1 }, 0, 0);
  alarm.toggle();
  tones = [];
  assert.equal(alarm.toggle(), false);
  alarm.see("TRACKING", { id: 0, selection: 1 }, 0, 0);
  assert.deepEqual(tones, []);
});
