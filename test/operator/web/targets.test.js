// Several targets: which one is meant, and what a drawing may do to them.
import assert from "node:assert/strict";
import { test } from "node:test";
import "./palette.js";

const { NEXT_FREE, STEERED, areMany, boxOf, choicesOf, followedOf, isFollowed, speedOf, steeredOf, targetAt, targetUnder } =
  await import("../../../efftam_operator/web/targets.js");

const target = (id, box, fields = {}) => ({ id, box, steered: id === 0, state: "TRACKING", ...fields });
const FIRST = target(0, [100, 100, 60, 60]), SECOND = target(1, [300, 200, 60, 60]);
const boxAt = (x, y, width = 60, height = 60) => ({ box: { x, y, width, height } });

test("the smallest target under a point is meant, also a little beside it", () => {
  const inner = target(2, [110, 110, 10, 10]), gone = target(3, null, { last: [500, 100, 20, 20] });
  const all = [FIRST, SECOND, inner, gone, target(4, null)];
  for (const [x, y, margin, id] of [[115, 115, 0, 2], [150, 150, 0, 0], [300, 200, 0, 1], [299, 200, 0, undefined], [291, 200, 10, 1], [510, 110, 0, 3]]) {
    assert.equal(targetAt(all, { x, y }, margin)?.id, id, `${x}, ${y}`);
  }
  assert.deepEqual(boxOf(gone), { x: 500, y: 100, width: 20, height: 20 });
});

test("a box is drawn on a target where each has the other's middle, a point where it lies in it", () => {
  const all = [FIRST, SECOND];
  for (const [selection, id] of [
    [boxAt(305, 205), 1],
    [boxAt(340, 240), undefined], // a corner alone
    [boxAt(0, 0, 640, 360), undefined], // all of the picture
    [{ points: [{ x: 310, y: 210 }] }, 1],
    [{ points: [{ x: 200, y: 10 }] }, undefined],
  ]) assert.equal(targetUnder(all, selection)?.id, id);
});

const choices = (selection, targets, how) => choicesOf(selection, targets, { isTapped: false, most: 4, isSteering: false, ...how });

test("what a drawing replaces, adds and turns", () => {
  const free = boxAt(480, 60), lost = { ...FIRST, state: "LOST" }, notSteered = { ...FIRST, steered: false };
  for (const [selection, targets, how, wanted] of [
    [free, [], {}, { target: STEERED, replaces: false, mayReplace: true, mayAdd: false }],
    [free, [FIRST], {}, { target: STEERED, replaces: true, mayReplace: true, mayAdd: true }],
    [free, [FIRST], { most: 1 }, { replaces: true, mayAdd: false }],
    [free, [FIRST, SECOND], { most: 2 }, { replaces: true, mayAdd: false }],
    [free, [lost, SECOND], {}, { target: STEERED, replaces: false, mayAdd: false }], // it is helped
    [free, [notSteered, SECOND], {}, { target: STEERED, replaces: false, mayReplace: false, mayAdd: true }],
    [boxAt(105, 105), [FIRST, SECOND], {}, { target: STEERED, replaces: false, mayAdd: false }], // drawn anew
    [boxAt(105, 105), [FIRST], { isTapped: true }, { target: STEERED, replaces: true, mayAdd: false }],
    [boxAt(305, 205), [FIRST, SECOND], {}, { target: 1, replaces: false, turns: false, mayReplace: true, mayAdd: false }],
    [boxAt(305, 205), [FIRST, SECOND], { isSteering: true }, { target: 1, turns: false }],
    [free, [FIRST], { isSteering: true }, { turns: true, addTurns: false }],
    [free, [notSteered], { isSteering: true }, { turns: true, addTurns: true }],
  ]) {
    const found = choices(selection, targets, how);
    for (const key of Object.keys(wanted)) assert.equal(found[key], wanted[key], `${key}: ${JSON.stringify([selection, how])}`);
  }
  assert.equal(NEXT_FREE, 255);
});

test("a proposal that lies for the most part in the followed target is that target", () => {
  const car = target(0, [180, 80, 80, 50]), at = { x: 210, y: 92 };
  const proposal = (x, y, width, height) => ({ x, y, width, height });
  for (const [proposed, point, targets, wanted] of [
    [proposal(190, 82, 50, 20), at, [car], true], // its roof
    [proposal(180, 80, 80, 50), at, [car], true],
    [proposal(170, 70, 100, 65), at, [car], true], // a bit more
    [proposal(200, 60, 220, 120), at, [car], false], // a truck behind it
    [proposal(180, 80, 80, 50), { x: 10, y: 10 }, [car], false],
    [proposal(180, 80, 80, 50), at, [{ ...car, state: "LOST" }], false],
    [proposal(180, 80, 80, 50), at, [{ ...car, steered: false }], false],
  ]) assert.equal(Boolean(isFollowed(proposed, point, targets)), wanted);
});

test("what is told apart, followed and steered by", () => {
  const track = { targets: [FIRST, { ...SECOND, state: "IDLE" }] };
  assert.deepEqual(followedOf(track), [FIRST]);
  assert.deepEqual([followedOf(undefined), steeredOf(undefined)], [[], undefined]);
  assert.equal(steeredOf(track), FIRST);
  assert.deepEqual([[FIRST], [SECOND], [FIRST, SECOND], []].map(areMany), [false, true, true, false]);
  const speed = (velocity, velocity_valid = true) => speedOf({ velocity, velocity_valid });
  assert.deepEqual([speed([3, -4]), speed([3, null]), speed([3, 4], false)], [5, null, null]);
});
