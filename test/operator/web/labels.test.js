import assert from "node:assert/strict";
import { test } from "node:test";
import { randomOf } from "./numbers.js";
import { common, placeLabels } from "../../../efftam_operator/web/labels.js";

const VIEW = { width: 360, height: 400 };

test("no label lies on another, whatever the boxes", () => {
  const random = randomOf(5), next = () => random(1000) / 1000;
  for (let i = 0; i < 300; i++) {
    const labels = Array.from({ length: 1 + Math.floor(next() * 8) }, () => ({
      width: 60 + next() * 120, height: 23, box: { x: next() * 340, y: next() * 380, width: 10 + next() * 100, height: 10 + next() * 100 },
    }));
    const placed = placeLabels(labels, VIEW);
    placed.forEach((one, k) => {
      assert.ok(one.x >= 0 && one.y >= 0 && one.y + one.height <= VIEW.height && one.x + one.width <= VIEW.width);
      for (const other of placed.slice(k + 1)) assert.equal(common(one, other), 0);
    });
  }
});

test("a label stands above its box, and elsewhere where a panel or another target is", () => {
  const label = { width: 80, height: 23, box: { x: 100, y: 100, width: 60, height: 40 } };
  const [above] = placeLabels([label], VIEW);
  assert.deepEqual([above.x, above.y], [100, 72]);
  const [below] = placeLabels([label], VIEW, [{ x: 0, y: 0, width: 360, height: 98 }]);
  assert.deepEqual([below.x, below.y], [100, 145]);
  const other = { width: 80, height: 23, box: { x: 90, y: 40, width: 90, height: 56 } };
  const [first] = placeLabels([label, other], VIEW);
  assert.equal(common(first, other.box), 0);
});
