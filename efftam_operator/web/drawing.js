// What a person is drawing, and on which image: from press to the answer. No DOM.
//
// live -> press freezes the picture -> dragging -> release sends a box
//                                   -> a tap marks a point, for which the tracker may propose a box; a second tap in that
//                                      sends it, on the point sends the point, elsewhere places a box between them, which
//                                      is sent by a tap in it
// Enter is a tap at the cursor; an arrow after it draws the box, and Enter sends that. R places a box of the last size;
// arrows move it by image px. What is finished may have to be agreed to ("asked") before it is sent.

import { boxFromCorners, clipBox, clamp, isInside, isTooSmall, moveBox } from "./geometry.js";

const DEFAULT_SIZE = { width: 40, height: 40 };
// The tracker drops old images in its own time; a selection takes a moment to get there.
const MARGIN_S = 0.3;

const middleOf = ({ width, height }) => ({ x: Math.round(width / 2), y: Math.round(height / 2) });

export class Drawing {
  constructor() {
    this.mode = "live"; // live, frozen, dragging, corner, proposed, placed, asked, sent
    this.frame = null; // the frozen image
    this.cursor = null; // image px
    this.lastSize = DEFAULT_SIZE;
    this.#forget();
  }

  #forget() {
    this.start = this.end = this.corner = this.placed = this.box = this.selection = null;
    this.isKeyed = false; // arrows draw a box from the corner: no proposal is wanted
    this.isTapped = false; // what is sent is a point, or the box proposed for one
  }

  get isFrozen() {
    return this.frame !== null;
  }

  /** Hold `frame` {stamp, width, height, ageS}; `byHand` keeps it held after a drawing was given up. */
  freeze(frame, nowS, byHand = false) {
    if (this.isFrozen) return;
    this.byHand = byHand;
    this.frame = frame;
    this.frozenS = nowS;
    this.cursor ??= middleOf(frame);
    this.mode = "frozen";
  }

  /** Draw on a newer picture instead; what is drawn stays where it is, what was proposed was for the old one. */
  renew(frame, nowS) {
    if (this.mode === "proposed") this.#markAgain();
    this.frame = frame;
    this.frozenS = nowS;
    if (this.selection) this.selection = { ...this.selection, stamp: frame.stamp };
  }

  /** Back to the live picture. */
  live() {
    this.#forget();
    this.frame = null;
    this.byHand = false;
    this.mode = "live";
  }

  /** Give up what is drawn. */
  cancel() {
    if (this.byHand && this.mode !== "frozen") {
      this.#forget();
      this.mode = "frozen";
    } else {
      this.live();
    }
  }

  /** Age of the frozen image, s. */
  ageS(nowS) {
    return (this.frame.ageS ?? 0) + nowS - this.frozenS;
  }

  /** Seconds for which the tracker still has the frozen image; null when it has no end. */
  secondsLeft(bufferS, nowS) {
    if (!this.isFrozen || bufferS === null) return null;
    return bufferS - MARGIN_S - this.ageS(nowS);
  }

  /** Whether a proposal for what is marked on the image of `stamp` is wanted. */
  wants(stamp) {
    return this.mode === "corner" && !this.isKeyed && stamp === this.frame.stamp;
  }

  /** The tracker proposes `box` for what is marked on the image of `stamp`; ignored where it is for something else. */
  propose(stamp, box) {
    if (!this.wants(stamp) || isTooSmall(box) || !isInside(box, this.start)) return;
    this.box = box;
    this.mode = "proposed";
  }

  press(point) {
    if (this.mode === "sent") return;
    const isProposed = this.mode === "proposed";
    this.corner = this.mode === "corner" || isProposed ? this.start : null;
    this.placed = this.mode === "placed" || isProposed ? this.box : null;
    this.wasProposed = isProposed;
    this.start = this.end = this.cursor = point;
    this.box = this.selection = null;
    this.isKeyed = false;
    this.mode = "dragging";
  }

  move(point) {
    this.cursor = point;
    if (this.mode === "dragging") this.end = point;
  }

  /**
   * The button or finger is up. `far`: it moved far enough for a drag; `near`: (a, b) => two points that a person
   * would call the same. Returns what to send, {tooSmall} or null.
   */
  release(point, far, near) {
    if (this.mode !== "dragging") return null;
    this.move(point);
    if (far) return this.#finish(boxFromCorners(this.start, point));
    if (this.placed && isInside(this.placed, point)) return this.#finish(this.placed, this.wasProposed);
    if (this.corner && near(this.corner, point)) return this.#point(this.corner);
    const box = this.corner && clipBox(boxFromCorners(this.corner, point), this.frame.width, this.frame.height);
    if (box && !isTooSmall(box)) {
      this.box = box;
      this.mode = "placed";
    } else {
      this.start = point;
      this.mode = "corner";
    }
    return null;
  }

  /** What was finished is sent only after one more `confirm`. */
  ask() {
    this.mode = "asked";
  }

  #markAgain() {
    this.box = null;
    this.mode = "corner";
  }

  /** Enter: marks a point, then sends what is proposed or drawn from there; sends a placed box and what was asked for.
   * Returns as `release`. */
  confirm() {
    if (this.mode === "asked") {
      this.mode = "sent";
      return this.selection;
    }
    if (this.mode === "placed" || this.mode === "proposed") return this.#finish(this.box, this.mode === "proposed");
    if (this.mode === "corner") {
      const { x, y } = this.start;
      const moved = x !== this.cursor.x || y !== this.cursor.y;
      return moved ? this.#finish(boxFromCorners(this.start, this.cursor)) : this.#point(this.start);
    }
    if (this.mode === "frozen") {
      this.start = this.cursor;
      this.mode = "corner";
    }
    return null;
  }

  /** Take what was tapped last as a point on the target. */
  confirmPoint() {
    return this.mode === "corner" || this.mode === "proposed" || this.isBetweenTaps ? this.#point(this.start) : null;
  }

  /** Whether a box lies between two taps. */
  get isBetweenTaps() {
    return this.mode === "placed" && this.corner !== null;
  }

  /** R: a box of the last size around the cursor, for Enter to send. */
  place() {
    if (!this.isFrozen || this.mode === "sent") return;
    const { width, height } = this.lastSize;
    const box = { x: this.cursor.x - width / 2, y: this.cursor.y - height / 2, width, height };
    this.#forget();
    this.box = moveBox(box, 0, 0, this.frame.width, this.frame.height);
    this.mode = "placed";
  }

  /** Whether this press is the first of a drawing. */
  get isFirstPress() {
    return this.mode === "dragging" && this.corner === null && this.placed === null;
  }

  /** Move the placed box, or the cursor, by image px within an image of this size. */
  nudge(dx, dy, image) {
    if (this.mode === "proposed") this.#markAgain();
    this.isKeyed = this.mode === "corner";
    if (this.mode === "placed") this.box = moveBox(this.box, dx, dy, image.width, image.height);
    const from = this.cursor ?? middleOf(image);
    this.cursor = { x: clamp(from.x + dx, 0, image.width), y: clamp(from.y + dy, 0, image.height) };
  }

  /** The box as it stands, for the eye; null when there is none. */
  get shownBox() {
    if (this.box) return this.box;
    if (this.mode === "dragging") return boxFromCorners(this.corner ?? this.start, this.end);
    return this.mode === "corner" ? boxFromCorners(this.start, this.cursor) : null;
  }

  /** The point to mark, null when there is none; a proposed box speaks for itself. */
  get mark() {
    return this.mode === "corner" ? this.start : this.selection?.points?.[0] ?? null;
  }

  #finish(drawn, isTapped = false) {
    const box = clipBox(drawn, this.frame.width, this.frame.height);
    if (isTooSmall(box)) {
      this.cancel();
      return { tooSmall: box };
    }
    this.lastSize = { width: box.width, height: box.height };
    return this.#send({ box }, isTapped);
  }

  #point(point) {
    return this.#send({ points: [point], labels: [1] }, true);
  }

  #send(selection, isTapped) {
    this.isTapped = isTapped;
    this.box = selection.box ?? null;
    this.mode = "sent";
    this.selection = { stamp: this.frame.stamp, ...selection };
    return this.selection;
  }
}
