// The gimbal's panel on stand-ins of the page's elements: what is offered and said after what.
import assert from "node:assert/strict";
import { mock, test } from "node:test";

const elements = {};
const element = () => ({ hidden: true, disabled: false, textContent: "", dataset: {}, children: [], classList: { add() {}, remove() {} }, append() {} });
const of = (name) => (elements[name] ??= element());
globalThis.document = { getElementById: of, querySelector: () => of("text"), createElement: element };
let nowMs = 0;
mock.method(performance, "now", () => nowMs);
mock.timers.enable({ apis: ["setTimeout"] });
const { SteeringPanel } = await import("../../../efftam_operator/web/steering.js");

const KNOWN = { hasLink: true, isGrey: false, mayEnable: true };
const OFF = { controller: "running", enabled: false, phase: "off", reason: "" };
const ON = { ...OFF, enabled: true, phase: "following" };

function panel(...states) {
  for (const name of Object.keys(elements)) delete elements[name];
  const sent = [], alarms = [], made = new SteeringPanel((action) => (sent.push(action), sent.length), (text) => alarms.push(text));
  const pass = (ms) => { nowMs += ms; mock.timers.tick(ms); };
  const press = () => made.press(nowMs);
  made.forget();
  made.know(KNOWN);
  for (const state of states) made.update(state);
  return { made, sent, alarms, pass, press, text: () => of("text").textContent, button: () => of("steer") };
}

test("two presses enable: no double click, within five seconds, and nothing between them", () => {
  for (const [between, wanted] of [
    [(p) => p.pass(351), ["arm", "enable"]],
    [(p) => p.pass(350), ["arm"]], // a double click
    [(p) => p.pass(5000), ["arm", "arm"]],
    [(p) => { p.pass(1000); p.made.disarm(); }, ["arm", "arm"]], // as by drawing
    [(p) => { p.pass(1000); p.made.stop(); }, ["arm", "stop", "arm"]],
    [(p) => { p.pass(1000); p.made.know({ ...KNOWN, mayEnable: false }); p.made.know(KNOWN); }, ["arm", "arm"]],
    [(p) => { p.pass(1000); p.made.forget(); p.made.update(OFF); }, ["arm", "arm"]],
    [(p) => { p.pass(4000); p.press(); p.press(); p.pass(4000); }, ["arm", "enable", "arm", "enable"]],
  ]) {
    const used = panel(OFF);
    used.press();
    between(used);
    used.press();
    assert.deepEqual(used.sent, wanted);
  }
});

test("what is offered and said is of the last word, the link and who is in control", () => {
  for (const [states, known, text, isOffered, look] of [
    [[OFF], {}, "GIMBAL OFF", true, "off"],
    [[OFF, ON], {}, "GIMBAL FOLLOWING", false, "on"],
    [[ON, { ...ON, phase: "holding", reason: "the target is lost" }], {}, "GIMBAL HOLDING: the target is lost", false, "on"],
    [[ON, OFF], {}, "GIMBAL OFF", true, "off"],
    [[OFF], { mayEnable: false }, "GIMBAL OFF", false, "off"],
    [[ON], { isGrey: true }, "GIMBAL FOLLOWING", false, "grey"],
    [[ON], { hasLink: false }, "GIMBAL UNKNOWN: no link", false, "fault"],
    [[{ ...OFF, controller: "inactive" }], {}, "GIMBAL INACTIVE: it runs but was not activated", false, "fault"],
    [[{ ...ON, controller: "silent" }, OFF], {}, "GIMBAL OFF", true, "off"],
  ]) {
    const used = panel(...states);
    used.made.know({ ...KNOWN, ...known });
    assert.deepEqual([used.text(), !used.button().disabled, of("steering").dataset.state], [text, isOffered, look]);
    used.made.know(KNOWN);
    assert.equal(used.text(), panel(...states).text());
  }
});

test("a fault's seconds count from the last message of who is silent, and none is left of it once it has ended", () => {
  const used = panel(ON), fault = () => used.made.fault(nowMs);
  for (const [change, title, startS] of [
    [{ silent: "bridge", silent_s: 1.6 }, "BRIDGE SILENT", 1.6],
    [{ silent: "autopilot", silent_s: 0.5, phase: "holding" }, "AUTOPILOT SILENT", 0.5],
    [{ silent: "gimbal", silent_s: 0.7 }, "GIMBAL SILENT", 0.7],
    [{ controller: "silent", silent_s: 1.1 }, "GIMBAL SILENT", 1.1],
    [{ controller: "gone", silent_s: 4 }, "GIMBAL GONE", 4],
    [{ controller: "gone", silent: "bridge", silent_s: 4 }, "BRIDGE SILENT", 4],
  ]) {
    used.made.update(ON);
    assert.equal(fault(), null);
    used.made.update({ ...ON, ...change });
    assert.deepEqual([fault().title, fault().seconds], [title, startS]);
    used.pass(3000);
    assert.equal(fault().seconds, startS + 3);
  }
  used.made.update({ ...OFF, controller: "gone" }); // it was off
  assert.equal(fault(), null);
});

test("who is silent between controller and gimbal is a fault also while steering is off, and says what that means", () => {
  const texts = [];
  for (const silent of ["bridge", "autopilot", "gimbal"]) {
    for (const state of [ON, OFF]) {
      const { title, text } = panel({ ...state, silent, silent_s: 2 }).made.fault(nowMs);
      assert.equal(title, `${silent.toUpperCase()} SILENT`);
      texts.push(text);
    }
  }
  assert.match(texts[0], /stick/); // the bridge's, steering
  assert.match(texts[1], /STOP would not reach/);
  assert.ok(texts.every((text) => text));
});

test("while a link to the gimbal is silent what it does is unknown, whatever was said last", () => {
  const used = panel(ON);
  for (const silent of ["bridge", "autopilot", "gimbal"]) {
    used.made.update({ ...ON, silent, silent_s: 2 });
    assert.deepEqual([used.text(), of("steering").dataset.state], [`GIMBAL UNKNOWN: the ${silent} is silent`, "grey"]);
    assert.equal(used.made.angles, null);
  }
  used.made.update(ON);
  assert.equal(used.text(), "GIMBAL FOLLOWING");
});

test("a gimbal that another has taken is an alarm with what to do, and no fault of a link", () => {
  const used = panel(ON);
  assert.equal(used.made.lostControl, null);
  used.made.update({ ...OFF, phase: "control lost", reason: "the pilot's stick moved it" });
  assert.equal(used.made.lostControl.title, "GIMBAL CONTROL LOST");
  assert.match(used.made.lostControl.text, /^the pilot's stick moved it; press Steer/);
  assert.equal(of("steering").dataset.state, "fault");
  assert.equal(used.made.fault(nowMs), null);
});

test("where the gimbal points is known only while it is heard", () => {
  const angles = { pitch: -41, yaw: 12, pitch_limits: [-90, 30], yaw_limits: [null, null] }, used = panel({ ...ON, angles });
  assert.deepEqual(used.made.angles, angles);
  used.made.know({ ...KNOWN, hasLink: false });
  assert.equal(used.made.angles, null);
});

test("a stop that is not confirmed is a fault until it is, and before whatever else is one", () => {
  const used = panel({ ...OFF, stop: "waiting" }), fault = () => used.made.fault(nowMs);
  assert.equal(fault(), null);
  assert.match(used.text(), /waiting until the gimbal is at rest/);
  used.made.know({ ...KNOWN, hasLink: false });
  assert.equal(used.text(), "GIMBAL UNKNOWN: no link");
  used.made.know(KNOWN);
  const doubt = { ...OFF, stop: "unconfirmed", stop_reason: "the bridge has been silent for 4 s; take over by the stick" };
  for (const more of [{}, { silent: "bridge", silent_s: 4 }, { controller: "gone", enabled: true }]) {
    assert.ok(used.made.update({ ...doubt, ...more }) || more.silent);
    used.pass(60_000);
    assert.deepEqual(fault(), { title: "STOP NOT CONFIRMED", text: doubt.stop_reason, seconds: null });
  }
  used.made.update({ ...OFF, stop: "stopped" });
  assert.equal(fault(), null);
});

test("a stop that is not sent or not answered is said", () => {
  const used = panel(ON);
  used.made.stop();
  assert.match(used.text(), /STOP was sent/);
  used.made.answered(7); // another command's
  assert.match(used.text(), /STOP was sent/);
  used.made.answered(1);
  assert.equal(used.text(), "GIMBAL FOLLOWING");
  used.pass(2000);
  assert.deepEqual(used.alarms, []);
  used.made.stop();
  used.pass(1500);
  assert.match(used.alarms[0], /not answered/);
  used.made.stop();
  used.made.update({ ...ON, stop: "waiting" }); // it has arrived; its answer waits until the gimbal stands
  used.pass(1500);
  assert.equal(used.alarms.length, 1);
  used.made.forget();
  used.made.update(OFF);
  assert.equal(used.text(), "GIMBAL OFF");
  used.made.command = () => null;
  used.made.stop();
  assert.match(used.alarms[1], /was not sent/);
  assert.equal(used.text(), "GIMBAL OFF");
});

test("whether the gimbal does something else than before is told", () => {
  const { made } = panel();
  assert.ok(!made.isThere && !made.isOn);
  const changes = [OFF, OFF, { ...OFF, reason: "x" }, ON, { ...ON, phase: "holding" }, { ...ON, controller: "silent" }, { ...ON, controller: "silent", stop: "waiting" }].map((state) => made.update(state));
  assert.deepEqual(changes, [true, false, false, true, true, true, true]);
  assert.ok(made.isThere && made.isOn);
});
