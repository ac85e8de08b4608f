// The state of a drawing, from the first press to the tracker's answer, and the image on which it is drawn. Uses no DOM.
//
// A press freezes the picture. A drag draws a box, and its release sends the box. A tap marks a point, for which the tracker
// may propose a box. A second tap
// - inside the proposed box sends that box;
// - on the marked point sends the point;
// - elsewhere places a box with the two taps as corners. A tap inside this box sends it.
// With the keyboard, Enter acts as a tap at the cursor. Arrows after it draw a box from there, and Enter sends the box. R
// places a box of the last size at the cursor, and arrows move it by image px. A finished drawing may need one more
// confirmation (mode "asked") before it is sent.

import { boxFromCorners, clipBox, clamp, isInside, isTooSmall, moveBox } from "./geometry.js";

const DEFAULT_SIZE = { width: 40, height: 40 };
// The countdown ends this long before the tracker drops the image, s, because a selection takes time to reach the tracker.
const MARGIN_S = 0.3;

const middleOf = ({ width, height }) => ({ x: Math.round(width / 2), y: Math.round(height / 2) });

export class Drawing {
  constructor() {
    // One of live, frozen, dragging, corner, proposed, placed, asked, sent.
    this.mode = "live";
    // The frozen image {stamp, width, height, ageS, ...}; null while live.
    this.frame = null;
    // The cursor's place {x, y}, image px.
    this.cursor = null;
    this.lastSize = DEFAULT_SIZE;
    this.#forget();
  }

  #forget() {
    this.start = this.end = this.corner = this.placed = this.box = this.selection = null;
    // Whether the arrow keys draw a box from the marked corner; then no proposal is needed.
    this.isKeyed = false;
    // Whether the selection is a tapped point, or the box proposed for it.
    this.isTapped = false;
  }

  get isFrozen() {
    return this.frame !== null;
  }

  /** Freeze the picture `frame` {stamp, width, height, ageS}. `nowS`: time now, s. `byHand`: the user froze it without
   * drawing, so it stays frozen when a drawing is cancelled. */
  freeze(frame, nowS, byHand = false) {
    if (this.isFrozen) return;
    this.byHand = byHand;
    this.frame = frame;
    this.frozenS = nowS;
    this.cursor ??= middleOf(frame);
    this.mode = "frozen";
  }

  /** Replace the frozen picture by a newer one. The drawing stays at its place; a proposed box is dropped, because it was
   * computed for the old picture. */
  renew(frame, nowS) {
    if (this.mode === "proposed") this.#markAgain();
    this.frame = frame;
    this.frozenS = nowS;
    if (this.selection) this.selection = { ...this.selection, stamp: frame.stamp };
  }

  /** Drop the drawing and show the live picture. */
  live() {
    this.#forget();
    this.frame = null;
    this.byHand = false;
    this.mode = "live";
  }

  /** Drop the drawing. The picture stays frozen if the user froze it without drawing. */
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

  /** Time for which the tracker still keeps the frozen image, s; null without a frozen image or without a limit.
   * `bufferS`: age up to which the tracker keeps images, s; null: any age. */
  secondsLeft(bufferS, nowS) {
    if (!this.isFrozen || bufferS === null) return null;
    return bufferS - MARGIN_S - this.ageS(nowS);
  }

  /** Whether the drawing waits for a proposed box for the point marked on the image of `stamp`. */
  wants(stamp) {
    return this.mode === "corner" && !this.isKeyed && stamp === this.frame.stamp;
  }

  /** Show `box`, which the tracker proposes for a point on the image of `stamp`. Ignored if it does not belong to the marked
   * point. */
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
   * End a press at `point`, image px. `far`: the pointer moved far enough for a drag. `near(a, b)`: whether two points are so
   * close that they count as the same. Returns the selection to send {stamp, box} or {stamp, points, labels}; {tooSmall: box}
   * if the box is too small; null if nothing is to be sent.
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

  /** Hold the finished selection back until one more call of `confirm`. */
  ask() {
    this.mode = "asked";
  }

  #markAgain() {
    this.box = null;
    this.mode = "corner";
  }

  /** Carry out Enter, or the button that confirms. The first Enter marks a point at the cursor. The next one sends the
   * proposed, drawn or placed box, or the point, or the selection that was held back. Returns the same as `release`. */
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

  /** Select the point that was tapped last. Returns the selection to send, or null. */
  confirmPoint() {
    return this.mode === "corner" || this.mode === "proposed" || this.isBetweenTaps ? this.#point(this.start) : null;
  }

  /** Whether a box was placed by tapping two of its corners. */
  get isBetweenTaps() {
    return this.mode === "placed" && this.corner !== null;
  }

  /** Place a box of the last size around the cursor. */
  place() {
    if (!this.isFrozen || this.mode === "sent") return;
    const { width, height } = this.lastSize;
    const box = { x: this.cursor.x - width / 2, y: this.cursor.y - height / 2, width, height };
    this.#forget();
    this.box = moveBox(box, 0, 0, this.frame.width, this.frame.height);
    this.mode = "placed";
  }

  /** Whether a press is under way that is the first of its drawing. */
  get isFirstPress() {
    return this.mode === "dragging" && this.corner === null && this.placed === null;
  }

  /** Move the cursor, and a placed box with it, by (dx, dy) image px. `image`: size of the image {width, height}. */
  nudge(dx, dy, image) {
    if (this.mode === "proposed") this.#markAgain();
    this.isKeyed = this.mode === "corner";
    if (this.mode === "placed") this.box = moveBox(this.box, dx, dy, image.width, image.height);
    const from = this.cursor ?? middleOf(image);
    this.cursor = { x: clamp(from.x + dx, 0, image.width), y: clamp(from.y + dy, 0, image.height) };
  }

  /** The box to paint, also while it is being drawn, {x, y, width, height} in image px; null if there is none. */
  get shownBox() {
    if (this.box) return this.box;
    if (this.mode === "dragging") return boxFromCorners(this.corner ?? this.start, this.end);
    return this.mode === "corner" ? boxFromCorners(this.start, this.cursor) : null;
  }

  /** The tapped point to paint, image px; null if there is none, or if a box is painted in its place. */
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
