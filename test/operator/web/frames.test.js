import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.document = { addEventListener() {}, hidden: false };
const { Frames } = await import("../../../efftam_ros/operator/web/frames.js");

test("a new connection knows nothing of how long the last one's small pictures took", () => {
  const frames = new Frames(() => {});
  frames.smallMs = 5;
  frames.forget();
  assert.equal(frames.smallMs, null);
});
