// Pointers on a stand-in canvas: which gestures they make, after whatever came before.
import assert from "node:assert/strict";
import { test } from "node:test";
import { bindPointer } from "../../../efftam_operator/web/input.js";
import { pick, randomOf } from "./numbers.js";

globalThis.document = { body: { classList: { remove() {} } } };

/** `fire(type, event)` gives what the canvas called for it. */
function bound() {
  const listeners = {};
  let calls = [];
  const canvas = {
    addEventListener: (type, listener) => { listeners[type] = listener; },
    getBoundingClientRect: () => ({ left: 10, top: 20 }),
    focus() {},
    setPointerCapture() { throw new Error("it was let go of"); },
  };
  const named = (name) => (...values) => {
    calls.push([name, ...values]);
    return true;
  };
  const actions = Object.fromEntries(["press", "move", "release", "abandon", "hover"].map((name) => [name, named(name)]));
  bindPointer(canvas, { zoomAt: named("zoom"), pan: named("pan") }, actions);
  return (type, event) => {
    calls = [];
    listeners[`pointer${type}`]({ pointerType: "touch", button: 0, clientX: 50, clientY: 60, timeStamp: 0, ...event });
    return calls;
  };
}

const names = (calls) => calls.map(([name]) => name);

test("one finger draws and two zoom, whatever became of those before", () => {
  const random = randomOf(5);
  for (let run = 0; run < 300; run++) {
    const fire = bound(), down = new Set();
    let drawing = null;
    for (let step = 0; step < 20; step++) {
      const pointerId = random(3), isDown = down.has(pointerId);
      const type = isDown ? pick(random, ["move", "up", "cancel"]) : "down";
      const called = fire(type, { pointerId, clientX: 50 + random(40), clientY: 60 + random(40) });
      let wanted = [];
      if (type === "down") {
        down.add(pointerId);
        if (down.size > 1) {
          if (drawing !== null) wanted = ["abandon"];
          drawing = null;
        } else {
          wanted = ["press"];
          drawing = pointerId;
        }
      } else if (type === "move") {
        wanted = down.size > 1 ? ["zoom", "pan"] : [drawing === pointerId ? "move" : "hover"];
      } else {
        down.delete(pointerId);
        if (drawing === pointerId) {
          wanted = [type === "up" ? "release" : "abandon"];
          drawing = null;
        }
      }
      assert.deepEqual(names(called), wanted, `${type} of ${pointerId}`);
    }
  }
});

test("the right button and Shift pan, and the left one draws after that", () => {
  for (const [how, end] of [[{ button: 2 }, "up"], [{ shiftKey: true }, "up"], [{ button: 1 }, "cancel"]]) {
    const fire = bound(), mouse = (type, event) => fire(type, { pointerType: "mouse", pointerId: 1, ...event });
    assert.deepEqual(mouse("down", how), []);
    assert.deepEqual(mouse("move", { clientX: 57, clientY: 59 }), [["pan", 7, -1]]);
    assert.deepEqual(mouse("move", { clientX: 60, clientY: 59 }), [["pan", 3, 0]]);
    assert.deepEqual(mouse(end), []);
    assert.deepEqual(["move", "down", "move"].flatMap((type) => names(mouse(type))), ["hover", "press", "move"]);
  }
});

test("two fingers zoom by how far they part and pan by half of what one moves", () => {
  const fire = bound();
  fire("down", { pointerId: 1, clientX: 10, clientY: 20 });
  fire("down", { pointerId: 2, clientX: 110, clientY: 20 });
  for (const [x, factor, middle, way] of [[210, 2, 100, 50], [110, 0.5, 50, -50]]) {
    assert.deepEqual(fire("move", { pointerId: 2, clientX: x, clientY: 20 }), [["zoom", factor, { x: middle, y: 0 }], ["pan", way, 0]]);
  }
});

test("a tap, a long press and a drag are told apart by way and time", () => {
  for (const [pointerType, wayPx, ms, far, isLong] of [
    ["mouse", 6, 0, false, false],
    ["mouse", 7, 0, true, false],
    ["touch", 14, 0, false, false],
    ["touch", 15, 0, true, false],
    ["touch", 5, 251, true, false], // slow: a short drag
    ["touch", 4, 599, false, false],
    ["touch", 4, 600, false, true],
    ["touch", 8, 600, true, true],
    ["touch", 9, 600, true, false],
  ]) {
    for (const isBack of [false, true]) {
      const fire = bound(), event = { pointerType, pointerId: 1 };
      const at = { clientX: 50 + (isBack ? -wayPx : wayPx) };
      fire("down", event);
      const [[, , ...told]] = fire("up", { ...event, ...at, timeStamp: ms });
      assert.deepEqual([told[0], told[2]], [far, isLong]);
      fire("down", event);
      fire("move", { ...event, ...at, timeStamp: ms });
      assert.equal(fire("up", { ...event, timeStamp: ms })[0][2], far); // back at its start: it was a drag all the same
    }
  }
});
