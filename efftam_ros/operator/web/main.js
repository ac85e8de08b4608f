// Brings the page together: what arrives is shown, what a person does is sent.

import { STATES } from "./palette.js";
import { GREY, rootCause } from "./causes.js";
import { Drawing } from "./drawing.js";
import { Alarm } from "./alarm.js";
import { Frames } from "./frames.js";
import { Tracks } from "./tracks.js";
import { Viewport } from "./geometry.js";
import { bindKeys, bindPointer } from "./input.js";
import { Link } from "./link.js";
import { notify, say, showBanners } from "./notices.js";
import { History, Plots } from "./plots.js";
import { SteeringPanel } from "./steering.js";
import { TargetList, areMany, followedOf, speedOf, steeredOf, targetAt, targetUnder } from "./targets.js";
import { BEHIND_S, View } from "./view.js";
import { selectMessage } from "./wire.js";

const ESCAPES_MS = 1000;
// Pictures that are small for so long are so by the link: the first ones always are.
const SMALL_MS = 1000;
const CLEAR_MS = 3000;
const ANSWER_MS = 6000;
// A key in this time: somebody draws by keys.
const KEYED_MS = 5000;
// A finger takes what is so far beside it, in px of the view.
const REACH_PX = 10;
// In place of a target's id: the one that is steered by, and a new one.
const STEERED = 0, NEXT_FREE = 255;

const $ = (id) => document.getElementById(id);
const seconds = () => performance.now() / 1000;

const token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";
const link = new Link(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`, token);
const frames = new Frames((seq) => link.send({ op: "ack", seq }));
const tracks = new Tracks();
const viewport = new Viewport();
const view = new View($("view"), viewport);
const drawing = new Drawing();
const alarm = new Alarm();
const history = new History();
const plots = new Plots($("plot"));
const list = new TargetList($("targets"), (id) => openMenu(id, true));
const steering = new SteeringPanel((action) => command({ op: "steer", action }), (text) => notify(text, true));

let hello = null; // what the server said of itself and of this page
let limits = { buffer_s: null, max_targets: 1 }; // the tracker's
let holder = null;
let status = null;
let newest = null; // the newest track
let statusMs = 0;
let newestMs = 0;
let cause = null; // why what is shown may not be true any more
const isGrey = (part) => cause !== null && GREY[cause.id].includes(part);
let lensOn = false;
let drawnBy = "mouse";
let escapedMs = -Infinity;
let cancelledMs = -Infinity; // the last Escape of those that gave up a drawing
let keyedMs = -Infinity; // the last key
let clearMs = -Infinity;
let commands = 0;
let isHeld = false; // the tracker was asked to keep the frozen image
let isSecond = false; // held in place of an image that the tracker did not have
let stale = true; // something has changed since the last painting
let menu = null; // {id, mayRemove}: the target that is asked about
let asked = {}; // of what is drawn: {target, turns, mayReplace, mayAdd, addTurns}, see `choices`
let awaited = null; // {id, ms} of the selection whose answer we wait for

const mayCommand = () => hello !== null && (holder === null || holder === hello.name);
// Who only views may look at a held picture for as long as he likes.
const bufferS = () => (mayCommand() ? limits.buffer_s : null);

// What arrives

const RECEIVE = {
  hello(message) {
    // A server that was started anew counts from the beginning.
    hello = message;
    frames.forget();
    tracks.forget();
    steering.forget();
    abandon();
    watch();
  },
  seat(message) {
    if (holder !== null && holder === hello?.name && message.holder !== holder) {
      notify(`${message.holder ?? "nobody"} has the seat now`);
      abandon();
    }
    holder = message.holder;
  },
  limits: (message) => { limits = message; },
  status(message) {
    status = message;
    statusMs = performance.now();
  },
  track(message) {
    tracks.add(message);
    history.add(message);
    newest = message;
    newestMs = performance.now();
  },
  answer(message) {
    steering.answered(message.id);
    const wasAwaited = awaited?.id === message.id;
    if (wasAwaited) {
      awaited = null;
      goLive();
    }
    if (message.message && (wasAwaited || !message.ok || message.id)) notify(plain(message.message), !message.ok);
  },
  result(message) {
    if (message.outcome === "REFUSED") {
      const isGone = message.stamp === drawing.frame?.stamp.toString() && drawing.mode !== "sent";
      // Some images get lost on their way to the tracker.
      if (isGone && !isSecond && (isSecond = renew(performance.now()))) return;
      notify(plain(message.message), true);
      if (isGone) goLive();
    }
    else if (message.outcome === "CLEARED") notify(message.message || "the target was cleared");
  },
  proposal({ stamp, box, reason }) {
    if (!drawing.wants(BigInt(stamp))) return;
    if (!box) return notify(`no proposal: ${reason}`);
    const [x, y, width, height] = box;
    drawing.propose(drawing.frame.stamp, { x, y, width, height });
  },
  steering: (message) => steering.update(message),
};

/** A page that nobody sees takes no pictures. */
const watch = () => link.send({ op: "watch", action: document.hidden ? "hide" : "show" });
document.addEventListener("visibilitychange", watch);

link.addEventListener("message", ({ detail }) => RECEIVE[detail.op]?.(detail));
link.addEventListener("frame", ({ detail }) => {
  try {
    frames.add(detail);
  } catch (error) {
    notify(error.message, true);
  }
});
link.addEventListener("lost", () => {
  if (awaited) notify("the link was lost before the answer; see the state for what is followed", true);
  awaited = null;
  abandon();
});
frames.addEventListener("whole", ({ detail: { stamp, bitmap } }) => {
  if (drawing.frame?.stamp === stamp) drawing.frame = { ...drawing.frame, bitmap, isSmall: false };
});
frames.addEventListener("unreadable", () => notify("a picture could not be decoded", true));

/** The track that badge, box, banner and title speak of: that of the picture shown, where pictures come. */
function told() {
  const ofPicture = frames.shown && cause?.id !== "picture" ? tracks.of(frames.shown.stamp) : null;
  return ofPicture ?? newest;
}

const stateOf = (track) => (!track || isGrey("badge") ? "UNKNOWN" : steeredOf(track)?.state ?? "IDLE");

function showState() {
  const track = told();
  const target = steeredOf(track);
  const word = stateOf(track);
  const badge = $("state");
  if (badge.dataset.state !== word) {
    badge.dataset.state = word;
    badge.textContent = word;
    badge.style.background = STATES[word]?.colour ?? "";
    if (word !== "UNKNOWN") say(word + (target?.reason ? `: ${target.reason}` : ""));
  }
  const parts = [];
  // A reason speaks for itself; the seconds are at the box as well.
  if (target && target.state !== "IDLE" && !target.reason) {
    if (!target.measured && target.age_s !== null) parts.push(`unseen ${target.age_s.toFixed(1)} s`);
    if (target.presence !== null) parts.push(`presence ${target.presence.toFixed(2)}`);
    if (target.likeness !== null) parts.push(`likeness ${target.likeness.toFixed(2)}`);
    if (target.measured && target.quality !== null) parts.push(`quality ${target.quality.toFixed(2)}`);
    const speed = speedOf(target);
    if (speed !== null) parts.push(`${Math.round(speed)} px/s`);
  }
  if (target?.reason) parts.unshift(target.reason);
  if (!target && followedOf(track).length) parts.push("no target is steered by; tap one");
  $("detail").textContent = !isGrey("presence") ? parts.join(" · ") : target ? `was ${target.state}` : "";
  const { shown } = frames;
  const ageMs = shown ? link.clock.ageMs(shown.stamp, isGrey("age") ? performance.now() : shown.arrivedMs) : null;
  const age = ageMs >= 1000 ? `${(ageMs / 1000).toFixed(1)} s` : `${Math.round(ageMs)} ms`;
  $("age").textContent = !shown ? "" : ageMs === null ? "age unknown" : age;
  // As the label of the box has it.
  const behindS = (shown && track?.behindS || 0) + (target?.behind_s ?? 0);
  $("behind").textContent = behindS >= BEHIND_S && !isGrey("box") ? `tracker ${behindS.toFixed(1)} s behind` : "";
  const unseenS = target && target.age_s !== null ? target.age_s + (performance.now() - newestMs) / 1000 : null;
  alarm.see(word, target?.id ?? null, unseenS, performance.now());
  document.title = `${cause ? cause.word : alarm.isLost && unseenS !== null ? `LOST ${Math.floor(unseenS)} s` : word} · Target tracker`;
}

// What a person does

/** Nobody at a page copies a stamp from an image. */
const plain = (text) => (/\d\.\d{9}\b/.test(text) ? "the tracker does not have this picture; draw again" : text);

const notSent = () => `${link.over || "no link"}: nothing was sent`;

/** The id of the command sent; null where it was not sent, which is said. */
function command(message) {
  const id = `c${++commands}`;
  if (link.send({ ...message, id })) return id;
  notify(notSent(), true);
  return null;
}

/** Freeze what is on the screen now; false where nothing can be selected. */
function freeze(byHand) {
  const frame = view.painted;
  if (!frame) return false;
  if (drawing.isFrozen) {
    if (byHand) drawing.byHand = true;
    return true;
  }
  const ageMs = link.clock.ageMs(frame.stamp, performance.now());
  drawing.freeze({ ...frame, ageS: ageMs === null ? null : ageMs / 1000 }, seconds(), byHand);
  isSecond = false;
  hold();
  return true;
}

/** The tracker keeps the frozen image; the server sends it in its whole size. */
function hold() {
  const { isSmall, stamp } = drawing.frame;
  isHeld = mayCommand() && link.send({ op: "hold", stamp: stamp.toString() });
  if (isSmall) link.send({ op: "whole", stamp: stamp.toString() });
}

function goLive() {
  drawing.live();
  letGo();
}

function abandon() {
  drawing.cancel();
  if (!drawing.isFrozen) letGo();
}

function letGo() {
  if (isHeld) link.send({ op: "hold", stamp: "0" });
  isHeld = false;
}

/** What may become of a selection: it replaces `target`, and a gimbal that is steered `turns`; or it is added. */
function choices(selection) {
  const targets = followedOf(tracks.of(selection.stamp) ?? newest), steered = targets.find((one) => one.steered);
  const drawnOn = targetUnder(targets, selection);
  const isOther = drawnOn && !drawnOn.steered && drawnOn.id !== STEERED;
  return {
    target: isOther ? drawnOn.id : STEERED,
    turns: steering.isOn && !isOther,
    mayReplace: isOther || steered !== undefined || targets.length < 2,
    mayAdd: !drawnOn && targets.length > 0 && targets.length < limits.max_targets && steered?.state !== "LOST",
    addTurns: steering.isOn && !steered,
  };
}

/** `as`: "replace" or "add" once that was chosen, and agreed to that a gimbal that is steered turns. */
function send(selection, as = null) {
  if (!selection) return;
  if (selection.tooSmall) {
    const { width, height } = selection.tooSmall;
    notify(`the box is ${width.toFixed(1)} x ${height.toFixed(1)} px; draw at least 4 x 4, zoom in for more`, true);
    return;
  }
  if (!as) {
    asked = choices(selection);
    if (drawing.mode === "sent" && (asked.turns || asked.mayAdd)) {
      drawing.ask();
      return;
    }
  }
  const target = as === "add" ? NEXT_FREE : asked.target;
  const turns = as === "add" ? asked.addTurns : as === "replace" && asked.turns;
  awaited = { id: `c${++commands}`, ms: performance.now() };
  if (!link.send({ ...selectMessage(awaited.id, selection.stamp, selection, target), turns })) {
    notify(notSent(), true);
    awaited = null;
    goLive();
  }
}

const inside = (at) => viewport.toImageInside(at);

const POINTER = {
  press(at, kind) {
    drawnBy = kind;
    if (drawing.mode === "sent") return false;
    if (!mayCommand()) {
      notify(hello ? "view only: take over to select" : "no link yet", true);
      return false;
    }
    if (!freeze(false)) return false;
    menu = null;
    steering.disarm();
    drawing.press(inside(at));
    return true;
  },
  move: (at) => drawing.move(inside(at)),
  hover: (at) => drawing.move(inside(at)),
  release(at, far, tapPx, isLong) {
    if (drawing.isFirstPress && pressTarget(inside(at), far, isLong)) return;
    const near = (a, b) => Math.hypot(a.x - b.x, a.y - b.y) * viewport.scale <= 2 * tapPx;
    send(drawing.release(inside(at), far, near));
    if (drawing.mode === "corner") askForProposal();
  },
  abandon,
};

bindPointer(view.canvas, viewport, POINTER);

function toggleFreeze() {
  if (drawing.isFrozen) {
    if (drawing.mode !== "sent") goLive();
  } else freeze(true);
}

/** What would a point there select? Without an answer the point can be sent all the same. */
function askForProposal() {
  const point = { points: [drawing.start], labels: [1] };
  link.send({ ...selectMessage(`c${++commands}`, drawing.frame.stamp, point), op: "propose" });
}

/** A press on a target: steers by it, or opens its menu when it is long; false where it is none of these. */
function pressTarget(point, far, isLong) {
  const targets = followedOf(tracks.of(drawing.frame.stamp) ?? newest);
  if (limits.max_targets < 2 && !areMany(targets)) return false;
  const target = targetAt(targets, point, REACH_PX / viewport.scale);
  if (!target || (isLong ? false : far || target.steered)) return false;
  goLive();
  if (isLong) openMenu(target.id, true);
  else steerBy(target.id);
  return true;
}

function openMenu(id, mayRemove) {
  if (!mayCommand()) return;
  abandon();
  menu = { id, mayRemove };
  showChoice();
  if (document.body.classList.contains("keys")) $("choice").querySelector("button:not([hidden])").focus();
}

function steerBy(id, isAgreed = false) {
  menu = null;
  if (steering.isOn && !isAgreed) openMenu(id, false);
  else command({ op: "steer_by", target: id, turns: isAgreed });
}

function clear() {
  if (hello) command({ op: "clear", target: steeredOf(told())?.id ?? STEERED });
}

function escape() {
  const now = performance.now();
  const isDrawing = drawing.isFrozen;
  if (isDrawing && drawing.mode !== "sent") abandon();
  if (menu) {
    menu = null;
    return;
  }
  // Whoever gives up a drawing, with however many presses, keeps the target.
  if (isDrawing || now - cancelledMs < ESCAPES_MS) {
    cancelledMs = now;
    return;
  }
  const twice = now - escapedMs < ESCAPES_MS;
  escapedMs = twice ? -Infinity : now;
  if (twice) clear();
}

function confirm() {
  if (!mayCommand()) return;
  if (menu) return steerBy(menu.id, true);
  if (!drawing.isFrozen && !freeze(false)) return;
  steering.disarm();
  if (drawing.mode === "asked" && !asked.mayReplace) return;
  const { mode } = drawing, as = mode === "asked" ? "replace" : null;
  send(drawing.confirm(), as);
  if (mode === "frozen" && drawing.mode === "corner") askForProposal();
}

function placeLast() {
  if (!mayCommand()) return;
  if (drawing.isFrozen || freeze(false)) drawing.place();
}

const middle = () => ({ x: viewport.view.width / 2, y: viewport.view.height / 2 });

function toggle(button, isOn) {
  button.setAttribute("aria-pressed", String(isOn));
  return isOn;
}

function toggleLens() {
  lensOn = toggle($("lens"), !lensOn);
}

// A phone that is turned keeps what was chosen for each way.
const plotsShown = { tall: true, short: false };
const height = () => (window.innerHeight < 600 ? "short" : "tall");

function togglePlots() {
  plotsShown[height()] = !plotsShown[height()];
  showPlots();
}

function showPlots() {
  $("plots").hidden = !toggle($("plots-button"), plotsShown[height()]);
  paintPlots();
}

function toggleFull() {
  if (document.fullscreenElement) document.exitFullscreen();
  else document.documentElement.requestFullscreen?.();
}

const KEYS = {
  " ": toggleFreeze,
  Enter: confirm,
  Escape: escape,
  r: placeLast,
  z: toggleLens,
  "+": () => viewport.zoomAt(1.5, middle()),
  "=": () => viewport.zoomAt(1.5, middle()),
  "-": () => viewport.zoomAt(1 / 1.5, middle()),
  0: () => viewport.reset(),
  p: togglePlots,
  f: toggleFull,
  s: () => steering.isThere && steering.stop(),
  "?": () => $("help").showModal(),
};
// The gimbal can be stopped while somebody reads.
bindKeys(KEYS, (dx, dy) => drawing.nudge(dx, dy, viewport.image), "s");

$("freeze").onclick = toggleFreeze;
$("clear").onclick = () => {
  const now = performance.now();
  if (now - clearMs < CLEAR_MS) {
    clearMs = -Infinity;
    clear();
  } else {
    clearMs = now;
  }
};
$("zoom-in").onclick = KEYS["+"];
$("zoom-out").onclick = KEYS["-"];
$("zoom-fit").onclick = KEYS[0];
$("lens").onclick = toggleLens;
$("plots-button").onclick = togglePlots;
$("sun").onclick = () => toggle($("sun"), document.body.classList.toggle("sun"));
$("sound").onclick = () => toggle($("sound"), alarm.toggle());
$("full").onclick = toggleFull;
$("help-button").onclick = KEYS["?"];
$("detail").title = $("numbers").textContent;
$("help-close").onclick = () => $("help").close();
$("choice-point").onclick = () => send(drawing.confirmPoint());
$("choice-send").onclick = confirm;
$("choice-add").onclick = () => send(drawing.confirm(), "add");
$("choice-remove").onclick = () => {
  command({ op: "clear", target: menu.id });
  menu = null;
};
$("choice-cancel").onclick = () => {
  if (menu) menu = null;
  else goLive();
};

// Every frame of the screen

function findCause(nowMs) {
  if (link.over) return null;
  const { shown } = frames;
  // What came after the last status speaks for itself.
  const now = status && { ...status };
  if (now && shown?.arrivedMs > statusMs) now.camera = "alive";
  if (now && newestMs > statusMs && now.tracker === "silent") now.tracker = "alive";
  return rootCause({
    refused: link.refused,
    linkS: link.isSilent(nowMs) || !hello ? (nowMs - link.heardMs) / 1000 : null,
    status: now,
    sinceS: (nowMs - statusMs) / 1000,
    // What is held is old by intention.
    pictureS: drawing.isFrozen ? 0 : pictureS(nowMs),
    gimbal: steering.fault(nowMs),
  });
}

/** Age of the picture shown, s; null where there is none. */
function pictureS(nowMs) {
  if (!frames.shown) return null;
  const { stamp, arrivedMs } = frames.shown;
  return Math.max(nowMs - arrivedMs, link.clock.ageMs(stamp, nowMs) ?? 0) / 1000;
}

function currentBanners(nowMs) {
  if (link.over) return { over: { word: "OVER", text: link.over } };
  const banners = {};
  if (cause) banners[cause.id] = cause;
  if (cause?.id === "link") return banners;
  // Who moves the gimbal fails on his own, whatever the camera does.
  const fault = steering.fault(nowMs);
  if (fault) banners.gimbal = fault;
  const alarming = isGrey("badge") ? null : alarm.banner(nowMs);
  if (alarming) banners.alarm = alarming;
  if (drawing.isFrozen) {
    const left = drawing.secondsLeft(bufferS(), seconds());
    const text = drawing.mode === "sent" ? "waiting for the answer" : left === null ? "the picture is held" : `${Math.max(0, Math.ceil(left))} s left to select on this picture`;
    banners.frozen = { word: "FROZEN", text };
  }
  if (frames.smallMs !== null && nowMs - frames.smallMs > SMALL_MS && (drawing.frame ?? frames.shown).isSmall) {
    banners.small = { word: "small picture:", text: "slow link" };
  }
  if (hello && !mayCommand()) {
    const button = { label: "Take over", press: () => link.send({ op: "seat", action: "take" }) };
    banners.view = { word: "VIEW ONLY", text: `${holder} has the seat`, button };
  }
  return banners;
}

/** What is asked of a drawing: {text, send} with the label of the button that sends it, null for none. */
function drawingChoice() {
  const { mode } = drawing, byKeys = document.body.classList.contains("keys");
  if (mode === "corner") {
    const text = !byKeys ? "Tap again to take this point, or tap the opposite corner of a box" : drawing.isKeyed ? "Arrows draw the box, Enter sends it" : "Enter again takes this point; arrows draw a box from here";
    return { text, send: null };
  }
  if (mode === "proposed") return { text: `Follow this? ${byKeys ? "Enter; arrows draw another box" : "Tap it, or the opposite corner of another box"}`, send: "Follow" };
  if (mode === "placed") return { text: drawing.isBetweenTaps ? "A box between the two taps?" : "Move the box with the arrows, then send it", send: "Send" };
  if (mode !== "asked") return null;
  const turn = "The gimbal is steered: it will turn to this";
  if (!asked.mayAdd) return { text: turn, send: "Turn to it" };
  if (!asked.mayReplace) return { text: `Follow this as well?${asked.addTurns ? ` ${turn}` : ""}`, send: null };
  return { text: `Follow this instead${asked.turns ? " (the gimbal will turn to it)" : ""}, or as well?`, send: "Replace" };
}

function menuChoice() {
  const target = followedOf(told()).find(({ id }) => id === menu.id);
  if (!target) return null;
  const turn = steering.isOn && !target.steered;
  return {
    text: `Target ${target.id}: ${turn && !menu.mayRemove ? "the gimbal is steered and will turn to it" : target.state}`,
    send: target.steered ? null : turn ? "Turn to it" : "Steer by it",
    remove: menu.mayRemove,
  };
}

function showChoice() {
  const choice = menu ? menuChoice() : drawingChoice();
  if (!choice) menu = null;
  $("choice").hidden = !choice;
  if (!choice) return;
  const { mode } = drawing, drawn = menu ? null : drawing.shownBox ?? { ...drawing.mark, height: 0 };
  // Where there is more room: above the drawing and its label, or below.
  const above = drawn && viewport.toView(drawn).y - 80, below = drawn && viewport.view.height - viewport.toView({ x: 0, y: drawn.y + drawn.height }).y;
  $("choice").classList.toggle("high", above > below);
  if ($("choice-text").textContent !== choice.text) say($("choice-text").textContent = choice.text);
  $("choice-point").hidden = menu !== null || (!["corner", "proposed"].includes(mode) && !drawing.isBetweenTaps);
  $("choice-send").hidden = choice.send === null;
  $("choice-send").textContent = choice.send;
  $("choice-add").hidden = menu !== null || mode !== "asked" || !asked.mayAdd;
  $("choice-remove").hidden = !choice.remove;
}

/** Hold a newer picture and keep what is drawn; false where there is none. */
function renew(nowMs) {
  const { shown } = frames;
  if (shown.stamp === drawing.frame.stamp || pictureS(nowMs) > bufferS() / 2) return false;
  drawing.renew({ ...shown, ageS: pictureS(nowMs) }, seconds());
  hold();
  if (drawing.wants(shown.stamp)) askForProposal();
  notify("a newer picture: see whether the box still fits");
  return true;
}

function expire(nowMs) {
  const left = drawing.secondsLeft(bufferS(), seconds());
  const isByKeys = document.body.classList.contains("keys") && nowMs - keyedMs < KEYED_MS;
  if (left !== null && left <= 0 && drawing.mode !== "sent" && !(isByKeys && renew(nowMs))) {
    notify(`this picture is older than the ${bufferS()} s that the tracker keeps; draw on the live one`, true);
    goLive();
  }
  if (awaited && nowMs - awaited.ms > ANSWER_MS) {
    awaited = null;
    notify("no answer: see the state for what is followed now", true);
    goLive();
  }
}

function countdown() {
  const left = drawing.secondsLeft(bufferS(), seconds());
  return left === null || drawing.mode === "sent" ? null : { share: Math.max(0, left / bufferS()), seconds: Math.max(0, left) };
}

function lensAt() {
  const atWork = drawing.mode === "dragging" && drawnBy !== "mouse";
  return drawing.cursor && drawing.mode !== "sent" && (atWork || lensOn) ? drawing.cursor : null;
}

function paint() {
  requestAnimationFrame(paint);
  expire(performance.now());
  if (!stale) return;
  stale = false;
  const frame = drawing.frame ?? frames.shown;
  const byKeys = document.body.classList.contains("keys") && document.activeElement === view.canvas;
  view.paint({
    frame,
    track: frame ? tracks.of(frame.stamp) : undefined,
    drawing,
    lensAt: lensAt(),
    left: countdown(),
    isGrey: isGrey("box"),
    proposedS: drawing.mode === "proposed" ? drawing.ageS(seconds()) : null,
    cursor: byKeys && ["live", "frozen", "corner"].includes(drawing.mode) ? drawing.cursor : null,
  });
  showState();
  view.canvas.dataset.stamp = frame ? frame.stamp.toString() : "";
  view.canvas.dataset.width = frame?.bitmap.width ?? "";
  view.canvas.dataset.mode = drawing.mode;
  view.canvas.dataset.zoom = viewport.zoom.toFixed(2);
  frames.release(frame?.bitmap);
}

function paintSlowly() {
  const nowMs = performance.now();
  const before = cause;
  cause = findCause(nowMs);
  stale ||= before?.id !== cause?.id;
  steering.hasLink = !link.isSilent(nowMs);
  steering.isGrey = isGrey("gimbal");
  document.body.dataset.grey = cause ? GREY[cause.id].join(" ") : "";
  showState();
  showBanners(currentBanners(nowMs));
  // It covers nothing that is drawn on.
  list.show(["live", "frozen"].includes(drawing.mode) ? followedOf(told()) : [], isGrey("badge"));
  showChoice();
  stale ||= drawing.isFrozen; // the countdown
  toggle($("freeze"), drawing.isFrozen);
  // The banners make room for what is drawn and for the lens.
  const banners = $("banners");
  const y = drawing.mode === "dragging" ? viewport.toView(drawing.cursor).y : Infinity;
  const room = banners.offsetHeight + 24;
  banners.classList.toggle("low", y < room || (lensAt() !== null && y < viewport.view.height - room));
  const isAsked = nowMs - clearMs < CLEAR_MS;
  $("clear").textContent = isAsked ? "Clear?" : "Clear";
  $("clear").classList.toggle("armed", isAsked);
  const isIdle = stateOf(told()) === "IDLE" && !followedOf(told()).length && drawing.mode === "live" && mayCommand() && !link.over;
  $("hint").hidden = !isIdle;
  $("hint").textContent = document.body.classList.contains("keys") ? "Arrows to the target, then Enter" : "Drag a box around the target";
  paintPlots();
}

function paintPlots() {
  if (!$("plots").hidden) plots.paint(history.points, isGrey("presence"));
}

document.addEventListener("keydown", () => { keyedMs = performance.now(); }, true);
window.addEventListener("resize", showPlots);
showPlots();
// A phone's battery: nothing is painted twice.
const repaint = () => { stale = true; };
link.addEventListener("message", repaint);
for (const event of ["shown", "whole"]) frames.addEventListener(event, repaint);
for (const type of ["pointerdown", "pointermove", "pointerup", "wheel", "keydown", "click"]) {
  document.addEventListener(type, repaint, { capture: true, passive: true });
}
new ResizeObserver(repaint).observe($("view"));

link.open();
requestAnimationFrame(paint);
setInterval(paintSlowly, 200);
