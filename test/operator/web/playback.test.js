import assert from "node:assert/strict";
import { test } from "node:test";
import { Playback } from "../../../efftam_ros/operator/web/playback.js";

const FIRST = 1795298319517108788n;

/** 30 images at 10 Hz, states by digit. */
function playback(...states) {
  const asked = [];
  const stamps = Array.from({ length: 30 }, (_, i) => (FIRST + BigInt(i) * 100_000_000n).toString());
  const none = stamps.map(() => null);
  const runs = states.map((s, i) => ({ name: `run ${i}`, states: s, speed: none, presence: none, quality: none }));
  return [new Playback({ stamps, runs }, (stamp) => asked.push(Number(stamp - FIRST) / 1e8)), asked];
}

test("steps are exact images, within the recording", () => {
  const [play, asked] = playback("0".repeat(30));
  for (const images of [1, 1, -1, -5, 100, 1]) play.step(images);
  assert.deepEqual(asked, [1, 2, 1, 0, 29, 29]);
});

test("a time is the last image at or before it", () => {
  const [play] = playback("0".repeat(30));
  for (let i = 0; i < 30; i++) assert.equal(play.indexAt(play.seconds(i)), i);
  assert.equal(play.indexAt(0.25), 2);
  assert.equal(play.indexAt(-1), 0);
  assert.equal(play.indexAt(99), 29);
});

test("jumps stop where a state begins, forth and back", () => {
  const [play, asked] = playback("111112222233333444442222222222");
  for (const direction of [1, 1, 1, 1, 1, -1, -1]) play.toChange(direction);
  assert.deepEqual(asked, [5, 10, 15, 20, 29, 20, 15]);
});

test("with two runs a change of either counts", () => {
  const [play, asked] = playback("2".repeat(12) + "3".repeat(18), "2".repeat(7) + "3".repeat(23));
  play.toChange(1);
  play.toChange(1);
  assert.deepEqual(asked, [7, 12]);
});

test("playing asks for the image that is due, only after the last has come", () => {
  const [play, asked] = playback("0".repeat(30));
  play.tick(1000, true);
  play.toggle(1000);
  play.tick(1050, true);
  play.tick(1110, true);
  play.tick(1700, false); // a thin link
  play.tick(1720, true);
  assert.deepEqual(asked, [1, 7]);
});

test("playing ends with the last image and starts again from the first", () => {
  const [play, asked] = playback("0".repeat(30));
  play.toggle(0);
  play.tick(60_000, true);
  assert.equal(play.playing, false);
  play.toggle(61_000);
  assert.deepEqual(asked, [29, 0]);
});
