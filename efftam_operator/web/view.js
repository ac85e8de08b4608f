// One canvas: the picture, the targets on it by word, line and colour, what is being drawn, and the lens.

import { STATES, EDGE } from "./palette.js";
import { areMany, boxOf, colourOf, followedOf, speedOf } from "./targets.js";
import { LENS_RADIUS_PX, clipBox, lensPlace, lensZoom } from "./geometry.js";

const DASHES = { solid: [], corners: [], dashed: [10, 7], dotted: [2, 6], none: [] };
const DRAWN = "#ffffff", GREY = "#bbbbbb";
const ARROW_S = 0.5;
const BORDER_PX = 10; // of a lost target's picture
/** An answer that is so much older than the picture is said to be. */
export const BEHIND_S = 0.2;

export class View {
  /** `viewport`: what part of the picture is shown. */
  constructor(canvas, viewport) {
    this.canvas = canvas;
    this.viewport = viewport;
    this.context = canvas.getContext("2d");
    this.painted = null; // the frame that is on the canvas now
    this.lens = null; // the middle of the lens, px of the view
  }

  /** Match the canvas to its place on the page. */
  fit() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.ratio = window.devicePixelRatio || 1;
    const w = Math.round(width * this.ratio), h = Math.round(height * this.ratio);
    if (this.canvas.width !== w) this.canvas.width = w;
    if (this.canvas.height !== h) this.canvas.height = h;
    this.viewport.setView(width, height);
    this.width = width;
    this.height = height;
    // Lines must be seen from an arm's length on any screen.
    this.line = document.body.classList.contains("sun") ? 4 : 2.5;
  }

  /**
   * `frame` the picture, `track` its targets (or undefined), `drawing` what a person draws, `lensAt` the image
   * point under the lens or null, `isGrey` whether the targets may not be true any more, `proposedS` the age of the image that the box drawn was proposed on, s, null where it was not.
   */
  paint({ frame, track, drawing, lensAt, cursor, isGrey, proposedS }) {
    this.isGrey = isGrey;
    this.fit();
    const { context } = this;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = "#000";
    context.fillRect(0, 0, this.width, this.height);
    this.painted = frame;
    this.lens = null;
    if (!frame) return;
    this.viewport.setImage(frame.width, frame.height);
    this.#scene(frame, track, drawing);
    if (proposedS !== null) this.#proposal(drawing.shownBox, proposedS);
    if (cursor) this.#cross(this.viewport.toView(cursor));
    if (lensAt) this.#lens(lensAt, frame, track, drawing);
  }

  #scene(frame, track, drawing) {
    this.#picture(frame);
    const targets = followedOf(track), isOne = !areMany(targets);
    const steeredLast = [...targets].sort((a, b) => a.steered - b.steered);
    for (const target of steeredLast) this.#target(target, track.behindS + target.behind_s, drawing?.isFrozen, isOne);
    const box = drawing?.shownBox;
    if (box) this.#box(box, DRAWN, drawing.mode === "sent" ? "solid" : "dashed");
    if (drawing?.mark) this.#cross(this.viewport.toView(drawing.mark));
  }

  #picture(frame) {
    const { scale, origin } = this.viewport;
    this.context.imageSmoothingEnabled = (scale * frame.width) / frame.bitmap.width < 4;
    this.context.drawImage(frame.bitmap, origin.x, origin.y, frame.width * scale, frame.height * scale);
  }

  /** `behindS`: how much older than the picture the image is that this is true for; `isOne`: it is the only target, whose
   * colour is that of its state. */
  #target(target, behindS, isHeld, isOne) {
    const { line, frame } = STATES[target.state];
    const colour = this.isGrey ? GREY : isOne ? STATES[target.state].colour : colourOf(target);
    const { toView } = this;
    if (frame && !isHeld && target.steered) this.#border(this.isGrey ? GREY : STATES[target.state].colour, line);
    const shown = this.#inPicture(boxOf(target));
    if (!shown) return;
    this.#box(shown, colour, line, isOne ? 1 : target.steered ? 1.5 : 0.75);
    if (target.box) this.#arrow(shown, target, colour);
    const at = toView(shown);
    const words = [];
    // The others' TRACKING is in the list: words hide what is beside them.
    if (this.isGrey) words.push("last");
    else if (isOne || target.steered || target.state !== "TRACKING") words.push(isHeld ? `then ${target.state}` : target.state);
    if (!target.measured && target.age_s !== null) words.push(`unseen ${target.age_s.toFixed(1)} s`);
    else if ((words.length ? behindS : target.behind_s) >= BEHIND_S) words.push(`${words.length ? "" : "from "}${behindS.toFixed(1)} s ago`);
    if (!isOne) words.unshift(target.steered ? `\u25b6 ${target.id}` : target.id);
    this.#label(words.join(" "), at.x, at.y, at.y + shown.height * this.viewport.scale, colour);
  }

  /** The part of a box in the picture, null where there is none: where a lost target was may have left it. */
  #inPicture(box) {
    const { width, height } = this.viewport.image, part = box && clipBox(box, width, height);
    return part && part.width && part.height ? part : null;
  }

  #proposal(box, ageS) {
    const { x, y, height } = this.#inView(box);
    this.#label(`proposed, ${ageS.toFixed(1)} s ago`, x, y, y + height, DRAWN);
  }

  toView = ({ x, y }) => this.viewport.toView({ x, y });

  #inView(box) {
    const { scale } = this.viewport;
    return { ...this.toView(box), width: box.width * scale, height: box.height * scale };
  }

  #box(box, colour, line, weight = 1) {
    const { x, y, width, height } = this.#inView(box);
    // Around a small target a wide line would hide it.
    const thin = Math.min(width, height) < 24 ? 0.6 * weight : weight;
    this.#stroke(colour, line, (context) => {
      if (line !== "corners") return context.rect(x, y, width, height);
      const arm = Math.min(width, height) * 0.3;
      for (const [cx, cy, dx, dy] of [[x, y, 1, 1], [x + width, y, -1, 1], [x + width, y + height, -1, -1], [x, y + height, 1, -1]]) {
        context.moveTo(cx + dx * arm, cy);
        context.lineTo(cx, cy);
        context.lineTo(cx, cy + dy * arm);
      }
    }, thin);
  }

  #border(colour, line) {
    const { origin, scale, image } = this.viewport;
    const inset = BORDER_PX / 2;
    const x = Math.max(origin.x, 0) + inset, y = Math.max(origin.y, 0) + inset;
    const width = Math.min(image.width * scale, this.width) - 2 * inset;
    const height = Math.min(image.height * scale, this.height) - 2 * inset;
    this.#stroke(colour, line, (context) => context.rect(x, y, width, height), BORDER_PX / this.line);
  }

  #arrow(box, target, colour) {
    if (speedOf(target) === null) return;
    const from = this.toView({ x: box.x + box.width / 2, y: box.y + box.height / 2 });
    const dx = target.velocity[0] * ARROW_S * this.viewport.scale, dy = target.velocity[1] * ARROW_S * this.viewport.scale;
    const length = Math.hypot(dx, dy);
    if (length < 8) return;
    const tip = Math.min(10, length / 2), angle = Math.atan2(dy, dx);
    this.#stroke(colour, "solid", (context) => {
      context.moveTo(from.x, from.y);
      context.lineTo(from.x + dx, from.y + dy);
      for (const side of [-0.5, 0.5]) {
        context.moveTo(from.x + dx, from.y + dy);
        context.lineTo(from.x + dx - tip * Math.cos(angle + side), from.y + dy - tip * Math.sin(angle + side));
      }
    });
  }

  /** Every line twice: wide and dark below, so that it is seen on bright footage as well. */
  #stroke(colour, line, path, thin = 1) {
    const { context } = this;
    context.setLineDash(DASHES[line].map((length) => length * thin));
    context.lineCap = line === "dotted" ? "round" : "butt";
    for (const [style, width] of [[EDGE, (this.line + 3) * thin], [colour, this.line * thin]]) {
      context.strokeStyle = style;
      context.lineWidth = width;
      context.beginPath();
      path(context);
      context.stroke();
    }
    context.setLineDash([]);
  }

  #label(text, x, top, bottom, colour) {
    const { context } = this;
    context.font = "600 14px system-ui, sans-serif";
    const width = context.measureText(text).width + 12;
    const left = Math.min(Math.max(x, 2), Math.max(2, this.width - width - 2));
    const y = top >= 26 ? top - 25 : Math.min(bottom + 5, this.height - 22);
    context.fillStyle = EDGE;
    context.fillRect(left - 1.5, y - 1.5, width + 3, 23);
    context.fillStyle = colour;
    context.fillRect(left, y, width, 20);
    context.fillStyle = "#000";
    context.textBaseline = "middle";
    context.fillText(text, left + 6, y + 10.5);
  }

  #cross({ x, y }) {
    this.#stroke(DRAWN, "solid", (context) => {
      for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
        context.moveTo(x + 3 * dx, y + 3 * dy);
        context.lineTo(x + 12 * dx, y + 12 * dy);
      }
    });
  }

  #lens(point, frame, track, drawing) {
    const { context, viewport } = this;
    const at = this.toView(point);
    const box = drawing?.shownBox;
    const place = this.lens = lensPlace(at, { width: this.width, height: this.height }, box ? this.#inView(box) : null);
    const zoom = lensZoom(viewport.scale);
    context.save();
    context.beginPath();
    context.arc(place.x, place.y, LENS_RADIUS_PX, 0, 2 * Math.PI);
    context.clip();
    context.fillStyle = "#000";
    context.fill();
    context.translate(place.x, place.y);
    context.scale(zoom, zoom);
    context.translate(-at.x, -at.y);
    const line = this.line;
    this.line = line / zoom + 0.2;
    this.#picture(frame);
    if (box) this.#box(box, DRAWN, "solid");
    this.line = line;
    context.restore();
    this.#stroke(DRAWN, "solid", (c) => c.arc(place.x, place.y, LENS_RADIUS_PX, 0, 2 * Math.PI));
    this.#cross(place);
  }
}
