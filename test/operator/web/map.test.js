// The sketch of the ground: what is shown, and where.

import assert from "node:assert/strict";
import test from "node:test";
import { GroundMap, TRAIL_MS, Trail, barLength, fit, positionLines } from "../../../efftam_operator/web/map.js";

const POSITION = { valid: true, reason: "", x: 30, y: 40, camera_x: 0, camera_y: 0, accuracy: 2.5, range: 58, speed: 1.4, latitude: 47.4, longitude: 8.55, height: "home" };

/** A canvas that keeps what is drawn on it. */
function canvasOf(width, height) {
  const calls = [];
  const context = new Proxy({}, {
    get: (of, name) => of[name] ?? ((...values) => calls.push([name, ...values])),
    set: (of, name, value) => ((of[name] = value), true),
  });
  return { width, height, calls, getContext: () => context };
}

test("north is up, east is right, and everything is inside", () => {
  const { px, toX, toY } = fit([{ x: 0, y: 0 }, { x: 30, y: 40, radius: 5 }], 200, 100);
  assert.ok(toX(30) > toX(0));
  assert.ok(toY(40) < toY(0));
  for (const [u, v] of [[toX(35), toY(45)], [toX(0), toY(0)]]) {
    assert.ok(u >= 0 && u <= 200 && v >= 0 && v <= 100);
  }
  assert.ok(Math.abs(px - 100 / (45 * 1.25)) < 1e-9);
});

test("one place alone is not magnified without end", () => {
  assert.ok(fit([{ x: 5, y: 5 }], 100, 100).px <= 4);
});

test("the bar is a round number of metres", () => {
  assert.deepEqual([0.7, 1, 3, 7, 19, 20, 480].map(barLength), [0.5, 1, 2, 5, 10, 20, 200]);
});

test("the trail holds the last minute, thinned, and begins anew", () => {
  const trail = new Trail();
  for (let s = 0; s <= 90; s++) trail.add({ x: s, y: 0 }, 1000 * s);
  assert.equal(trail.points[0].x, 30);
  assert.equal(trail.points.length, 61);
  trail.add({ x: 90.1, y: 0 }, 90000);
  assert.equal(trail.points.length, 61);
  assert.equal(TRAIL_MS, 60000);
  trail.add(null, 91000);
  assert.deepEqual(trail.points, []);
});

test("words say distance, uncertainty, place and where the height is from", () => {
  const lines = positionLines(POSITION);
  assert.match(lines[0], /58 m.*2\.5 m.*1\.4 m\/s/);
  assert.match(lines[1], /47\.400000, 8\.550000/);
  assert.match(lines[2], /home/);
  assert.equal(positionLines({ ...POSITION, latitude: null, longitude: null }).length, 2);
  assert.match(positionLines({ valid: false, reason: "no height" })[0], /no height/);
  assert.equal(positionLines(null).length, 1);
});

test("the circle has the size of the uncertainty, around the target", () => {
  const canvas = canvasOf(240, 160);
  new GroundMap(canvas, () => ({ ink: "#fff", target: "#0f0", faint: "#888" })).paint(POSITION, [{ x: 20, y: 40 }]);
  const view = fit([{ x: 0, y: 0 }, { x: 30, y: 40, radius: 2.5 }, { x: 20, y: 40 }], 240, 130);
  const circle = canvas.calls.find(([name, , , radius]) => name === "arc" && radius !== 3);
  assert.ok(Math.abs(circle[1] - view.toX(30)) < 1e-9 && Math.abs(circle[2] - view.toY(40)) < 1e-9);
  assert.ok(Math.abs(circle[3] - 2.5 * view.px) < 1e-9);
  assert.ok(canvas.calls.some(([name, text]) => name === "fillText" && text === "N"));
  assert.ok(canvas.calls.some(([name, text]) => name === "fillText" && /^\d+ m$/.test(text)));
});

test("without a position nothing is drawn", () => {
  for (const position of [null, { valid: false, reason: "near the horizon" }]) {
    const canvas = canvasOf(100, 100);
    new GroundMap(canvas, () => ({ ink: "", target: "", faint: "" })).paint(position, []);
    assert.deepEqual(canvas.calls.map(([name]) => name), ["clearRect"]);
  }
});
