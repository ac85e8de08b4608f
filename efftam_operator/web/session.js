// The state of the page. Receives the server's messages, carries out the user's input, and sends commands. Uses no DOM.

import { GREY, rootCause } from "./causes.js";
import { drawingQuestion, likelyQuestion, menuQuestion } from "./panels.js";
import { NEXT_FREE, STEERED, areMany, choicesOf, followedOf, isFollowed, steeredOf, targetAt } from "./targets.js";
import { grown, isInside } from "./geometry.js";
import { selectMessage } from "./wire.js";

const ESCAPES_MS = 1000;
const CLEAR_MS = 3000;
const ANSWER_MS = 6000;
// For this time after a key press the user counts as drawing by keys.
const KEYED_MS = 5000;
// A press at most this far beside a target's box counts as a press on the target, px of the view.
const REACH_PX = 10;
// A proposed box for the lost target can be pressed as if its sides were at least this long, px of the view.
const FINGER_PX = 44;
// A proposed box for the lost target is offered for this time.
const LIKELY_MS = 1000;

const seconds = () => performance.now() / 1000;
/** `text` without its numbers, to compare reasons: a running number of seconds does not make a new reason. */
export const withoutNumbers = (text) => text.replace(/[\d.]+/g, "");
/** `text` for a notice. The tracker's message about a missing image names a stamp, which means nothing to the user. */
const plain = (text) => (/\d\.\d{9}\b/.test(text) ? "the tracker does not have this picture; draw again" : text);

export class Session {
  // The server's message hello; null before the page was admitted.
  hello = null;
  // The tracker's limits.
  limits = { buffer_s: null, max_targets: 1 };
  // Name of the page in control; null: none.
  holder = null;
  // The server's last status message, and page time of its arrival.
  status = null;
  #statusMs = 0;
  // The newest track, and page time of its arrival.
  newest = null;
  newestMs = 0;
  // The server's last message on the position in a video; null: no video.
  progress = null;
  // The root cause by which the page may show outdated information, see `rootCause`.
  cause = null;
  lensOn = false;
  drawnBy = "mouse";
  // The target {id, mayRemove} about which the user is asked; null: none.
  menu = null;
  // Whether the marked point comes from the page's address, and not from the user.
  isSuggesting = false;
  // The choices for the drawing, see `choicesOf`.
  asked = {};
  // When Escape was last pressed without a drawing, and when it last cancelled a drawing.
  #escapedMs = -Infinity;
  #cancelledMs = -Infinity;
  // When a key was last pressed.
  #keyedMs = -Infinity;
  // Clear must be pressed twice. The time of the first press, ms, and the id of the target for which it was pressed.
  #clearMs = -Infinity;
  #clearId = null;
  #commands = 0;
  // Whether the tracker was requested to keep the frozen image.
  #isHeld = false;
  // Whether the frozen image replaces one that the tracker did not have.
  #isSecond = false;
  // For each command without an answer: id -> subject of the notice with the answer.
  #subjects = new Map();
  // The point {x, y} from the page's address that is still to be marked, as shares of the image; null: none.
  #suggested = null;
  // The selection {id, ms} that is still without an answer; null: none.
  #awaited = null;
  // The box {stamp, box, target, ms} that is proposed for a lost target; null: none.
  #likely = null;
  // The value of `likely` when the press began.
  #pressedLikely = null;
  // Whether the user has declined the boxes that are proposed for the target that is lost now.
  #isDeclined = false;

  /**
   * `link`, `frames`, `tracks`, `viewport`, `drawing`, `alarm`, `history`, `notices`: the page's objects of these classes.
   * `page`: an object with `painted`, the frame on the canvas; `byKeys`, whether the user uses the keyboard; `steering` and
   * `following`, the panels of gimbal and vehicle; and announce(text), which has a screen reader read a text.
   */
  constructor({ link, frames, tracks, viewport, drawing, alarm, history, notices, page }) {
    Object.assign(this, { link, frames, tracks, viewport, drawing, alarm, history, notices, page });
  }

  // State

  /** Whether this page may send commands: it is in control, or no page is. */
  get mayCommand() {
    return this.hello !== null && (this.holder === null || this.holder === this.hello.name);
  }

  /** Age up to which a frozen picture can be used, s; null: any age. Without control it is null: a page that only views may
   * show a frozen picture as long as the user likes. */
  get bufferS() {
    return this.mayCommand ? this.limits.buffer_s : null;
  }

  /** Whether a part of the page (see `GREY`) may be outdated. */
  isGrey(part) {
    return this.link.over ? part !== "box" : this.cause !== null && GREY[this.cause.id].includes(part);
  }

  /** The track that badge, box, banner and title show: the track of the picture shown; without a picture the newest track. */
  get latest() {
    const { shown } = this.frames;
    const ofPicture = shown && this.cause?.id !== "picture" ? this.tracks.of(shown.stamp) : null;
    return ofPicture ?? this.newest;
  }

  /** The text of the state badge for a track. */
  stateOf(track) {
    return this.link.over ? "OVER" : !track || this.isGrey("badge") ? "UNKNOWN" : steeredOf(track)?.state ?? "IDLE";
  }

  /** For how long the target has not been seen, s; null if that is unknown. */
  unseenS(target, nowMs) {
    return target && target.age_s !== null ? target.age_s + (nowMs - this.newestMs) / 1000 : null;
  }

  /** Age of the picture shown, s; null if no picture is shown. */
  pictureS(nowMs) {
    if (!this.frames.shown) return null;
    const { stamp, arrivedMs } = this.frames.shown;
    return Math.max(nowMs - arrivedMs, this.link.clock.ageMs(stamp, nowMs) ?? 0) / 1000;
  }

  /** The time for which the tracker still keeps the frozen image, as {share, seconds}; null if there is no limit. */
  get countdown() {
    const left = this.drawing.secondsLeft(this.bufferS, seconds());
    return left === null || this.drawing.mode === "sent" ? null : { share: Math.max(0, left / this.bufferS), seconds: Math.max(0, left) };
  }

  /** Id of the target that Clear removes: the steered target; if none is steered, the only one. null if the user must choose
   * one. */
  get clearable() {
    const targets = followedOf(this.latest), steered = steeredOf(this.latest);
    if (steered || !targets.length) return steered?.id ?? STEERED;
    return targets.length === 1 ? targets[0].id : null;
  }

  /** Whether Clear waits for its second press: it was pressed once, for the same target that it would remove now. */
  isClearAsked(nowMs) {
    return nowMs - this.#clearMs < CLEAR_MS && this.#clearId === this.clearable;
  }

  /** The question to the user now, as `drawingQuestion` returns it; null if there is none. */
  get question() {
    if (!this.menu) {
      const drawn = drawingQuestion(this.drawing, this.asked, this.page.byKeys);
      return drawn ?? (this.likely(performance.now()) ? likelyQuestion(this.page.steering.isOn) : null);
    }
    const target = followedOf(this.latest).find(({ id }) => id === this.menu.id);
    // The target is no longer followed.
    if (!target) this.menu = null;
    return target ? menuQuestion(target, this.page.steering.isOn, this.menu.mayRemove) : null;
  }

  /** The box {stamp, box, target} that is offered now as the lost target; one press inside the box makes the tracker follow
   * it. null if there is no such box. */
  likely(nowMs) {
    const likely = this.#likely, steered = steeredOf(this.newest);
    const isNow = likely !== null && !this.#isDeclined && nowMs - likely.ms < LIKELY_MS && steered?.state === "LOST" && steered.id === likely.target;
    return isNow && this.mayCommand && this.drawing.mode === "live" && !this.isGrey("box") ? likely : null;
  }

  /** Update `cause`, the root cause by which the page may show outdated information. */
  findCause(nowMs) {
    this.cause = this.link.over ? null : this.#rootCause(nowMs);
  }

  #rootCause(nowMs) {
    const { status, frames: { shown }, link } = this;
    // A picture or track that arrived after the last status proves that its sender is alive.
    const now = status && { ...status };
    if (now && shown?.arrivedMs > this.#statusMs) now.camera = "alive";
    if (now && this.newestMs > this.#statusMs && now.tracker === "silent") now.tracker = "alive";
    return rootCause({
      refused: link.refused,
      linkS: link.isSilent(nowMs) || !this.hello ? (nowMs - link.receivedMs) / 1000 : null,
      status: now,
      sinceS: (nowMs - this.#statusMs) / 1000,
      // The user has frozen the picture: its age is no fault.
      pictureS: this.drawing.isFrozen ? 0 : this.pictureS(nowMs),
      gimbal: this.page.steering.fault(nowMs),
    });
  }

  /** Show a notice. `subject`: one of target, drawing, gimbal, follow, control, picture, reason and gimbal reason. */
  notify(subject, text, isRefusal = false) {
    this.notices.add(subject, text, isRefusal, performance.now());
    this.page.announce(text);
  }

  /** Request a proposal for `point` {x, y}, shares of the image, as soon as a selection is possible. Until the user accepts or
   * cancels it, a picture that becomes too old is replaced by a newer one. */
  suggest(point) {
    this.#suggested = point;
  }

  #tapSuggested() {
    const { drawing, page: { painted } } = this;
    const isReady = painted && this.mayCommand && drawing.mode === "live" && this.status?.tracker === "alive" && this.stateOf(this.latest) === "IDLE";
    if (!isReady || !this.freeze(false)) return;
    const at = { x: this.#suggested.x * painted.width, y: this.#suggested.y * painted.height };
    drawing.press(at);
    drawing.release(at, false, () => true);
    this.#askForProposal();
    this.isSuggesting = true;
    this.#suggested = null;
  }

  // Messages of the server

  /** Receive a message of the server. */
  receive(message) {
    const { op } = message;
    if (op === "hello") this.#onHello(message);
    else if (op === "seat") this.#onSeat(message);
    else if (op === "limits") this.limits = message;
    else if (op === "status") [this.status, this.#statusMs] = [message, performance.now()];
    else if (op === "track") this.#onTrack(message);
    else if (op === "answer") this.#onAnswer(message);
    else if (op === "result") this.#onResult(message);
    else if (op === "proposal") this.#onProposal(message);
    else if (op === "progress") this.progress = message;
    else if (op === "steering" && this.page.steering.update(message)) this.notices.retire("gimbal");
    else if (op === "position") this.page.following.locate(message, performance.now());
    else if (op === "follow" && this.page.following.update(message)) this.notices.retire("follow");
  }

  #onHello(message) {
    // The server may have been started anew, so everything received before is forgotten.
    this.hello = message;
    this.frames.forget();
    this.tracks.forget();
    this.newest = this.progress = this.#likely = null;
    this.#isDeclined = false;
    this.page.steering.forget();
    this.page.following.forget();
    this.notices.retire();
    this.abandon();
  }

  #onSeat({ holder }) {
    const had = this.holder !== null && this.holder === this.hello?.name;
    this.holder = holder;
    this.notices.retire("control");
    if (!had || this.mayCommand) return;
    this.notify("control", `${holder} is in control now`);
    this.abandon();
  }

  #onTrack(message) {
    if (!this.tracks.add(message)) return;
    this.history.add(message);
    // Notices on the target, such as "following selection 3", are outdated once it is LOST or cleared.
    const now = steeredOf(message)?.state;
    if (now !== steeredOf(this.newest)?.state && ["LOST", "IDLE"].includes(now)) this.notices.retire("target");
    if (now !== "LOST") this.#isDeclined = false;
    this.newest = message;
    this.newestMs = performance.now();
  }

  #onAnswer({ id, ok, message }) {
    this.page.steering.answered(id);
    const wasAwaited = this.#awaited?.id === id;
    if (wasAwaited) {
      this.#awaited = null;
      this.goLive();
    }
    const subject = this.#subjects.get(id) ?? "gimbal";
    this.#subjects.delete(id);
    if (message && (wasAwaited || !ok || id)) this.notify(subject, plain(message), !ok);
  }

  #onResult({ outcome, stamp, message }) {
    if (outcome === "CLEARED") return this.notify("target", message || "the target was cleared");
    if (outcome !== "REFUSED") return;
    const isGone = stamp === this.drawing.frame?.stamp.toString() && this.drawing.mode !== "sent";
    // An image may have been lost on its way to the tracker. Then a newer one is tried once.
    if (isGone && !this.#isSecond && (this.#isSecond = this.#renew(performance.now()))) return;
    this.notify("target", plain(message), true);
    if (isGone) this.goLive();
  }

  #onProposal({ stamp, box, reason, target, lost }) {
    const { drawing } = this;
    if (lost) {
      if (!box) return;
      const [x, y, width, height] = box;
      this.#likely = { stamp: BigInt(stamp), box: { x, y, width, height }, target, ms: performance.now() };
      return;
    }
    if (!drawing.wants(BigInt(stamp))) return;
    if (!box) return this.notify("drawing", `no proposal: ${reason}`);
    const [x, y, width, height] = box, proposed = { x, y, width, height };
    if (!isFollowed(proposed, drawing.start, followedOf(this.tracks.of(drawing.frame.stamp)))) return drawing.propose(drawing.frame.stamp, proposed);
    this.goLive();
    this.notify("drawing", "this target is followed; draw a box to follow another part");
  }

  /** Handle the loss of the link: drop the drawing and the commands without an answer. */
  onLost() {
    this.notices.retire();
    if (this.#awaited) this.notify("target", "the link was lost before the answer; see the state for what is followed", true);
    this.#awaited = null;
    this.#subjects.clear();
    this.abandon();
  }

  /** Receive a full-size picture: it replaces the frozen one if both have the same stamp. */
  onWhole({ stamp, bitmap }) {
    if (this.drawing.frame?.stamp === stamp) this.drawing.frame = { ...this.drawing.frame, bitmap, isSmall: false };
  }

  // Input of the user

  /** Send a command. Returns its id; null, with a notice, if it could not be sent. `subject`: subject of the notices on it. */
  command(message, subject = "target") {
    const id = `c${++this.#commands}`;
    if (!this.link.send({ ...message, id })) {
      this.notify(subject, `${this.link.over.split(";")[0] || "no link"}: nothing was sent`, true);
      return null;
    }
    this.#subjects.set(id, subject);
    return id;
  }

  takeOver() {
    this.link.send({ op: "seat", action: "take" });
  }

  /** Freeze the picture that is on the screen now. Returns false if there is no picture. `byHand`: the user froze it without
   * drawing. */
  freeze(byHand) {
    const { drawing, page: { painted } } = this;
    if (!painted) return false;
    if (drawing.isFrozen) {
      if (byHand) drawing.byHand = true;
      return true;
    }
    const ageMs = this.link.clock.ageMs(painted.stamp, performance.now());
    drawing.freeze({ ...painted, ageS: ageMs === null ? null : ageMs / 1000 }, seconds(), byHand);
    this.#isSecond = false;
    this.#hold();
    return true;
  }

  toggleFreeze() {
    if (this.drawing.isFrozen) {
      if (this.drawing.mode !== "sent") this.goLive();
    } else this.freeze(true);
  }

  /** Request that the tracker keeps the frozen image, and that the server sends it in full size. */
  #hold() {
    const { isSmall, stamp } = this.drawing.frame;
    this.#isHeld = this.mayCommand && this.link.send({ op: "hold", stamp: stamp.toString() });
    if (isSmall) this.link.send({ op: "whole", stamp: stamp.toString() });
  }

  /** Report to the tracker that it need not keep the frozen image any longer. */
  #letGo() {
    if (this.#isHeld) this.link.send({ op: "hold", stamp: "0" });
    this.#isHeld = false;
  }

  /** Drop the drawing and show the live picture. */
  goLive() {
    this.isSuggesting = false;
    this.drawing.live();
    this.#letGo();
  }

  /** Drop the drawing. A picture that the user froze without drawing stays frozen. */
  abandon() {
    this.drawing.cancel();
    if (!this.drawing.isFrozen) this.#letGo();
  }

  /** Replace the frozen picture by a newer one, and keep the drawing. Returns false if there is no newer one. */
  #renew(nowMs) {
    const { frames: { shown }, drawing } = this;
    if (shown.stamp === drawing.frame.stamp || this.pictureS(nowMs) > this.bufferS / 2) return false;
    drawing.renew({ ...shown, ageS: this.pictureS(nowMs) }, seconds());
    this.#hold();
    if (drawing.wants(shown.stamp)) this.#askForProposal();
    if (!this.isSuggesting) this.notify("drawing", "a newer picture: see whether the box still fits");
    return true;
  }

  /** Drop or renew a frozen picture that the tracker no longer keeps. Stop waiting for an answer that is too late. Mark a
   * suggested point as soon as that is possible. Called for every painting. */
  expire(nowMs) {
    if (this.#suggested) this.#tapSuggested();
    const { drawing } = this, left = drawing.secondsLeft(this.bufferS, seconds());
    const isKept = this.isSuggesting || (this.page.byKeys && nowMs - this.#keyedMs < KEYED_MS);
    if (left !== null && left <= 0 && drawing.mode !== "sent" && !(isKept && this.#renew(nowMs))) {
      this.notify("drawing", `this picture is older than the ${this.bufferS} s that the tracker keeps; draw on the live one`, true);
      this.goLive();
    }
    if (this.#awaited && nowMs - this.#awaited.ms > ANSWER_MS) {
      this.#awaited = null;
      this.notify("target", "no answer: see the state for what is followed now", true);
      this.goLive();
    }
  }

  /**
   * Send a selection as `Drawing.release` returns it, or first ask the user about it. `as`: null before the user was asked;
   * then "replace" or "add", by which the user also agrees that a steered gimbal turns.
   */
  send(selection, as = null) {
    if (!selection) return;
    const { drawing } = this;
    if (selection.tooSmall) {
      const { width, height } = selection.tooSmall;
      this.notify("drawing", `the box is ${width.toFixed(1)} x ${height.toFixed(1)} px; draw at least 4 x 4, zoom in for more`, true);
      return;
    }
    if (!as) {
      const targets = followedOf(this.tracks.of(selection.stamp) ?? this.newest);
      this.asked = choicesOf(selection, targets, { isTapped: drawing.isTapped, most: this.limits.max_targets, isSteering: this.page.steering.isOn });
      // The steered target may have been cleared or lost after the picture was taken: then nothing is replaced. While it is
      // LOST, a selection is taken for the lost target, so adding is not offered.
      const now = steeredOf(this.newest)?.state;
      this.asked.replaces &&= now === "TRACKING";
      this.asked.mayAdd &&= now !== "LOST";
      if (drawing.mode === "sent" && (this.asked.turns || this.asked.replaces || this.asked.mayAdd)) {
        drawing.ask();
        return;
      }
    }
    const target = as === "add" ? NEXT_FREE : this.asked.target;
    const turns = as === "add" ? this.asked.addTurns : as === "replace" && this.asked.turns;
    const id = this.command({ ...selectMessage("", selection.stamp, selection, target), turns });
    this.#awaited = id && { id, ms: performance.now() };
    if (!this.#awaited) this.goLive();
  }

  /** Request the box that the marked point would select. The user can send the point without waiting for the answer. */
  #askForProposal() {
    const point = { points: [this.drawing.start], labels: [1] };
    this.link.send({ ...selectMessage(`c${++this.#commands}`, this.drawing.frame.stamp, point), op: "propose" });
  }

  #inside = (at) => this.viewport.toImageInside(at);

  // Actions of the pointer on the picture, see `bindPointer`

  press(at, kind) {
    this.drawnBy = kind;
    if (this.drawing.mode === "sent") return false;
    if (!this.mayCommand) {
      this.notify("drawing", this.hello ? "view only: take over to select" : "no link yet", true);
      return false;
    }
    this.#pressedLikely = this.likely(performance.now());
    if (!this.freeze(false)) return false;
    this.menu = null;
    this.page.steering.disarm();
    this.page.following.disarm();
    this.notices.retire("drawing");
    this.isSuggesting = false;
    this.drawing.press(this.#inside(at));
    return true;
  }

  move(at) {
    this.drawing.move(this.#inside(at));
  }

  release(at, far, tapPx, isLong) {
    const { drawing, viewport } = this;
    if (drawing.isFirstPress && !far && this.#pressLikely(this.#inside(at))) return;
    if (drawing.isFirstPress && this.#pressTarget(this.#inside(at), far, isLong)) return;
    const near = (a, b) => Math.hypot(a.x - b.x, a.y - b.y) * viewport.scale <= 2 * tapPx;
    this.send(drawing.release(this.#inside(at), far, near));
    if (drawing.mode === "corner") this.#askForProposal();
  }

  /** Follow the proposed box for the lost target if `point` lies in it. Returns whether it does. */
  #pressLikely(point) {
    const likely = this.#pressedLikely, { scale } = this.viewport;
    if (!likely) return false;
    const { width, height } = likely.box, besidePx = Math.max(REACH_PX, (FINGER_PX - Math.min(width, height) * scale) / 2);
    if (!isInside(grown(likely.box, besidePx / scale), point)) return false;
    this.goLive();
    this.#follow(likely);
    return true;
  }

  #follow({ stamp, box, target }) {
    this.#likely = null;
    const id = this.command({ ...selectMessage("", stamp, { box }, target), turns: this.page.steering.isOn });
    this.#awaited = id && { id, ms: performance.now() };
  }

  /** Handle a press on a target: a short one makes it the steered target, a long one opens its menu. Returns whether the press
   * was one of these. */
  #pressTarget(point, far, isLong) {
    const targets = followedOf(this.tracks.of(this.drawing.frame.stamp) ?? this.newest);
    if (this.limits.max_targets < 2 && !areMany(targets)) return false;
    const target = targetAt(targets, point, REACH_PX / this.viewport.scale);
    if (!target || (isLong ? false : far || target.steered)) return false;
    this.goLive();
    if (isLong) this.openMenu(target.id, true);
    else this.#steerBy(target.id);
    return true;
  }

  openMenu(id, mayRemove) {
    if (!this.mayCommand) return;
    this.abandon();
    this.menu = { id, mayRemove };
  }

  #steerBy(id, isAgreed = false) {
    this.menu = null;
    if (this.page.steering.isOn && !isAgreed) this.openMenu(id, false);
    else this.command({ op: "steer_by", target: id, turns: isAgreed });
  }

  #clear() {
    if (!this.hello) return;
    const id = this.clearable;
    if (id === null) this.notify("target", "no target is steered; press one in the list to remove it", true);
    else this.command({ op: "clear", target: id });
  }

  /** Handle the button Clear: the second press clears. */
  pressClear() {
    const nowMs = performance.now();
    // A second press counts only if Clear would still remove the same target, see `isClearAsked`.
    if (this.clearable === null || this.isClearAsked(nowMs)) {
      this.#clearMs = -Infinity;
      this.#clear();
    } else {
      this.#clearMs = nowMs;
      this.#clearId = this.clearable;
    }
  }

  escape() {
    const nowMs = performance.now();
    const isDrawing = this.drawing.isFrozen;
    if (isDrawing && this.drawing.mode !== "sent") this.abandon();
    if (this.menu) {
      this.menu = null;
      return;
    }
    // Escape presses that cancel a drawing, and those shortly after them, never count as presses that clear the target.
    if (isDrawing || nowMs - this.#cancelledMs < ESCAPES_MS) {
      this.#cancelledMs = nowMs;
      return;
    }
    const twice = nowMs - this.#escapedMs < ESCAPES_MS;
    this.#escapedMs = twice ? -Infinity : nowMs;
    if (twice) this.#clear();
  }

  confirm() {
    const { drawing } = this;
    if (!this.mayCommand) return;
    if (this.menu) return this.#steerBy(this.menu.id, true);
    if (!drawing.isFrozen && !this.freeze(false)) return;
    this.page.steering.disarm();
    this.page.following.disarm();
    if (drawing.mode === "asked" && !this.asked.mayReplace) return;
    const { mode } = drawing, as = mode === "asked" ? "replace" : null;
    this.send(drawing.confirm(), as);
    if (mode === "frozen" && drawing.mode === "corner") this.#askForProposal();
  }

  /** Handle the button that answers the question with yes. */
  agree() {
    const likely = this.menu ? null : this.likely(performance.now());
    if (likely) this.#follow(likely);
    else this.confirm();
  }

  /** Handle the button Point: send the tapped point as the selection. */
  confirmPoint() {
    this.send(this.drawing.confirmPoint());
  }

  add() {
    this.send(this.drawing.confirm(), "add");
  }

  removeAsked() {
    this.command({ op: "clear", target: this.menu.id });
    this.menu = null;
  }

  cancel() {
    if (this.menu) this.menu = null;
    else if (this.likely(performance.now())) this.#isDeclined = true;
    else this.goLive();
  }

  placeLast() {
    if (!this.mayCommand) return;
    if (this.drawing.isFrozen || this.freeze(false)) this.drawing.place();
  }

  nudge(dx, dy) {
    this.drawing.nudge(dx, dy, this.viewport.image);
  }

  onKey() {
    this.#keyedMs = performance.now();
  }

  /** The image point under the lens; null if the lens is not shown. */
  get lensAt() {
    const { drawing } = this;
    const atWork = drawing.mode === "dragging" && this.drawnBy !== "mouse";
    return drawing.cursor && drawing.mode !== "sent" && (atWork || this.lensOn) ? drawing.cursor : null;
  }
}
