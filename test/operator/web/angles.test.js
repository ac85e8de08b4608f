import assert from "node:assert/strict";
import { test } from "node:test";
import { scaleOf } from "../../../efftam_operator/web/angles.js";

test("a scale goes from stop to stop, or as far as it can without one, and warns near to a stop", () => {
  for (const [angle, limits, widest, low, high, share, isNear] of [
    [-30, [-90, 30], 90, -90, 30, 0.5, false],
    [-89, [-90, 30], 90, -90, 30, 1 / 120, true],
    [28, [-90, 30], 90, -90, 30, 118 / 120, true],
    [27, [-90, 30], 90, -90, 30, 117 / 120, false],
    [-100, [-90, 30], 90, -90, 30, 0, true],
    [90, [null, null], 180, -180, 180, 0.75, false],
    [179, [null, null], 180, -180, 180, 359 / 360, false],
    [170, [-320, 320], 180, -180, 180, 350 / 360, false],
  ]) {
    const scale = scaleOf(angle, limits, widest);
    assert.deepEqual([scale.low, scale.high, scale.isNear], [low, high, isNear]);
    assert.ok(Math.abs(scale.share - share) < 1e-9);
  }
});
