import assert from "node:assert/strict";
import { test } from "node:test";
import { Tracks } from "../../../efftam_operator/web/tracks.js";

const track = (stamp, selection) => ({ stamp: String(stamp), targets: [{ selection }], seq: stamp });

/** Answers in any order against the model: what is known of an image is the answer to the newest image not after it, but for
 * those that a newer selection on an older image took back. */
test("late answers of the same selection take nothing back, those of a newer one do", () => {
  let state = 7;
  const random = (n) => (state = (state * 1103515245 + 12345) % 2147483648) % n;
  for (let run = 0; run < 300; run++) {
    const tracks = new Tracks(), model = new Map();
    let selection = 1;
    for (let i = 0; i < 12; i++) {
      const stamp = 1 + random(20);
      selection += random(4) === 0;
      tracks.add(track(stamp, selection));
      for (const [later, told] of model) if (later > stamp && told < selection) model.delete(later);
      model.set(stamp, selection);
    }
    for (let stamp = 0; stamp < 22; stamp++) {
      const known = [...model.keys()].filter((one) => one <= stamp), newest = Math.max(...known);
      const told = tracks.of(BigInt(stamp));
      assert.equal(told?.stamp, known.length ? String(newest) : undefined);
      assert.equal(told?.targets[0].selection, model.get(newest));
    }
  }
});

test("a bag that starts again forgets what was told of other pictures", () => {
  const tracks = new Tracks();
  tracks.add(track(100_000_000_000n, 1));
  tracks.add(track(5n, 1));
  assert.equal(tracks.of(100_000_000_001n), undefined);
  assert.equal(tracks.of(6n).stamp, "5");
});

test("of many images the oldest are forgotten, and all of another connection", () => {
  const tracks = new Tracks();
  for (let stamp = 1; stamp <= 241; stamp++) tracks.add(track(stamp, 1));
  assert.equal(tracks.of(1n), undefined);
  assert.equal(tracks.of(2n).stamp, "2");
  tracks.forget();
  assert.equal(tracks.of(241n), undefined);
});
