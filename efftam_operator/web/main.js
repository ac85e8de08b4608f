// Brings the page together: what arrives is shown, what a person does is sent.

import { STATES } from "./palette.js";
import { GREY, rootCause } from "./causes.js";
import { Drawing } from "./drawing.js";
import { Alarm } from "./alarm.js";
import { Frames } from "./frames.js";
import { Tracks } from "./tracks.js";
import { LENS_RADIUS_PX, Viewport } from "./geometry.js";
import { bindKeys, bindPointer } from "./input.js";
import { Link } from "./link.js";
import { Notices, say, showBanners, showNotices } from "./notices.js";
import { bannersOf, drawingQuestion, menuQuestion } from "./panels.js";
import { History, Plots } from "./plots.js";
import { SteeringPanel } from "./steering.js";
import { NEXT_FREE, STEERED, TargetList, areMany, choicesOf, followedOf, isFollowed, speedOf, steeredOf, targetAt } from "./targets.js";
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
// The ring of the time left, with what is around it.
const RING_PX = 66;

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
const notices = new Notices();
const history = new History();
const plots = new Plots($("plot"));
const list = new TargetList($("targets"), (id) => openMenu(id, true));
const steering = new SteeringPanel((action) => command({ op: "steer", action }, "gimbal"), (text) => notify("gimbal", text, true));

let hello = null; // what the server said of itself and of this page
let limits = { buffer_s: null, max_targets: 1 }; // the tracker's
let holder = null;
let status = null;
let newest = null; // the newest track
let statusMs = 0;
let progress = null; // of a video
let newestMs = 0;
let cause = null; // why what is shown may not be true any more
const isGrey = (part) => (link.over ? part !== "box" : cause !== null && GREY[cause.id].includes(part));
let lensOn = false;
let drawnBy = "mouse";
let escapedMs = -Infinity;
let cancelledMs = -Infinity; // the last Escape of those that gave up a drawing
let keyedMs = -Infinity; // the last key
let clearMs = -Infinity;
let clearId = null; // of the target that the first press was for
let commands = 0;
let isHeld = false; // the tracker was asked to keep the frozen image
let isSecond = false; // held in place of an image that the tracker did not have
let stale = true; // something has changed since the last painting
let saidOfTarget = ""; // state and reason
let menu = null; // {id, mayRemove}: the target that is asked about
let asked = {}; // what may become of what is drawn, see `choicesOf`
const subjects = new Map(); // of the commands sent: id -> what the answer is about
let awaited = null; // {id, ms} of the selection whose answer we wait for

/** Say once what has happened; `subject` is one of target, drawing, gimbal, control, picture, and of what was cut: reason, gimbal reason. */
function notify(subject, text, isRefusal = false) {
  notices.say(subject, text, isRefusal, performance.now());
  say(text);
}

/** Seconds that run make no other reason. */
const wordsOf = (text) => text.replace(/[\d.]+/g, "");

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
    newest = progress = null;
    steering.forget();
    notices.retire();
    abandon();
    watch();
  },
  seat(message) {
    const had = holder !== null && holder === hello?.name;
    holder = message.holder;
    notices.retire("control");
    if (!had || mayCommand()) return;
    notify("control", `${holder} is in control now`);
    abandon();
  },
  limits: (message) => { limits = message; },
  status(message) {
    status = message;
    statusMs = performance.now();
  },
  track(message) {
    if (!tracks.add(message)) return;
    history.add(message);
    // "following selection 3" is no news beside LOST.
    const now = steeredOf(message)?.state;
    if (now !== steeredOf(newest)?.state && ["LOST", "IDLE"].includes(now)) notices.retire("target");
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
    const subject = subjects.get(message.id) ?? "gimbal";
    subjects.delete(message.id);
    if (message.message && (wasAwaited || !message.ok || message.id)) notify(subject, plain(message.message), !message.ok);
  },
  result(message) {
    if (message.outcome === "REFUSED") {
      const isGone = message.stamp === drawing.frame?.stamp.toString() && drawing.mode !== "sent";
      // Some images get lost on their way to the tracker.
      if (isGone && !isSecond && (isSecond = renew(performance.now()))) return;
      notify("target", plain(message.message), true);
      if (isGone) goLive();
    }
    else if (message.outcome === "CLEARED") notify("target", message.message || "the target was cleared");
  },
  proposal({ stamp, box, reason }) {
    if (!drawing.wants(BigInt(stamp))) return;
    if (!box) return notify("drawing", `no proposal: ${reason}`);
    const [x, y, width, height] = box, proposed = { x, y, width, height };
    if (!isFollowed(proposed, drawing.start, followedOf(tracks.of(drawing.frame.stamp)))) return drawing.propose(drawing.frame.stamp, proposed);
    goLive();
    notify("drawing", "this target is followed; draw a box to follow another part");
  },
  progress: (message) => { progress = message; },
  steering(message) {
    const before = wordsOf($("steering-text").textContent);
    if (steering.update(message)) notices.retire("gimbal");
    if (wordsOf($("steering-text").textContent) !== before) notices.retire("gimbal reason");
  },
};

/** A page that nobody sees takes no pictures. */
const watch = () => link.send({ op: "watch", action: document.hidden ? "hide" : "show" });
document.addEventListener("visibilitychange", watch);

link.addEventListener("message", ({ detail }) => RECEIVE[detail.op]?.(detail));
link.addEventListener("frame", ({ detail }) => {
  try {
    frames.add(detail);
  } catch (error) {
    notify("picture", error.message, true);
  }
});
link.addEventListener("lost", () => {
  notices.retire();
  if (awaited) notify("target", "the link was lost before the answer; see the state for what is followed", true);
  awaited = null;
  subjects.clear();
  abandon();
});
frames.addEventListener("whole", ({ detail: { stamp, bitmap } }) => {
  if (drawing.frame?.stamp === stamp) drawing.frame = { ...drawing.frame, bitmap, isSmall: false };
});
frames.addEventListener("unreadable", () => notify("picture", "a picture could not be decoded", true));
frames.addEventListener("shown", () => notices.retire("picture"));

/** The track that badge, box, banner and title speak of: that of the picture shown, where pictures come. */
function told() {
  const ofPicture = frames.shown && cause?.id !== "picture" ? tracks.of(frames.shown.stamp) : null;
  return ofPicture ?? newest;
}

const stateOf = (track) => (link.over ? "OVER" : !track || isGrey("badge") ? "UNKNOWN" : steeredOf(track)?.state ?? "IDLE");

function showState() {
  const track = told();
  const target = steeredOf(track);
  const word = stateOf(track);
  const badge = $("state");
  if (badge.dataset.state !== word) {
    badge.dataset.state = word;
    badge.textContent = word;
    badge.style.background = STATES[word]?.colour ?? "";
    if (STATES[word]) say(word + (target?.reason ? `: ${target.reason}` : ""));
  }
  const parts = [];
  // A reason speaks for itself; the seconds are at the box as well.
  if (target && target.state !== "IDLE" && !target.reason) {
    if (!target.measured && target.age_s !== null) parts.push(`unseen ${target.age_s.toFixed(1)} s`);
    if (target.presence !== null) parts.push(`presence ${target.presence.toFixed(2)}`);
    if (target.likeness !== null) parts.push(`likeness ${target.likeness.toFixed(2)}`);
    if (target.measured && target.quality !== null) parts.push(`quality ${target.quality.toFixed(2)}`);
    const speed = speedOf(target);
    if (speed !== null) parts.push(`${Math.round(speed)}\u00a0px/s`);
  }
  if (target?.reason) parts.unshift(target.reason);
  const said = word + wordsOf(target?.reason ?? "");
  if (said !== saidOfTarget) notices.retire("reason");
  saidOfTarget = said;
  if (!target && followedOf(track).length) parts.push("no target is steered by; tap one");
  $("detail").textContent = !isGrey("presence") ? parts.join(" · ") : target ? `was ${target.state}` : "";
  const { shown } = frames;
  const ageMs = shown ? link.clock.ageMs(shown.stamp, isGrey("age") ? performance.now() : shown.arrivedMs) : null;
  const age = ageMs >= 1000 ? `${(ageMs / 1000).toFixed(1)} s` : `${Math.round(ageMs)} ms`;
  $("age").textContent = !shown ? "" : progress ? progressText(progress) : ageMs === null ? "age unknown" : age;
  // As the label of the box has it.
  const behindS = (shown && track?.behindS || 0) + (target?.behind_s ?? 0);
  $("behind").textContent = behindS >= BEHIND_S && !isGrey("box") ? `tracker ${behindS.toFixed(1)} s behind` : "";
  const unseenS = target && target.age_s !== null ? target.age_s + (performance.now() - newestMs) / 1000 : null;
  if (!link.over) alarm.see(word, target, unseenS, performance.now());
  document.title = `${cause ? cause.word : alarm.isLost && unseenS !== null ? `LOST ${Math.floor(unseenS)} s` : word} · Target tracker`;
}

/** Time in the video and number of the picture. */
function progressText({ frame, count, video_s }) {
  const time = `${Math.floor(video_s / 60)}:${(video_s % 60).toFixed(1).padStart(4, "0")}`;
  return `${time} · ${frame + 1} of ${count}`;
}

// What a person does

/** Nobody at a page copies a stamp from an image. */
const plain = (text) => (/\d\.\d{9}\b/.test(text) ? "the tracker does not have this picture; draw again" : text);

const notSent = () => `${link.over.split(";")[0] || "no link"}: nothing was sent`;

/** The id of the command sent; null where it was not sent, which is said. */
function command(message, subject = "target") {
  const id = `c${++commands}`;
  if (!link.send({ ...message, id })) {
    notify(subject, notSent(), true);
    return null;
  }
  subjects.set(id, subject);
  return id;
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

/** `as`: "replace" or "add" once that was chosen, and agreed to that a gimbal that is steered turns. */
function send(selection, as = null) {
  if (!selection) return;
  if (selection.tooSmall) {
    const { width, height } = selection.tooSmall;
    notify("drawing", `the box is ${width.toFixed(1)} x ${height.toFixed(1)} px; draw at least 4 x 4, zoom in for more`, true);
    return;
  }
  if (!as) {
    const targets = followedOf(tracks.of(selection.stamp) ?? newest);
    asked = choicesOf(selection, targets, { isTapped: drawing.isTapped, most: limits.max_targets, isSteering: steering.isOn });
    // What was cleared or lost since the picture is not replaced, and one that is lost is helped.
    const now = steeredOf(newest)?.state;
    asked.replaces &&= now === "TRACKING";
    asked.mayAdd &&= now !== "LOST";
    if (drawing.mode === "sent" && (asked.turns || asked.replaces || asked.mayAdd)) {
      drawing.ask();
      return;
    }
  }
  const target = as === "add" ? NEXT_FREE : asked.target;
  const turns = as === "add" ? asked.addTurns : as === "replace" && asked.turns;
  const id = command({ ...selectMessage("", selection.stamp, selection, target), turns });
  awaited = id && { id, ms: performance.now() };
  if (!awaited) goLive();
}

const inside = (at) => viewport.toImageInside(at);

const POINTER = {
  press(at, kind) {
    drawnBy = kind;
    if (drawing.mode === "sent") return false;
    if (!mayCommand()) {
      notify("drawing", hello ? "view only: take over to select" : "no link yet", true);
      return false;
    }
    if (!freeze(false)) return false;
    menu = null;
    steering.disarm();
    notices.retire("drawing");
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

const clearable = () => steeredOf(told())?.id ?? STEERED;

function clear() {
  if (hello) command({ op: "clear", target: clearable() });
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
  // Another target may be steered by since the first press.
  if (now - clearMs < CLEAR_MS && clearId === clearable()) {
    clearMs = -Infinity;
    clear();
  } else {
    clearMs = now;
    clearId = clearable();
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
// A reason is cut where there is no room.
for (const [id, subject] of [["detail", "reason"], ["steering-text", "gimbal reason"]]) {
  $(id).onclick = () => $(id).textContent && notify(subject, $(id).textContent);
}
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
  const isLongSmall = frames.smallMs !== null && nowMs - frames.smallMs > SMALL_MS;
  const isHeld = drawing.isFrozen && !countdown();
  return bannersOf({
    over: link.over,
    cause,
    gimbal: steering.fault(nowMs),
    alarm: isGrey("badge") ? null : alarm.banner(nowMs),
    held: !isHeld ? "" : drawing.mode === "sent" ? "waiting for the answer" : "the picture is held",
    isSmall: isLongSmall && !question() && (drawing.frame ?? frames.shown).isSmall,
    holder: hello && !mayCommand() ? holder : null,
  });
}

function question() {
  const byKeys = document.body.classList.contains("keys");
  if (!menu) return drawingQuestion(drawing, asked, byKeys);
  const target = followedOf(told()).find(({ id }) => id === menu.id);
  return target ? menuQuestion(target, steering.isOn, menu.mayRemove) : null;
}

function showChoice() {
  const choice = question();
  if (!choice) menu = null;
  $("choice").hidden = !choice;
  if (!choice) return;
  const drawn = menu ? null : drawing.shownBox ?? { ...drawing.mark, height: 0 };
  // Where there is more room: above the drawing and its label, or below.
  const above = drawn && viewport.toView(drawn).y - 80, below = drawn && viewport.view.height - viewport.toView({ x: 0, y: drawn.y + drawn.height }).y;
  $("choice").classList.toggle("high", above > below);
  if ($("choice-text").textContent !== choice.text) say($("choice-text").textContent = choice.text);
  $("choice-send").textContent = choice.send;
  for (const what of ["point", "send", "add", "remove"]) $(`choice-${what}`).hidden = !choice[what];
}

/** The ring of the time that is left: at the top right, or away from who draws there and from the lens. */
function showCountdown() {
  const left = countdown(), { cursor } = drawing;
  $("left").hidden = !left;
  if (!left) return;
  const isNear = ({ x, y }, reach) => x > viewport.view.width - RING_PX - reach && y < RING_PX + reach;
  const isDrawnThere = drawing.mode === "dragging" && isNear(viewport.toView(cursor), 44);
  $("left").classList.toggle("aside", isDrawnThere || (view.lens !== null && isNear(view.lens, LENS_RADIUS_PX)));
  $("left").classList.toggle("soon", left.seconds < 2);
  $("left").style.setProperty("--share", left.share);
  $("left-s").textContent = `${Math.ceil(left.seconds)} s`;
}

/** Hold a newer picture and keep what is drawn; false where there is none. */
function renew(nowMs) {
  const { shown } = frames;
  if (shown.stamp === drawing.frame.stamp || pictureS(nowMs) > bufferS() / 2) return false;
  drawing.renew({ ...shown, ageS: pictureS(nowMs) }, seconds());
  hold();
  if (drawing.wants(shown.stamp)) askForProposal();
  notify("drawing", "a newer picture: see whether the box still fits");
  return true;
}

function expire(nowMs) {
  const left = drawing.secondsLeft(bufferS(), seconds());
  const isByKeys = document.body.classList.contains("keys") && nowMs - keyedMs < KEYED_MS;
  if (left !== null && left <= 0 && drawing.mode !== "sent" && !(isByKeys && renew(nowMs))) {
    notify("drawing", `this picture is older than the ${bufferS()} s that the tracker keeps; draw on the live one`, true);
    goLive();
  }
  if (awaited && nowMs - awaited.ms > ANSWER_MS) {
    awaited = null;
    notify("target", "no answer: see the state for what is followed now", true);
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
    isGrey: isGrey("box"),
    proposedS: drawing.mode === "proposed" ? drawing.ageS(seconds()) : null,
    cursor: byKeys && ["live", "frozen", "corner"].includes(drawing.mode) ? drawing.cursor : null,
  });
  showPanels(performance.now());
  view.canvas.dataset.stamp = frame ? frame.stamp.toString() : "";
  view.canvas.dataset.width = frame?.bitmap.width ?? "";
  view.canvas.dataset.lens = view.lens ? `${view.lens.x} ${view.lens.y}` : "";
  view.canvas.dataset.mode = drawing.mode;
  view.canvas.dataset.zoom = viewport.zoom.toFixed(2);
  frames.release(frame?.bitmap);
}

/** All that is said, of one moment: no badge beside the banner of another. */
function showPanels(nowMs) {
  cause = findCause(nowMs);
  steering.know({ hasLink: !link.isSilent(nowMs), isGrey: isGrey("gimbal"), mayEnable: mayCommand() });
  document.body.dataset.grey = cause ? GREY[cause.id].join(" ") : "";
  showState();
  showBanners(currentBanners(nowMs), () => link.send({ op: "seat", action: "take" }));
  // Room for what is drawn.
  showNotices(notices.shown(nowMs).slice(0, drawing.mode === "dragging" ? 1 : undefined));
  showCountdown();
  // It covers nothing that is drawn on.
  list.show(!menu && ["live", "frozen"].includes(drawing.mode) ? followedOf(told()) : [], isGrey("badge"));
  showChoice();
  toggle($("freeze"), drawing.isFrozen);
  // The banners make room for what is drawn and for the lens.
  const banners = $("banners");
  const y = drawing.mode === "dragging" ? viewport.toView(drawing.cursor).y : Infinity;
  const room = banners.offsetHeight + 24;
  banners.classList.toggle("low", y < room || (lensAt() !== null && y < viewport.view.height - room));
  const isIdle = stateOf(told()) === "IDLE" && !followedOf(told()).length && drawing.mode === "live" && mayCommand() && !link.over;
  $("hint").hidden = !isIdle;
  $("hint").textContent = document.body.classList.contains("keys") ? "Arrows to the target, then Enter" : "Drag a box around the target";
}

function paintSlowly() {
  const nowMs = performance.now(), before = cause?.id;
  showPanels(nowMs);
  stale ||= before !== cause?.id;
  const isAsked = nowMs - clearMs < CLEAR_MS && clearId === clearable();
  $("clear").textContent = isAsked ? "Clear?" : "Clear";
  $("clear").classList.toggle("armed", isAsked);
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
