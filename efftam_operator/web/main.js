// The page's main module: passes messages and input events to the session, and paints the page after changes.

import { STATES } from "./palette.js";
import { Alarm } from "./alarm.js";
import { Drawing } from "./drawing.js";
import { FollowPanel, groundMap } from "./following.js";
import { Frames } from "./frames.js";
import { Viewport } from "./geometry.js";
import { bindKeys, bindPointer } from "./input.js";
import { Link } from "./link.js";
import { Notices, announce } from "./notices.js";
import { Painting, press } from "./painting.js";
import { History, Plots } from "./plots.js";
import { Session } from "./session.js";
import { SteeringPanel } from "./steering.js";
import { TargetList } from "./targets.js";
import { Tracks } from "./tracks.js";
import { View } from "./view.js";

const SLOW_MS = 200;
const ZOOM_STEP = 1.5;

const $ = (id) => document.getElementById(id);

// The address may end with #token=...&point=X,Y.
const given = new URLSearchParams(location.hash.slice(1));
const token = given.get("token") ?? "";
// The socket's URL is relative to the page's, because a proxy may serve the page below a path.
const socketUrl = new URL("ws", location.href.split("#")[0]);
socketUrl.protocol = location.protocol === "https:" ? "wss:" : "ws:";
const link = new Link(socketUrl.href, token);
const frames = new Frames((seq) => link.send({ op: "ack", seq }));
const viewport = new Viewport(), drawing = new Drawing(), alarm = new Alarm(), history = new History(), notices = new Notices();
const view = new View($("view"), viewport);
const steering = new SteeringPanel((action) => session.command({ op: "steer", action }, "gimbal"), (text) => session.notify("gimbal", text, true));
const following = new FollowPanel((action) => session.command({ op: "follow", action }, "follow"), groundMap());
const page = {
  steering,
  following,
  announce,
  get painted() { return view.painted; },
  get byKeys() { return document.body.classList.contains("keys"); },
};
const session = new Session({ link, frames, tracks: new Tracks(), viewport, drawing, alarm, history, notices, page });
const list = new TargetList($("targets"), (id) => session.openMenu(id, true));
const painting = new Painting({ session, view, plots: new Plots($("plot")), list });

const [x, y] = given.get("point")?.split(",").map(Number) ?? [];
if (x >= 0 && x <= 1 && y >= 0 && y <= 1) session.suggest({ x, y });

// Whether anything has changed since the page was painted last. If not, nothing is painted, to save a phone's battery.
let isStale = true;
const repaint = () => { isStale = true; };

// Messages and frames of the server

/** Report to the server whether this page is visible: it sends no pictures to a hidden page. */
const watch = () => link.send({ op: "watch", action: document.hidden ? "hide" : "show" });
document.addEventListener("visibilitychange", watch);
link.addEventListener("message", ({ detail }) => {
  session.receive(detail);
  if (detail.op === "hello") watch();
});
link.addEventListener("frame", ({ detail }) => {
  try {
    frames.add(detail);
  } catch (error) {
    session.notify("picture", error.message, true);
  }
});
link.addEventListener("lost", () => session.onLost());
frames.addEventListener("whole", ({ detail }) => session.onWhole(detail));
frames.addEventListener("unreadable", () => session.notify("picture", "a picture could not be decoded", true));
frames.addEventListener("shown", () => notices.retire("picture"));

// Input of the user

bindPointer(view.canvas, viewport, {
  press: (at, kind) => {
    // The drawer would cover the drawing.
    $("drawer").hidden = true;
    return session.press(at, kind);
  },
  move: (at) => session.move(at),
  hover: (at) => session.move(at),
  release: (...release) => session.release(...release),
  abandon: () => session.abandon(),
});

const middle = () => ({ x: viewport.view.width / 2, y: viewport.view.height / 2 });
const larger = () => viewport.zoomAt(ZOOM_STEP, middle());
const smaller = () => viewport.zoomAt(1 / ZOOM_STEP, middle());
const toggleWhole = () => (viewport.zoom === 1 ? viewport.fill() : viewport.showWhole());

function toggleLens() {
  press($("lens"), session.lensOn = !session.lensOn);
}

function showPlots(isOn) {
  $("plots").hidden = !isOn;
  press($("plots-button"), isOn);
  painting.layOut();
  painting.curves();
}

function toggleFull() {
  if (document.fullscreenElement) document.exitFullscreen();
  else document.documentElement.requestFullscreen?.();
}

const toggleDrawer = () => { $("drawer").hidden = !$("drawer").hidden; };

function openHelp() {
  $("drawer").hidden = true;
  if (!$("help").open) $("help").show();
}

function escape() {
  if ($("help").open) $("help").close();
  else if (!$("drawer").hidden) $("drawer").hidden = true;
  else session.escape();
}

const KEYS = {
  " ": () => session.toggleFreeze(),
  Enter: () => session.confirm(),
  Escape: escape,
  r: () => session.placeLast(),
  z: toggleLens,
  "+": larger,
  "=": larger,
  "-": smaller,
  0: toggleWhole,
  m: toggleDrawer,
  p: () => showPlots($("plots").hidden),
  f: toggleFull,
  s: () => steering.isThere && steering.stop(),
  "?": openHelp,
};
// S, which stops the gimbal, and Escape act also while the help is open.
bindKeys(KEYS, (dx, dy) => session.nudge(dx, dy), ["s", "Escape"]);

const BUTTONS = {
  freeze: KEYS[" "],
  clear: () => session.pressClear(),
  more: toggleDrawer,
  "zoom-in": larger,
  "zoom-out": smaller,
  "zoom-fit": toggleWhole,
  lens: toggleLens,
  "plots-button": KEYS.p,
  sun: () => press($("sun"), document.body.classList.toggle("sun")),
  sound: () => press($("sound"), alarm.toggle()),
  full: toggleFull,
  "help-button": openHelp,
  "help-close": () => $("help").close(),
  // The texts of these two elements are cut if they are too long; a press shows them in full.
  detail: () => showInFull("reason", () => painting.reason),
  "steering-text": () => showInFull("gimbal reason", () => $("steering-text").textContent),
  "choice-point": () => session.confirmPoint(),
  "choice-send": () => session.agree(),
  "choice-add": () => session.add(),
  "choice-remove": () => session.removeAsked(),
  "choice-cancel": () => session.cancel(),
  "token-send": enter,
};
for (const [id, act] of Object.entries(BUTTONS)) $(id).onclick = act;

function showInFull(subject, textOf) {
  // Update the texts first: they may be some time old.
  painting.panels(performance.now());
  if (textOf()) session.notify(subject, textOf());
}

/** Reload the page with the token that the user has typed. */
function enter() {
  const typed = $("token").value.trim();
  if (!typed) return;
  location.hash = `token=${encodeURIComponent(typed)}`;
  location.reload();
}
$("token").addEventListener("keydown", ({ key }) => { if (key === "Enter") enter(); });

for (const name of $("legend").querySelectorAll("[data-state]")) name.style.background = STATES[name.dataset.state]?.colour ?? "";

// Painting

function paint() {
  requestAnimationFrame(paint);
  session.expire(performance.now());
  if (!isStale) return;
  isStale = false;
  painting.frame(performance.now());
}

function paintSlowly() {
  if (painting.slow(performance.now())) repaint();
  press($("more"), !$("drawer").hidden);
  $("zoom-fit").textContent = viewport.zoom === 1 ? "Fill" : "Whole";
}

document.addEventListener("keydown", () => session.onKey(), true);
link.addEventListener("message", repaint);
for (const event of ["shown", "whole"]) frames.addEventListener(event, repaint);
for (const type of ["pointerdown", "pointermove", "pointerup", "wheel", "keydown", "click"]) {
  document.addEventListener(type, repaint, { capture: true, passive: true });
}
const sizes = new ResizeObserver(() => {
  painting.layOut();
  repaint();
});
for (const name of ["#view", "header", "footer", "#plots"]) sizes.observe(document.querySelector(name));

link.open();
requestAnimationFrame(paint);
setInterval(paintSlowly, SLOW_MS);
