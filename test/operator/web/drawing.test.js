import assert from "node:assert/strict";
import { test } from "node:test";
import { Drawing } from "../../../efftam_operator/web/drawing.js";
import { pick, randomOf } from "./numbers.js";

const FRAME = { stamp: 42n, width: 640, height: 360, ageS: 0.5 };
const at = (x, y) => ({ x, y });
const near = (a, b) => Math.hypot(a.x - b.x, a.y - b.y) <= 10;

function pressed(x = 100, y = 50) {
  const drawing = new Drawing();
  drawing.freeze(FRAME, 10);
  drawing.press(at(x, y));
  return drawing;
}

test("press, drag, release sends a box with the frozen stamp", () => {
  const drawing = pressed();
  drawing.move(at(130, 90));
  assert.deepEqual(drawing.shownBox, { x: 100, y: 50, width: 30, height: 40 });
  assert.deepEqual(drawing.release(at(80, 90), true, near), { stamp: 42n, box: { x: 80, y: 50, width: 20, height: 40 } });
  assert.equal(drawing.mode, "sent");
});

test("a picture that arrives meanwhile is not the one that was drawn on", () => {
  const drawing = pressed();
  drawing.freeze({ ...FRAME, stamp: 99n }, 11);
  assert.equal(drawing.release(at(150, 90), true, near).stamp, 42n);
});

/** A tap at (101, 50), then one at (160, 120). */
function tappedTwice() {
  const drawing = pressed();
  assert.equal(drawing.release(at(101, 50), false, near), null);
  assert.equal(drawing.mode, "corner");
  drawing.press(at(160, 120));
  assert.equal(drawing.release(at(160, 120), false, near), null);
  assert.equal(drawing.mode, "placed");
  return drawing;
}

test("two far taps place a box between them, which a tap in it sends", () => {
  const drawing = tappedTwice();
  drawing.press(at(120, 60));
  assert.deepEqual(drawing.release(at(120, 60), false, near).box, { x: 101, y: 50, width: 59, height: 70 });
});

test("a tap outside the box between two taps begins anew", () => {
  const drawing = tappedTwice();
  drawing.press(at(300, 60));
  assert.equal(drawing.release(at(300, 60), false, near), null);
  assert.equal(drawing.mode, "corner");
});

test("the second of two far taps can be taken as a point", () => {
  assert.deepEqual(tappedTwice().confirmPoint().points, [at(160, 120)]);
});

test("a proposal for the point that was tapped is sent as a box by a tap in it", () => {
  const drawing = pressed();
  drawing.release(at(100, 50), false, near);
  drawing.propose(41n, { x: 90, y: 40, width: 30, height: 30 });
  drawing.propose(42n, { x: 200, y: 40, width: 30, height: 30 });
  drawing.propose(42n, { x: 99, y: 49, width: 3, height: 3 });
  assert.equal(drawing.mode, "corner"); // of another image, of another place, too small
  drawing.propose(42n, { x: 90, y: 40, width: 30, height: 30 });
  assert.equal(drawing.mode, "proposed");
  drawing.press(at(115, 65));
  assert.deepEqual(drawing.release(at(115, 65), false, near), { stamp: 42n, box: { x: 90, y: 40, width: 30, height: 30 } });
});

test("what is finished may have to be agreed to", () => {
  const drawing = pressed();
  const drawn = drawing.release(at(130, 90), true, near);
  drawing.ask();
  assert.equal(drawing.mode, "asked");
  assert.deepEqual(drawing.shownBox, drawn.box);
  assert.deepEqual(drawing.confirm(), drawn);
  assert.equal(drawing.mode, "sent");
});

test("what was drawn is carried over to a newer picture", () => {
  const drawing = pressed();
  drawing.release(at(101, 50), false, near);
  drawing.renew({ ...FRAME, stamp: 77n, ageS: 0 }, 17);
  assert.ok(drawing.secondsLeft(8, 17) > 7);
  assert.deepEqual(drawing.confirmPoint(), { stamp: 77n, points: [at(101, 50)], labels: [1] });
  drawing.renew({ ...FRAME, stamp: 99n }, 20);
  drawing.ask();
  assert.equal(drawing.confirm().stamp, 99n);
});

test("two taps on one place are a point", () => {
  const drawing = pressed();
  drawing.release(at(100, 50), false, near);
  drawing.press(at(104, 52));
  assert.deepEqual(drawing.release(at(104, 52), false, near), { stamp: 42n, points: [at(100, 50)], labels: [1] });
});

test("one tap and a word is a point", () => {
  const drawing = pressed();
  drawing.release(at(100, 50), false, near);
  assert.deepEqual(drawing.confirmPoint().points, [at(100, 50)]);
});

test("a drag after a tap is a box of its own", () => {
  const drawing = pressed();
  drawing.release(at(100, 50), false, near);
  drawing.press(at(300, 200));
  assert.deepEqual(drawing.release(at(340, 240), true, near).box, { x: 300, y: 200, width: 40, height: 40 });
});

test("keys alone: corner, corner, send", () => {
  const drawing = new Drawing();
  drawing.nudge(10, 0, FRAME);
  drawing.freeze(FRAME, 0);
  assert.equal(drawing.confirm(), null);
  drawing.nudge(30, 0, FRAME);
  drawing.nudge(0, 20, FRAME);
  assert.deepEqual(drawing.confirm().box, { x: 330, y: 180, width: 30, height: 20 });
});

test("with keys a proposal is followed by Enter, and given up by an arrow that draws from there", () => {
  const car = { x: 310, y: 170, width: 40, height: 20 };
  const marked = () => {
    const drawing = new Drawing();
    drawing.nudge(0, 0, FRAME);
    drawing.freeze(FRAME, 0);
    drawing.confirm();
    return drawing;
  };
  const proposed = () => {
    const drawing = marked();
    drawing.propose(FRAME.stamp, car);
    assert.equal(drawing.mode, "proposed");
    return drawing;
  };
  assert.deepEqual(proposed().confirm().box, car);
  const drawn = proposed();
  drawn.nudge(10, 10, FRAME);
  assert.deepEqual(drawn.confirm().box, { x: 320, y: 180, width: 10, height: 10 });
  const begun = marked();
  begun.nudge(10, 10, FRAME);
  begun.propose(FRAME.stamp, car);
  assert.equal(begun.mode, "corner");
  begun.press(at(321, 300)); // too thin for a box from the corner: marked anew, by hand
  begun.release(at(321, 300), false, near);
  assert.ok(begun.wants(FRAME.stamp));
  const renewed = proposed();
  renewed.renew({ ...FRAME, stamp: FRAME.stamp + 1n }, 1);
  assert.equal(renewed.mode, "corner");
  assert.ok(renewed.wants(FRAME.stamp + 1n));
});

test("R places a box of the last size, arrows move it inside the image", () => {
  const drawing = pressed();
  drawing.release(at(130, 90), true, near);
  drawing.live();
  drawing.freeze(FRAME, 0);
  drawing.move(at(5, 200));
  drawing.place();
  assert.deepEqual(drawing.shownBox, { x: 0, y: 180, width: 30, height: 40 });
  drawing.nudge(-1, 0, FRAME);
  drawing.nudge(1, 0, FRAME);
  drawing.nudge(1, 0, FRAME);
  assert.deepEqual(drawing.confirm().box, { x: 2, y: 180, width: 30, height: 40 });
});

test("a slip of the hand is not sent", () => {
  const drawing = pressed();
  assert.deepEqual(drawing.release(at(103, 90), true, near), { tooSmall: { x: 100, y: 50, width: 3, height: 40 } });
  assert.equal(drawing.mode, "live");
});

test("a box is cut at the image's edge before it is judged", () => {
  assert.ok(pressed(639, 0).release(at(700, 100), true, near).tooSmall);
});

test("giving up returns to what was before: live, or held by hand", () => {
  const drawing = pressed();
  drawing.cancel();
  assert.equal(drawing.isFrozen, false);
  drawing.freeze(FRAME, 0, true);
  drawing.press(at(1, 1));
  drawing.cancel();
  assert.equal(drawing.mode, "frozen");
  drawing.cancel();
  assert.equal(drawing.isFrozen, false);
});

test("the countdown knows how old the picture was when it froze", () => {
  const drawing = pressed();
  assert.ok(Math.abs(drawing.secondsLeft(8, 12) - (8 - 0.3 - 0.5 - 2)) < 1e-9);
  assert.equal(drawing.secondsLeft(null, 12), null);
  assert.equal(new Drawing().secondsLeft(8, 12), null);
});

test("nothing is drawn while an answer is awaited", () => {
  const drawing = pressed();
  drawing.release(at(150, 90), true, near);
  drawing.press(at(1, 1));
  assert.equal(drawing.mode, "sent");
  assert.equal(drawing.release(at(50, 50), true, near), null);
  drawing.place();
  assert.equal(drawing.mode, "sent");
});

const point = (random) => at(20 + 40 * random(8), 20 + 40 * random(8));
const ACTS = {
  freeze: (drawing) => drawing.freeze(FRAME, 0),
  hold: (drawing) => drawing.freeze(FRAME, 0, true),
  press: (drawing, random) => drawing.isFrozen && drawing.press(point(random)),
  move: (drawing, random) => drawing.move(point(random)),
  drag: (drawing, random) => drawing.release(point(random), true, near),
  tap: (drawing, random) => drawing.release(point(random), false, near),
  propose: (drawing) => drawing.mode === "corner" && drawing.propose(FRAME.stamp, { ...at(drawing.start.x - 10, drawing.start.y - 10), width: 30, height: 30 }),
  enter: (drawing) => drawing.isFrozen && drawing.confirm(),
  point: (drawing) => drawing.confirmPoint(),
  arrow: (drawing) => drawing.nudge(5, 5, FRAME),
  place: (drawing) => drawing.place(),
  ask: (drawing) => drawing.mode === "sent" && drawing.ask(),
};
const told = ({ mode, isFrozen, shownBox, mark, isTapped, isBetweenTaps, isFirstPress }) => ({ mode, isFrozen, shownBox, mark, isTapped, isBetweenTaps, isFirstPress });

test("of a drawing that was given up or answered only the cursor and the last size are left", () => {
  const random = randomOf(11);
  for (let run = 0; run < 4000; run++) {
    const used = new Drawing(), fresh = new Drawing(), seed = 1 + random(1e6);
    for (let step = 0; step < 8; step++) ACTS[pick(random, Object.keys(ACTS))](used, random);
    if (run % 2) used.live();
    if (run % 3) used.cancel();
    else used.live();
    if (used.isFrozen) fresh.freeze(FRAME, 0, true);
    [fresh.cursor, fresh.lastSize] = [used.cursor, used.lastSize];
    assert.deepEqual(told(used), told(fresh));
    const both = [used, fresh].map((drawing) => {
      const same = randomOf(seed), said = [];
      drawing.freeze(FRAME, 0);
      for (let step = 0; step < 8; step++) {
        const what = pick(same, Object.keys(ACTS));
        const result = ACTS[what](drawing, same);
        said.push({ what, result: result && typeof result === "object" ? result : null, ...told(drawing) });
      }
      return said;
    });
    assert.deepEqual(both[0], both[1]);
  }
});

test("what is drawn anew takes the place of what was shown", () => {
  const proposed = pressed();
  for (const what of ["tap", "propose"]) ACTS[what](proposed, () => 3);
  for (const begin of [() => proposed, tappedTwice]) {
    const drawing = begin();
    drawing.press(at(300, 200));
    drawing.move(at(320, 210));
    assert.ok(drawing.shownBox.x + drawing.shownBox.width === 320 && drawing.mark === null);
    drawing.place();
    assert.ok(!drawing.isBetweenTaps);
  }
  const keyed = pressed();
  for (const what of ["tap", "propose", "arrow"]) ACTS[what](keyed, () => 3);
  assert.deepEqual(keyed.shownBox, { x: 140, y: 140, width: 5, height: 5 });
  const again = tappedTwice();
  again.place();
  assert.ok(!again.isBetweenTaps);
});

test("a point and the box proposed for one are tapped, a drag and a placed box are drawn", () => {
  const sent = (...whats) => {
    const drawing = pressed(), random = () => 3;
    for (const what of whats) ACTS[what](drawing, random);
    assert.equal(drawing.mode, "sent");
    return drawing.isTapped;
  };
  assert.equal(sent("drag"), false);
  assert.equal(sent("tap", "enter"), true);
  assert.equal(sent("tap", "point"), true);
  assert.equal(sent("tap", "propose", "enter"), true);
  assert.equal(sent("tap", "propose", "press", "tap"), true);
  assert.equal(sent("tap", "place", "enter"), false);
});
