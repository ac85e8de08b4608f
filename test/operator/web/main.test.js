// The page as a whole, over stand-ins of the browser: what a person does and what arrives, and what is sent and said then.
import assert from "node:assert/strict";
import { mock, test } from "node:test";
import "./palette.js";
import { pictureMessage } from "./pictures.js";

/** Any property of the canvas' pen, any call of it. */
const pen = new Proxy({ measureText: () => ({ width: 10 }) }, { get: (known, name) => known[name] ?? (() => {}), set: () => true });

class Element {
  hidden = false;
  textContent = "";
  dataset = {};
  children = [];
  classes = new Set();
  attributes = new Map();
  listeners = {};
  clientWidth = 640;
  clientHeight = 360;
  style = { setProperty() {} };
  classList = {
    add: (name) => this.classes.add(name),
    remove: (name) => this.classes.delete(name),
    contains: (name) => this.classes.has(name),
    toggle: (name, isOn = !this.classes.has(name)) => (isOn ? this.classes.add(name) : this.classes.delete(name), isOn),
  };
  append(...added) { for (const one of added) { one.parent = this; this.children.push(one); } }
  insertBefore(one, before) { one.remove(); one.parent = this; this.children.splice(before ? this.children.indexOf(before) : this.children.length, 0, one); }
  replaceChildren(...wanted) { this.children = []; this.append(...wanted); }
  remove() { if (this.parent) this.parent.children = this.parent.children.filter((one) => one !== this); }
  get firstChild() { return this.children[0]; }
  addEventListener(type, listen) { (this.listeners[type] ??= []).push(listen); }
  fire(type, event) { for (const listen of this.listeners[type] ?? []) listen(event); }
  getContext() { return pen; }
  getBoundingClientRect() { return { left: 0, top: 0, right: 0, bottom: 0, x: 0, y: 0, width: 0, height: 0 }; }
  setAttribute(name, value) { this.attributes.set(name, value); }
  closest() { return null; }
  querySelector() { return this; }
  querySelectorAll() { return []; }
  get firstElementChild() { return this; }
  focus() {}
  setPointerCapture() {}
}

const elements = {};
const $ = (id) => (elements[id] ??= new Element());
globalThis.document = Object.assign(new Element(), {
  getElementById: $,
  querySelector: (selector) => ({ "#steering-text span": $("steering-text"), "dialog[open]": null })[selector] ?? (selector.includes("dialog") ? null : $(selector.replace("#", ""))),
  querySelectorAll: () => [],
  createElement: () => new Element(),
  body: new Element(),
});
globalThis.window = new Element();
globalThis.location = { protocol: "http:", host: "x", href: "http://x/", hash: "" };
globalThis.getComputedStyle = () => ({ getPropertyValue: () => "" });
globalThis.ResizeObserver = class { observe() {} };
globalThis.createImageBitmap = async () => ({ width: 640, height: 360, close() {} });
globalThis.CustomEvent ??= class extends Event { constructor(type, { detail }) { super(type); this.detail = detail; } };
$("drawer").hidden = $("plots").hidden = true;
let paint = null, socket = null, nowMs = 0;
globalThis.requestAnimationFrame = (call) => { paint = call; };
globalThis.WebSocket = class {
  static OPEN = 1;
  readyState = 1;
  sent = [];
  constructor() { socket = this; }
  send(text) { this.sent.push(JSON.parse(text)); }
  close() { this.readyState = 3; }
};
mock.method(performance, "now", () => nowMs);
mock.timers.enable({ apis: ["setInterval", "setTimeout"] });
await import("../../../efftam_operator/web/main.js");

const STATUS = { op: "status", camera: "alive", tracker: "alive", picture: "", image_silent_s: 0, tracker_silent_s: 0, trackers: ["a"] };
const OFF = { op: "steering", controller: "running", enabled: false, phase: "off", reason: "" };
const ON = { ...OFF, enabled: true, phase: "following" };
// Two targets; the picture fills the view, so that its px are those of the view.
const FIRST = [40, 40, 60, 60], SECOND = [300, 200, 60, 60], FREE = [450, 50, 80, 60];
const target = (id, box, state = "TRACKING", steered = id === 0) => ({
  id, box, state, steered, selection: id + 1, reason: "", measured: true, age_s: 0, behind_s: 0, presence: 0.9, quality: 0.9, likeness: null, velocity: [0, 0], velocity_valid: true,
});

const hear = (message) => socket.onmessage({ data: JSON.stringify(message) });
const settle = () => new Promise((resolve) => setImmediate(resolve));
let stamp = 0n;

/** Time passes, as long as the server speaks. */
function pass(ms) {
  for (let left = ms; left > 0; left -= 200) {
    nowMs += Math.min(left, 200);
    mock.timers.tick(Math.min(left, 200));
    hear(STATUS);
    paint();
  }
}

/** The next picture with what is tracked in it. */
async function picture(...targets) {
  stamp += 1n;
  hear({ op: "track", stamp: stamp.toString(), image: [640, 360], targets, latency_ms: 10 });
  socket.onmessage({ data: pictureMessage(stamp, 1) });
  await settle();
  paint();
}

/** A page that was just admitted, with a picture of these targets. */
async function begin(...targets) {
  point("pointercancel", [0, 0]);
  socket.onclose?.({ code: 1006 });
  mock.timers.tick(10_000);
  nowMs += 10_000;
  socket.onopen();
  hear({ op: "hello", name: "page 1" });
  hear({ op: "seat", holder: "page 1" });
  hear({ op: "limits", buffer_s: 8, max_targets: 4 });
  hear({ ...OFF });
  hear(STATUS);
  document.body.classes.clear();
  await picture(...targets);
  sent();
}

/** What was sent since the last call, without what keeps the link. */
function sent() {
  const found = socket.sent.filter(({ op }) => !["ack", "ping", "hello", "watch"].includes(op));
  socket.sent = [];
  return found.map(({ id, t, ...message }) => message);
}
const words = (found = sent()) => found.map(({ op, stamp: of, target: id, turns }) => [op, of ?? id, ...(turns ? ["turns"] : [])].join(" "));
const look = () => (document.fire("click"), paint());
const mode = () => (look(), $("view").dataset.mode);
const said = () => (look(), $("notices").children.map(({ textContent }) => textContent).join(" | "));
const spoken = () => $("spoken").children.map(({ textContent }) => textContent).join(" | ");
/** Of a question that is not asked nothing can be pressed. */
const press = (id) => (id.startsWith("choice") && $("choice").hidden ? null : $(id).onclick(), look());
const key = (name) => (document.fire("keydown", { key: name, target: new Element(), preventDefault() {} }), paint());

const point = (type, [x, y], ms = 0) => {
  document.fire(type);
  $("view").fire(type, { pointerId: 1, pointerType: "mouse", button: 0, clientX: x, clientY: y, timeStamp: nowMs + ms, preventDefault() {} });
  paint();
};
const tap = (at) => { point("pointerdown", at); point("pointerup", at); };
const down = ([x, y, width, height]) => { point("pointerdown", [x, y]); point("pointermove", [x + width, y + height]); };
const up = ([x, y, width, height]) => point("pointerup", [x + width, y + height]);
const drag = (box) => { down(box); up(box); };
/** The server answers the last command. */
function answered(ok, message = "") {
  const { id } = socket.sent.findLast((one) => one.id !== undefined);
  hear({ op: "answer", id, ok, message });
  paint();
}

const refuse = (of) => { hear({ op: "result", outcome: "REFUSED", stamp: of.toString(), message: "no image near the stamp 1.123456789" }); paint(); };
const propose = (of, box, reason = "") => { hear({ op: "proposal", stamp: of.toString(), box, reason }); paint(); };

test("what is drawn is sent for the picture on which it was begun, which the tracker keeps until the answer", async () => {
  for (const [ok, message, notice] of [[true, "following selection 1", "following selection 1"], [false, "stamp 12.123456789 is gone", "the tracker does not have this picture; draw again"]]) {
    await begin();
    down(FREE);
    const held = stamp;
    await picture();
    up(FREE);
    key(" "); // what was sent is not taken back
    key("Escape");
    assert.equal(mode(), "sent");
    const [, select] = socket.sent.filter(({ op }) => op !== "ack");
    assert.deepEqual({ ...select, id: 0, t: 0 }, { op: "select", id: 0, t: 0, stamp: held.toString(), target: 0, kind: "box", box: FREE, turns: false });
    answered(ok, message);
    assert.deepEqual(words(), [`hold ${held}`, `select ${held}`, "hold 0"]);
    assert.deepEqual([mode(), said()], ["live", notice]);
    assert.ok(spoken().endsWith(notice));
    pass(6200);
    assert.doesNotMatch(said(), /no answer/);
  }
});

test("what ends a drawing lets the picture go, and what comes later does not wake it", async () => {
  const box = FREE;
  for (const [end, notice] of [
    [() => key("Escape"), ""],
    [() => key(" "), ""],
    [() => pass(7800), "this picture is older than the 8 s that the tracker keeps; draw on the live one"],
    [() => hear({ op: "seat", holder: "page 2" }), "page 2 is in control now"],
    [() => hear({ op: "hello", name: "page 1" }), ""],
    [() => point("pointercancel", [box[0], box[1]]), ""],
  ]) {
    await begin();
    down(box);
    end();
    assert.deepEqual(words().filter((one) => one.startsWith("hold")), [`hold ${stamp}`, "hold 0"]);
    assert.deepEqual([mode(), said()], ["live", notice]);
    up(box);
    refuse(stamp);
    assert.deepEqual([words(), mode()], [[], "live"]);
  }
});

test("where the tracker does not have the picture, drawing goes on with a newer one, once a drawing", async () => {
  for (let drawing = 0; drawing < 2; drawing++) {
    await begin();
    down(FREE);
    const held = stamp;
    await picture();
    refuse(held);
    assert.deepEqual(words(), [`hold ${held}`, `hold ${stamp}`]);
    assert.deepEqual([mode(), said()], ["dragging", "a newer picture: see whether the box still fits"]);
    await picture();
    refuse(stamp - 1n);
    assert.deepEqual(words(), ["hold 0"]);
    assert.equal(mode(), "live");
    assert.match(said(), /does not have this picture; draw again/);
  }
});

test("who draws by keys has no limit of time, and what is proposed for the picture before is not taken", async () => {
  await begin();
  key("ArrowLeft");
  key("Enter");
  const first = stamp;
  for (let i = 0; i < 8; i++) {
    await picture();
    pass(1000);
    key("x"); // no action, but somebody is there
  }
  assert.equal(mode(), "corner");
  const moved = words();
  assert.deepEqual(moved.slice(0, 2), [`hold ${first}`, `propose ${first}`]);
  assert.deepEqual(moved.slice(2), [`hold ${stamp}`, `propose ${stamp}`]);
  propose(first, FREE);
  assert.equal(mode(), "corner");
  propose(stamp, [280, 150, 60, 60]);
  key("Enter");
  assert.deepEqual(words(), [`select ${stamp}`]);
  // Where no newer picture comes there is none to go on with.
  await begin();
  key("ArrowLeft");
  key("Enter");
  for (let i = 0; i < 8; i++) {
    pass(1000);
    key("x");
  }
  assert.equal(mode(), "live");
  assert.match(said(), /older than the 8 s/);
});

test("a box of the last size is placed by keys where the last drawing ended, moved and sent", async () => {
  await begin();
  drag(FREE);
  answered(true, "");
  sent();
  for (const name of ["ArrowRight", "r", "ArrowDown"]) key(name);
  assert.equal(mode(), "placed");
  key("Enter");
  const [{ box, stamp: of }] = sent().filter(({ op }) => op === "select");
  assert.deepEqual([box, of], [[491, 81, 80, 60], stamp.toString()]);
});

test("an answer that does not come is said, and one that comes later is no answer to what is drawn then", async () => {
  for (const [end, notice] of [
    [() => pass(6200), /no answer: see the state/],
    [() => { socket.onclose({ code: 1006 }); paint(); }, /the link was lost before the answer/],
  ]) {
    await begin();
    drag(FREE);
    const { id } = socket.sent.findLast(({ op }) => op === "select");
    end();
    assert.match(said(), notice);
    assert.equal(mode(), "live");
    if (socket.readyState !== 1) await begin();
    down(FREE);
    pass(1000);
    hear({ op: "answer", id, ok: false, message: "late" });
    assert.equal(mode(), "dragging");
    key("Escape");
  }
});

test("two presses of Escape or Clear give up the target that is steered by at both, and never one with a drawing between", async () => {
  const both = [target(0, FIRST), target(1, SECOND, "TRACKING", false)], other = [target(0, FIRST, "TRACKING", false), target(1, SECOND)].map((one) => ({ ...one, steered: one.id === 1 }));
  for (const [steps, wanted] of [
    [[() => key("Escape"), () => key("Escape")], ["clear 0"]],
    [[() => key("Escape"), () => pass(1000), () => key("Escape")], []],
    [[() => key("Escape"), () => key("Escape"), () => key("Escape")], ["clear 0"]],
    [[() => down(FREE), () => key("Escape"), () => key("Escape"), () => key("Escape")], []],
    [[() => key(" "), () => key("Escape"), () => pass(1200), () => key("Escape"), () => key("Escape")], ["clear 0"]],
    [[() => press("clear"), () => pass(400), () => assert.equal($("clear").textContent, "Clear?"), () => press("clear")], ["clear 0"]],
    [[() => press("clear"), () => pass(3000), () => press("clear")], []],
    [[() => press("clear"), () => press("clear"), () => press("clear")], ["clear 0"]],
    [[() => press("clear"), () => picture(...other), () => press("clear")], []],
    [[() => press("clear"), () => picture(...other), () => press("clear"), () => press("clear")], ["clear 1"]],
  ]) {
    await begin(...both);
    for (const step of steps) await step();
    assert.deepEqual(words().filter((one) => one.startsWith("clear")), wanted);
    pass(4000);
    assert.equal($("clear").textContent, "Clear");
  }
});

test("where no target is steered by, Clear ends the only one, and asks which one of several", async () => {
  const [only, other] = [target(3, FIRST, "TRACKING", false), target(4, SECOND, "TRACKING", false)];
  await begin(only);
  press("clear");
  pass(400);
  assert.equal($("clear").textContent, "Clear?");
  press("clear");
  assert.deepEqual(words(), ["clear 3"]);
  await begin(only, other);
  press("clear");
  assert.deepEqual(words(), []);
  assert.match(said(), /list/);
});

test("a tap on another target steers by it; a gimbal that is steered is asked about once, and a drawing ends the question", async () => {
  const both = [target(0, FIRST), target(1, SECOND, "TRACKING", false)], at = [330, 230];
  for (const [state, steps, wanted] of [
    [OFF, [], ["steer_by 1"]],
    [ON, [], []],
    [ON, [() => press("choice-send")], ["steer_by 1 turns"]],
    [ON, [() => key("Enter")], ["steer_by 1 turns"]],
    [ON, [() => press("choice-cancel"), () => key("Enter")], []],
    [ON, [() => key("Escape"), () => press("choice-send")], []],
    [ON, [() => down(FREE), () => key("Escape"), () => press("choice-send")], []],
    [ON, [() => picture(target(0, FIRST)), () => press("choice-send")], []], // it is gone
    [ON, [() => key("Escape"), () => key(" "), () => $("targets").children[1].onclick(), () => mode(), () => key("Enter")], ["steer_by 1 turns"]],
  ]) {
    await begin(...both);
    hear(state);
    tap(at);
    assert.equal(mode(), "live");
    for (const step of steps) await step();
    assert.deepEqual(words().filter((one) => one.startsWith("steer_by")), wanted);
    look();
    const isAsked = !$("choice").hidden && /will turn to it/.test($("choice-text").textContent);
    assert.equal(isAsked, state === ON && !steps.length);
  }
});

test("a drawing beside what is followed replaces or adds as is chosen, and what was lost meanwhile is not replaced", async () => {
  for (const [state, targets, choose, wanted] of [
    [OFF, [target(0, FIRST)], "choice-send", (at) => `select ${at}`],
    [OFF, [target(0, FIRST)], "choice-add", (at) => `select ${at}`],
    [ON, [target(0, FIRST)], "choice-send", (at) => `select ${at} turns`],
    [ON, [target(0, FIRST)], "choice-add", (at) => `select ${at}`],
    [OFF, [target(0, FIRST, "COASTING")], "choice-send", (at) => `select ${at}`],
    [ON, [target(0, FIRST, "COASTING")], "choice-send", (at) => `select ${at} turns`],
    [OFF, [], null, (at) => `select ${at}`],
    [ON, [], "choice-send", (at) => `select ${at} turns`],
    [OFF, [target(0, FIRST, "LOST")], null, (at) => `select ${at}`],
  ]) {
    await begin(...targets);
    hear(state);
    drag(FREE);
    assert.equal(mode(), choose ? "asked" : "sent");
    if (choose) {
      assert.equal($("choice-add").hidden, !targets.length);
      assert.equal(/gimbal/.test($("choice-text").textContent), state === ON);
      press(choose);
    }
    const found = sent();
    assert.deepEqual(words(found).at(-1), wanted(stamp));
    assert.equal(found.at(-1).target, choose === "choice-add" ? 255 : 0);
  }
  // Where none of two is steered by, it is not known which one is replaced.
  await begin(target(0, FIRST, "TRACKING", false), target(1, SECOND, "TRACKING", false));
  drag(FREE);
  key("Enter");
  assert.deepEqual([mode(), $("choice-send").hidden], ["asked", true]);
  press("choice-add");
  assert.equal(sent().at(-1).target, 255);
  await begin(target(0, FIRST));
  down(FREE);
  await picture(target(0, FIRST, "LOST"));
  up(FREE);
  assert.deepEqual([mode(), words().at(-1)], ["sent", `select ${stamp - 1n}`]);
});

test("a tap asks for a proposal, which is followed by a tap in it unless it is what is followed", async () => {
  await begin();
  tap([200, 100]);
  assert.deepEqual([words(), mode()], [[`hold ${stamp}`, `propose ${stamp}`], "corner"]);
  propose(stamp, null, "the network finds nothing there");
  assert.deepEqual([mode(), said()], ["corner", "no proposal: the network finds nothing there"]);
  propose(stamp, [180, 80, 80, 50]);
  assert.equal(mode(), "proposed");
  press("choice-point");
  const { points, labels } = sent().at(-1);
  assert.deepEqual([points, labels], [[[200, 100]], [1]]);
  await begin(target(0, [180, 80, 80, 50]));
  tap([210, 92]);
  propose(stamp, [182, 82, 70, 44]);
  assert.deepEqual([mode(), said()], ["live", "this target is followed; draw a box to follow another part"]);
});

const offer = (of, box, id = 0) => { hear({ op: "proposal", stamp: of.toString(), box, reason: "", target: id, lost: true }); paint(); };

test("where a lost target may be, one press of the button or in the box follows it", async () => {
  for (const isOn of [false, true]) {
    for (const choose of [() => press("choice-send"), () => tap([470, 70]), () => tap([440, 45])]) {
      await begin(target(0, FIRST, "LOST"));
      if (isOn) hear(ON);
      offer(stamp, FREE);
      look();
      assert.equal($("choice-text").textContent, `Is this the lost target?${isOn ? " The gimbal will turn to it" : ""}`);
      choose();
      const selected = sent().filter(({ op }) => op === "select");
      assert.deepEqual(selected, [{ op: "select", stamp: stamp.toString(), target: 0, kind: "box", box: FREE, turns: isOn }]);
      assert.equal(mode(), "live");
      assert.equal($("choice").hidden, true);
    }
  }
});

test("a place is offered only for the lost target, for a second, and not again once it was declined", async () => {
  const isOffered = () => (look(), !$("choice").hidden);
  await begin(target(0, FIRST));
  offer(stamp, FREE);
  assert.equal(isOffered(), false);
  await begin(target(0, FIRST, "LOST"));
  offer(stamp, FREE, 1);
  assert.equal(isOffered(), false);
  offer(stamp, FREE);
  assert.equal(isOffered(), true);
  pass(1200);
  assert.equal(isOffered(), false);
  offer(stamp, FREE);
  drag([300, 250, 60, 60]);
  assert.equal(sent().filter(({ op }) => op === "select")[0].box[0], 300);
  await begin(target(0, FIRST, "LOST"));
  offer(stamp, FREE);
  press("choice-cancel");
  offer(stamp, FREE);
  assert.deepEqual([isOffered(), sent().filter(({ op }) => op === "select")], [false, []]);
  await picture(target(0, FIRST));
  await picture(target(0, FIRST, "LOST"));
  offer(stamp, FREE);
  assert.equal(isOffered(), true);
});

test("a gimbal that is steered is asked about after what is proposed, and Cancel sends nothing", async () => {
  for (const [choose, wanted] of [["choice-send", ["select turns"]], ["choice-cancel", []]]) {
    await begin();
    hear(ON);
    tap([200, 100]);
    propose(stamp, [180, 80, 80, 50]);
    tap([240, 120]);
    assert.deepEqual([mode(), $("choice-text").textContent], ["asked", "The gimbal is steered: it will turn to this"]);
    press(choose);
    const selected = sent().filter(({ op }) => op === "select");
    assert.deepEqual(selected.map(({ op, turns }) => (turns ? `${op} turns` : op)), wanted);
    assert.equal(mode(), wanted.length ? "sent" : "live");
  }
});

test("a first press of Steer is taken back by whatever is drawn, and by another server", async () => {
  for (const step of [() => down(FREE), () => tap([200, 100]), () => (key("ArrowLeft"), key("Enter")), () => hear({ op: "hello", name: "page 1" })]) {
    await begin();
    press("steer");
    assert.equal($("steer").textContent, "Press again to steer");
    step();
    assert.equal($("steer").textContent, "Steer");
  }
});

test("a long press opens a target's menu, which is of the target as it is now and ends with it", async () => {
  const both = [target(0, FIRST), target(1, SECOND, "TRACKING", false)];
  const long = ([x, y, width, height]) => { point("pointerdown", [x + width / 2, y + height / 2]); point("pointerup", [x + width / 2, y + height / 2], 900); };
  for (const [steps, wanted] of [
    [[], []],
    [[() => press("choice-remove")], ["clear 1"]],
    [[() => press("choice-send")], ["steer_by 1 turns"]],
    [[() => press("choice-cancel"), () => key("Enter")], []],
    [[() => press("choice-remove"), () => key("Escape"), () => key("Escape")], ["clear 1", "clear 0"]],
    [[() => key("Escape"), () => key("Escape")], []],
    [[() => picture(both[0]), () => picture(...both), () => press("choice-remove")], []],
  ]) {
    await begin(...both);
    long(SECOND);
    assert.deepEqual([mode(), $("choice").hidden, $("choice-remove").hidden], ["live", false, false]);
    for (const step of steps) await step();
    assert.deepEqual(words().filter((one) => /^(clear|steer_by)/.test(one)), wanted);
    pass(1100);
  }
});

test("what is said goes with what it was of", async () => {
  const followed = target(0, FIRST), cleared = { op: "result", outcome: "CLEARED", stamp: "0", message: "" };
  for (const [steps, wanted] of [
    [[() => hear(cleared)], "the target was cleared"],
    [[() => hear({ ...cleared, message: "by efftam select" })], "by efftam select"],
    [[() => hear(cleared), () => picture(followed)], "the target was cleared"],
    [[() => hear(cleared), () => picture(target(0, FIRST, "LOST"))], ""],
    [[() => hear(cleared), () => picture(target(0, FIRST, "IDLE"))], ""],
    [[() => hear({ op: "seat", holder: "page 2" })], "page 2 is in control now"],
    [[() => hear({ op: "seat", holder: "page 2" }), () => hear({ op: "seat", holder: "page 1" })], ""],
    [[() => hear({ op: "seat", holder: "page 2" }), () => down(FREE)], "view only: take over to select | page 2 is in control now"],
    [[() => hear({ op: "result", outcome: "REFUSED", stamp: "1", message: "decided later: nothing there" })], "decided later: nothing there"],
    [[() => hear({ op: "hello", name: "page 1" }), () => key("s")], ""], // no gimbal is known
    [[() => press("stop"), () => pass(1600)], "STOP is not answered; press again, or stop the gimbal by other means"],
    [[() => press("stop"), () => answered(true), () => pass(1600)], ""],
    [[() => { hear({ op: "over", message: "the video has ended; 3 pictures" }); socket.onclose({ code: 4000 }); }, () => press("clear"), () => press("clear")], "the video has ended: nothing was sent"],
  ]) {
    await begin(followed);
    for (const step of steps) await step();
    assert.equal(said(), wanted);
  }
});

test("a camera or tracker that is silent is alive again by what came since", async () => {
  for (const [silent, steps, wanted] of [
    [{ camera: "stopped", image_silent_s: 3 }, [], "UNKNOWN"],
    [{ camera: "stopped", image_silent_s: 3 }, [() => hear(STATUS)], "TRACKING"],
    [{ camera: "stopped", image_silent_s: 3 }, [() => picture(target(0, FIRST))], "TRACKING"],
    [{ tracker: "silent", tracker_silent_s: 3 }, [], "UNKNOWN"],
    [{ tracker: "silent", tracker_silent_s: 3 }, [() => picture(target(0, FIRST))], "TRACKING"],
    [{ tracker: "inactive", tracker_silent_s: 3 }, [() => picture(target(0, FIRST))], "UNKNOWN"],
  ]) {
    await begin(target(0, FIRST));
    nowMs += 10;
    hear({ ...STATUS, ...silent });
    nowMs += 10;
    for (const step of steps) await step();
    look();
    assert.equal($("state").textContent, wanted);
  }
});

test("an idle picture says what to do, by mouse or keys, while somebody may do it", async () => {
  const mouse = "Draw a box around the target, or tap it", keys = "Arrows to the target, then Enter";
  for (const [steps, wanted] of [
    [[], mouse],
    [[() => document.body.classList.add("keys")], keys],
    [[() => key(" ")], keys],
    [[() => press("freeze")], mouse],
    [[() => key(" "), () => down(FREE)], null],
    [[() => key(" "), () => key(" ")], keys],
    [[() => down(FREE)], null],
    [[() => picture(target(0, FIRST))], null],
    [[() => picture(target(0, FIRST, "IDLE"))], mouse],
    [[() => hear({ op: "seat", holder: "page 2" })], null],
    [[() => hear({ ...STATUS, camera: "stopped", image_silent_s: 3 })], null],
  ]) {
    await begin();
    for (const step of steps) await step();
    look();
    assert.equal($("hint").hidden ? null : $("hint").textContent, wanted);
    assert.equal($("freeze").attributes.get("aria-pressed"), String(mode() !== "live"));
  }
});

test("beside the state one line says what is known of the target, and how late the tracker is", async () => {
  const one = target(0, FIRST), known = { ...one, velocity: [30, 40] };
  for (const [targets, wanted, title, before = () => {}] of [
    [[known], "sure · 50\u00a0px/s", "TRACKING"],
    [[{ ...known, presence: 0.6 }], "fairly sure · 50\u00a0px/s", "TRACKING"],
    [[{ ...known, presence: 0.4, velocity: [0.2, 0.3] }], "not sure · stands still", "TRACKING"],
    [[{ ...known, velocity_valid: false }], "sure", "TRACKING"],
    [[{ ...one, velocity_valid: false, presence: null, quality: null }], "", "TRACKING"],
    [[{ ...known, reason: "draw again" }], "draw again", "TRACKING"],
    [[{ ...known, state: "ACQUIRING", reason: "weak selection" }], "selected; confirming · weak selection", "ACQUIRING"],
    [[{ ...one, state: "COASTING", measured: false, age_s: 0.5, velocity_valid: false }], "not seen for 0.5 s; the box is predicted", "COASTING"],
    [[{ ...one, state: "LOST", measured: false, age_s: 2.5, reason: "it left" }], "lost 2.5 s ago; searching", "LOST 2 s"],
    [[{ ...one, state: "LOST", measured: false, age_s: 200 }], "lost 3 min ago; searching", "LOST 200 s"],
    [[known, target(1, SECOND, "LOST", false)], "sure · 50\u00a0px/s", "TRACKING"],
    [[{ ...known, steered: false }, target(1, SECOND, "LOST", true)], "lost 0.0 s ago; searching", "LOST 0 s"],
    [[{ ...one, steered: false }], "no target is steered; tap one", "IDLE"],
    [[], "", "IDLE"],
    [[known], "was TRACKING", "TRACKER SILENT", () => hear({ ...STATUS, tracker: "silent", tracker_silent_s: 3 })],
  ]) {
    await begin(...targets);
    nowMs += 10;
    before();
    look();
    assert.equal($("detail").textContent, wanted);
    assert.equal(document.title, `${title} · Target tracker`);
  }
  for (const [behind_s, wanted] of [[0, ""], [0.7, "tracker 0.7 s behind"]]) {
    await begin({ ...one, behind_s });
    look();
    assert.equal($("behind").textContent, wanted);
  }
});

test("what changes is spoken once, and a reason that was pressed is shown until it is another", async () => {
  const coasting = { ...target(0, FIRST, "COASTING"), reason: "less like it 0.31" };
  await begin(target(0, FIRST));
  await picture(coasting);
  look();
  await picture(coasting);
  assert.ok(spoken().endsWith("TRACKING | COASTING: less like it 0.31"));
  press("detail");
  const full = "not seen for 0.0 s; the box is predicted: less like it 0.31";
  for (const [reason, wanted] of [["less like it 0.29", full], ["the target left", ""]]) {
    await picture({ ...coasting, reason });
    assert.equal(said(), wanted);
  }
  hear({ ...ON, reason: "at its stop since 1.2 s" });
  press("steering-text");
  for (const [reason, wanted] of [["at its stop since 1.4 s", "GIMBAL FOLLOWING: at its stop since 1.2 s"], ["", ""]]) {
    hear({ ...ON, reason });
    assert.equal(said(), wanted);
  }
});

test("a place that was declined is offered by a server that was started anew, and none of the server before is", async () => {
  const isOffered = () => (look(), !$("choice").hidden);
  await begin(target(0, FIRST, "LOST"));
  offer(stamp, FREE);
  press("choice-cancel");
  await begin(target(0, FIRST, "LOST"));
  assert.equal(isOffered(), false);
  offer(stamp, FREE);
  assert.equal(isOffered(), true);
  hear({ op: "hello", name: "page 1" });
  hear({ op: "seat", holder: "page 1" });
  await picture(target(0, FIRST, "LOST"));
  assert.equal(isOffered(), false);
});

test("nothing is left of the server before", async () => {
  await begin(target(0, FIRST));
  hear({ op: "progress", frame: 3, count: 9, video_s: 0.3 });
  hear({ op: "result", outcome: "REFUSED", stamp: "1", message: "why" });
  press("clear");
  assert.deepEqual([$("state").textContent, $("age").textContent, said()], ["TRACKING", "0:00.3 · 4 of 9", "why"]);
  hear({ op: "hello", name: "page 1" });
  hear({ ...STATUS });
  pass(1);
  assert.deepEqual([$("state").textContent, $("age").textContent, said()], ["UNKNOWN", "delay unknown", ""]);
});
