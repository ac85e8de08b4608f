// The state of the page: what has arrived, what a person is doing, and what is sent. No DOM.

import { GREY, rootCause } from "./causes.js";
import { drawingQuestion, likelyQuestion, menuQuestion } from "./panels.js";
import { NEXT_FREE, STEERED, areMany, choicesOf, followedOf, isFollowed, steeredOf, targetAt } from "./targets.js";
import { grown, isInside } from "./geometry.js";
import { selectMessage } from "./wire.js";

const ESCAPES_MS = 1000;
const CLEAR_MS = 3000;
const ANSWER_MS = 6000;
// A key in this time: somebody draws by keys.
const KEYED_MS = 5000;
// A finger takes what is so far beside it, in px of the view.
const REACH_PX = 10;
// A finger takes what is at least so large, in px of the view.
const FINGER_PX = 44;
// For how long the place where a lost target may be is offered.
const LIKELY_MS = 1000;

const seconds = () => performance.now() / 1000;
/** Seconds that run make no other reason. */
export const withoutNumbers = (text) => text.replace(/[\d.]+/g, "");
/** Nobody at a page copies a stamp from an image. */
const plain = (text) => (/\d\.\d{9}\b/.test(text) ? "the tracker does not have this picture; draw again" : text);

export class Session {
  hello = null; // the server's data on itself and this page
  limits = { buffer_s: null, max_targets: 1 }; // the tracker's
  holder = null; // the page in control
  status = null;
  newest = null; // the newest track
  newestMs = 0;
  progress = null; // of a video
  cause = null; // why what is shown may not be true any more
  lensOn = false;
  drawnBy = "mouse";
  menu = null; // {id, mayRemove}: the target that is asked about
  isSuggesting = false; // what is proposed was not tapped by a person
  asked = {}; // what may become of what is drawn, see `choicesOf`
  #statusMs = 0;
  #escapedMs = -Infinity;
  #cancelledMs = -Infinity; // the last Escape of those that gave up a drawing
  #keyedMs = -Infinity; // the last key
  #clearMs = -Infinity;
  #clearId = null; // of the target that the first press was for
  #commands = 0;
  #isHeld = false; // the tracker was asked to keep the frozen image
  #isSecond = false; // held in place of an image that the tracker did not have
  #subjects = new Map(); // of the commands sent: id -> what the answer is about
  #suggested = null; // the point that is proposed once the page opens, shares of the image
  #awaited = null; // {id, ms} of the selection whose answer we wait for
  #likely = null; // {stamp, box, target, ms}: where a lost target may be
  #pressedLikely = null; // the same, where a press began while it was offered
  #isDeclined = false; // what was offered for this loss is not the target

  /**
   * `link`, `frames`, `tracks`, `viewport`, `drawing`, `alarm`, `history`, `notices` are the page's one each; `page` has
   * {painted, byKeys, steering, following}: the frame on the canvas, whether the keyboard is what is used, the panels of gimbal and vehicle; and
   * announce(text), for a screen reader.
   */
  constructor({ link, frames, tracks, viewport, drawing, alarm, history, notices, page }) {
    Object.assign(this, { link, frames, tracks, viewport, drawing, alarm, history, notices, page });
  }

  // What is known

  get mayCommand() {
    return this.hello !== null && (this.holder === null || this.holder === this.hello.name);
  }

  /** How long the tracker keeps an image, s. Who only views may look at a held picture for as long as he likes. */
  get bufferS() {
    return this.mayCommand ? this.limits.buffer_s : null;
  }

  isGrey(part) {
    return this.link.over ? part !== "box" : this.cause !== null && GREY[this.cause.id].includes(part);
  }

  /** The track that badge, box, banner and title speak of: that of the picture shown, where pictures come. */
  get latest() {
    const { shown } = this.frames;
    const ofPicture = shown && this.cause?.id !== "picture" ? this.tracks.of(shown.stamp) : null;
    return ofPicture ?? this.newest;
  }

  /** The state of a track, as text. */
  stateOf(track) {
    return this.link.over ? "OVER" : !track || this.isGrey("badge") ? "UNKNOWN" : steeredOf(track)?.state ?? "IDLE";
  }

  /** For how long the target has not been seen, s; null where that is unknown. */
  unseenS(target, nowMs) {
    return target && target.age_s !== null ? target.age_s + (nowMs - this.newestMs) / 1000 : null;
  }

  /** Age of the picture shown, s; null where there is none. */
  pictureS(nowMs) {
    if (!this.frames.shown) return null;
    const { stamp, arrivedMs } = this.frames.shown;
    return Math.max(nowMs - arrivedMs, this.link.clock.ageMs(stamp, nowMs) ?? 0) / 1000;
  }

  /** {share, seconds} of the time for which the tracker still has the frozen image, null where nothing runs out. */
  get countdown() {
    const left = this.drawing.secondsLeft(this.bufferS, seconds());
    return left === null || this.drawing.mode === "sent" ? null : { share: Math.max(0, left / this.bufferS), seconds: Math.max(0, left) };
  }

  /** The target that Clear is for: the steered one; where none is steered by, the only one; null where it must be chosen. */
  get clearable() {
    const targets = followedOf(this.latest), steered = steeredOf(this.latest);
    if (steered || !targets.length) return steered?.id ?? STEERED;
    return targets.length === 1 ? targets[0].id : null;
  }

  /** Whether Clear was pressed once for the target that it is still for. */
  isClearAsked(nowMs) {
    return nowMs - this.#clearMs < CLEAR_MS && this.#clearId === this.clearable;
  }

  /** What is asked now, as `drawingQuestion` gives it; null where nothing is. */
  get question() {
    if (!this.menu) {
      const drawn = drawingQuestion(this.drawing, this.asked, this.page.byKeys);
      return drawn ?? (this.likely(performance.now()) ? likelyQuestion(this.page.steering.isOn) : null);
    }
    const target = followedOf(this.latest).find(({ id }) => id === this.menu.id);
    if (!target) this.menu = null; // it is gone
    return target ? menuQuestion(target, this.page.steering.isOn, this.menu.mayRemove) : null;
  }

  /** Where the lost target may be, {stamp, box, target}: one press there follows it. Null where nothing is offered. */
  likely(nowMs) {
    const likely = this.#likely, steered = steeredOf(this.newest);
    const isNow = likely !== null && !this.#isDeclined && nowMs - likely.ms < LIKELY_MS && steered?.state === "LOST" && steered.id === likely.target;
    return isNow && this.mayCommand && this.drawing.mode === "live" && !this.isGrey("box") ? likely : null;
  }

  /** Find out anew why what is shown may not be true. */
  findCause(nowMs) {
    this.cause = this.link.over ? null : this.#rootCause(nowMs);
  }

  #rootCause(nowMs) {
    const { status, frames: { shown }, link } = this;
    // What came after the last status speaks for itself.
    const now = status && { ...status };
    if (now && shown?.arrivedMs > this.#statusMs) now.camera = "alive";
    if (now && this.newestMs > this.#statusMs && now.tracker === "silent") now.tracker = "alive";
    return rootCause({
      refused: link.refused,
      linkS: link.isSilent(nowMs) || !this.hello ? (nowMs - link.receivedMs) / 1000 : null,
      status: now,
      sinceS: (nowMs - this.#statusMs) / 1000,
      // What is held is old by intention.
      pictureS: this.drawing.isFrozen ? 0 : this.pictureS(nowMs),
      gimbal: this.page.steering.fault(nowMs),
    });
  }

  /** Show once what has happened; `subject` is one of target, drawing, gimbal, follow, control, picture, and of what was cut: reason, gimbal reason. */
  notify(subject, text, isRefusal = false) {
    this.notices.add(subject, text, isRefusal, performance.now());
    this.page.announce(text);
  }

  /** Propose what is at a point {x, y}, shares of the image, as soon as a selection is possible; until it is followed or given
   * up newer pictures take the place of those that are too old. */
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

  // What arrives

  /** A message of the server. */
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
    // A server that was started anew counts from the beginning.
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
    // "following selection 3" is no news beside LOST.
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
    // Some images get lost on their way to the tracker.
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

  /** The link is lost. */
  onLost() {
    this.notices.retire();
    if (this.#awaited) this.notify("target", "the link was lost before the answer; see the state for what is followed", true);
    this.#awaited = null;
    this.#subjects.clear();
    this.abandon();
  }

  /** The whole picture of what is frozen has come. */
  onWhole({ stamp, bitmap }) {
    if (this.drawing.frame?.stamp === stamp) this.drawing.frame = { ...this.drawing.frame, bitmap, isSmall: false };
  }

  // What a person does

  /** The id of the command sent; null where it was not sent, which is shown. */
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

  /** Freeze what is on the screen now; false where nothing can be selected. */
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

  /** The tracker keeps the frozen image; the server sends it in its whole size. */
  #hold() {
    const { isSmall, stamp } = this.drawing.frame;
    this.#isHeld = this.mayCommand && this.link.send({ op: "hold", stamp: stamp.toString() });
    if (isSmall) this.link.send({ op: "whole", stamp: stamp.toString() });
  }

  #letGo() {
    if (this.#isHeld) this.link.send({ op: "hold", stamp: "0" });
    this.#isHeld = false;
  }

  goLive() {
    this.isSuggesting = false;
    this.drawing.live();
    this.#letGo();
  }

  abandon() {
    this.drawing.cancel();
    if (!this.drawing.isFrozen) this.#letGo();
  }

  /** Hold a newer picture and keep what is drawn; false where there is none. */
  #renew(nowMs) {
    const { frames: { shown }, drawing } = this;
    if (shown.stamp === drawing.frame.stamp || this.pictureS(nowMs) > this.bufferS / 2) return false;
    drawing.renew({ ...shown, ageS: this.pictureS(nowMs) }, seconds());
    this.#hold();
    if (drawing.wants(shown.stamp)) this.#askForProposal();
    if (!this.isSuggesting) this.notify("drawing", "a newer picture: see whether the box still fits");
    return true;
  }

  /** What has run out of time. */
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

  /** `as`: "replace" or "add" once that was chosen, and agreed to that a gimbal that is steered turns. */
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
      // What was cleared or lost since the picture is not replaced, and one that is lost is helped.
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

  /** What would a point there select? Without an answer the point can be sent all the same. */
  #askForProposal() {
    const point = { points: [this.drawing.start], labels: [1] };
    this.link.send({ ...selectMessage(`c${++this.#commands}`, this.drawing.frame.stamp, point), op: "propose" });
  }

  #inside = (at) => this.viewport.toImageInside(at);

  // The pointer on the picture, see `bindPointer`

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

  /** A press where the lost target may be: follows it; false where it is none. */
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

  /** A press on a target: steers by it, or opens its menu when it is long; false where it is none of these. */
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
    if (id === null) this.notify("target", "none of these targets is steered by; press one in the list to remove it", true);
    else this.command({ op: "clear", target: id });
  }

  /** The button: a second press clears. */
  pressClear() {
    const nowMs = performance.now();
    // Another target may be steered by since the first press.
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
    // Whoever gives up a drawing, with however many presses, keeps the target.
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

  /** The button that agrees to what is asked. */
  agree() {
    const likely = this.menu ? null : this.likely(performance.now());
    if (likely) this.#follow(likely);
    else this.confirm();
  }

  /** What was tapped is a point on the target. */
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

  /** Where the lens is wanted, image px; null where it is not. */
  get lensAt() {
    const { drawing } = this;
    const atWork = drawing.mode === "dragging" && this.drawnBy !== "mouse";
    return drawing.cursor && drawing.mode !== "sent" && (atWork || this.lensOn) ? drawing.cursor : null;
  }
}
