// What the plots keep of each answer.
import assert from "node:assert/strict";
import { test } from "node:test";
import "./palette.js";

const { History, largestOf } = await import("../../../efftam_operator/web/plots.js");

test("answers to older images and a time without images leave no line", () => {
  const history = new History();
  for (const ms of [1, 2, 3, 4, 2]) history.add({ stamp: String(ms * 1e6), targets: [] });
  const points = () => history.points.map(({ t, state, presence }) => [Math.round(t * 1000), state ?? null, presence ?? null]);
  assert.deepEqual(points().map(([ms]) => ms), [1, 2]); // what was before stays
  const idle = { id: 0, state: "IDLE", steered: true, presence: 0, quality: 0 };
  for (const ms of [500, 1502, 2502]) history.add({ stamp: String(ms * 1e6), targets: [idle] });
  // Of no target nothing is measured; over a second without images no line is drawn.
  assert.deepEqual(points().slice(2), [[500, "IDLE", null], [500, null, null], [1502, "IDLE", null], [2502, "IDLE", null]]);
  history.add({ stamp: String(61e9), targets: [{ ...idle, state: "TRACKING", presence: 0.9 }] }); // a minute is kept
  assert.deepEqual(points(), [[1502, "IDLE", null], [2502, "IDLE", null], [2502, null, null], [61000, "TRACKING", 0.9]]);
});

test("the scale is that of the values, not of the one that is far off", () => {
  const values = Array.from({ length: 600 }, (_, i) => 40 + (i % 20));
  assert.equal(largestOf(values), 100);
  assert.equal(largestOf([...values, 20_000, 18_000]), 100);
  assert.equal(largestOf([...values, ...Array(60).fill(20_000)]), 20_000);
  assert.equal(largestOf([]), 1);
  assert.equal(largestOf([3]), 5);
});
