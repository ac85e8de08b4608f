// The panel of place and following, on stand-ins of the page's elements: what is offered, said and sent after what.
import assert from "node:assert/strict";
import { mock, test } from "node:test";

const elements = {};
const element = () => ({ hidden: false, disabled: false, textContent: "", dataset: {}, children: [], classList: { add() {}, remove() {} }, append() {} });
const of = (name) => (elements[name] ??= element());
globalThis.document = { getElementById: of, querySelector: () => of("text"), createElement: element };
let nowMs = 0;
mock.method(performance, "now", () => nowMs);
mock.timers.enable({ apis: ["setTimeout"] });
const { FollowPanel } = await import("../../../efftam_operator/web/following.js");

const KNOWN = { hasLink: true, mayEnable: true };
const OFFERED = { available: true, enabled: false, sending: false, reason: "" };
const ON = { ...OFFERED, enabled: true, sending: true };
const PLACE = { valid: true, reason: "", target: 1, selection: 1, x: 30, y: 40, camera_x: 0, camera_y: 0, accuracy: 2, range: 58, speed: 1, latitude: 47, longitude: 8, height: "home" };

function panel(state, ...places) {
  for (const name of Object.keys(elements)) delete elements[name];
  const sent = [], painted = [];
  const made = new FollowPanel((action) => sent.push(action), { canvas: of("map"), paint: (...what) => painted.push(what) });
  made.forget();
  made.know(KNOWN);
  if (state) made.update(state);
  for (const place of places) made.locate(place, nowMs);
  made.paint(nowMs);
  const press = () => of("follow").onclick();
  const pass = (ms) => { nowMs += ms; mock.timers.tick(ms); };
  return { made, sent, painted, press, pass };
}

test("two presses allow it: no double click, within five seconds, and nothing between them", () => {
  for (const [between, wanted] of [
    [(p) => p.pass(351), ["arm", "enable"]],
    [(p) => p.pass(350), ["arm"]],
    [(p) => p.pass(5000), ["arm", "arm"]],
    [(p) => { p.pass(1000); p.made.disarm(); }, ["arm", "arm"]],
    [(p) => { p.pass(1000); p.made.stop(); }, ["arm", "stop", "arm"]],
    [(p) => { p.pass(1000); p.made.know({ ...KNOWN, mayEnable: false }); p.made.paint(nowMs); p.made.know(KNOWN); }, ["arm", "arm"]],
  ]) {
    const used = panel(OFFERED, PLACE);
    used.press();
    between(used);
    used.press();
    assert.deepEqual(used.sent, wanted);
  }
});

test("what is offered and said is of the bridge's last state, the link and who is in control", () => {
  for (const [state, known, words, isOffered, hasEnd] of [
    [OFFERED, {}, /^FOLLOW OFF$/, true, false],
    [{ ...OFFERED, reason: "the target is lost" }, {}, /OFF: the target is lost/, true, false],
    [ON, {}, /ON/, false, true],
    [{ ...ON, sending: false, reason: "near the horizon" }, {}, /WAITS: near the horizon/, false, true],
    [{ ...OFFERED, available: false, reason: "follow is false" }, {}, /OFF: follow is false/, false, false],
    [OFFERED, { mayEnable: false }, /another page/, false, false],
    [ON, { hasLink: false }, /UNKNOWN: no link/, false, true],
  ]) {
    const { made } = panel(state, PLACE);
    made.know({ ...KNOWN, ...known });
    made.paint(nowMs);
    assert.match(of("follow-text").textContent, words);
    assert.deepEqual([!of("follow").disabled, !of("follow-end").hidden], [isOffered, hasEnd]);
  }
});

test("nothing is shown before a position or an offer was heard of", () => {
  panel(null);
  assert.deepEqual([of("place").hidden, of("corner").hidden], [true, true]);
  panel(null, PLACE);
  assert.deepEqual([of("place").hidden, of("corner").hidden], [false, false]);
  panel(null, { ...PLACE, valid: false, reason: "no height" });
  assert.deepEqual([of("place").hidden, of("corner").hidden], [false, true]);
  assert.match(of("place-text").textContent, /no height/);
});

test("a position that is not renewed is of the past: no numbers, a grey map", () => {
  const { made, painted } = panel(OFFERED, PLACE);
  assert.equal(painted.at(-1)[2], false);
  made.paint(nowMs + 2001);
  assert.equal(painted.at(-1)[2], true);
  assert.doesNotMatch(of("place-text").textContent, /58 m/);
});

test("another selection begins a new trail", () => {
  const { made, painted } = panel(OFFERED, PLACE, { ...PLACE, x: 32 });
  assert.equal(painted.at(-1)[1].length, 2);
  made.locate({ ...PLACE, selection: 2 }, nowMs);
  made.paint(nowMs);
  assert.equal(painted.at(-1)[1].length, 1);
});
