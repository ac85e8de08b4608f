// Paints the canvas: the picture, the targets with their labels, the drawing, the gimbal's scales and the lens.

import { STATES, EDGE } from "./palette.js";
import { areMany, boxOf, colourOf, followedOf, speedOf } from "./targets.js";
import { LENS_RADIUS_PX, clipBox, lensPlace, lensZoom } from "./geometry.js";
import { paintAngles } from "./angles.js";
import { placeLabels } from "./labels.js";
import { spanOf } from "./texts.js";

const DASHES = { solid: [], corners: [], dashed: [10, 7], dotted: [2, 6], none: [] };
const DRAWN = "#ffffff", GREY = "#bbbbbb";
const ARROW_S = 0.5;
// Width of the border around the picture while the target is LOST.
const BORDER_PX = 10;
const LABEL_PX = 20;
// Half the size of the cross in the middle of the picture.
const MARK_PX = 14;
/** If the tracker's answer is older than the picture by at least this, labels show by how much. */
export const BEHIND_S = 0.2;

export class View {
  /** `viewport`: a `Viewport`, the place of the picture in the view. */
  constructor(canvas, viewport) {
    this.canvas = canvas;
    this.viewport = viewport;
    this.context = canvas.getContext("2d");
    // The frame that is on the canvas now; null: none.
    this.painted = null;
    // The centre of the lens, px of the view; null: no lens.
    this.lens = null;
  }

  /** The part of the view between the page's bars at top and bottom. */
  #free() {
    const { top, bottom } = this.viewport.insets;
    return { x: 0, y: top, width: this.width, height: this.height - top - bottom };
  }

  /** Match the canvas to its size on the page, and the lines to the theme. */
  fit() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.ratio = window.devicePixelRatio || 1;
    const w = Math.round(width * this.ratio), h = Math.round(height * this.ratio);
    if (this.canvas.width !== w) this.canvas.width = w;
    if (this.canvas.height !== h) this.canvas.height = h;
    this.viewport.setView(width, height);
    this.width = width;
    this.height = height;
    // Width of lines, CSS px: about the same on any screen, and larger in the theme for bright light.
    const inSun = document.body.classList.contains("sun");
    this.line = inSun ? 4 : 2.5;
    this.ground = inSun ? "#d8d8d8" : "#000";
  }

  /**
   * Paint everything.
   *
   * `frame`: the picture; undefined or null: none. `track`: its targets, or undefined. `drawing`: the `Drawing`. `lensAt`: the
   * image point under the lens, or null. `cursor`: the image point of the keyboard's cursor, or null. `isGrey`: whether the
   * targets may be outdated. `staleS`: age of an outdated picture, s; null if the picture is up to date. `gimbal`: the server's
   * `angles` of the gimbal, {} if they are unknown, null without a gimbal. `likely`: the box proposed for a lost target, or
   * null. `proposedS`: age of the image for which the drawing's box was proposed, s; null if it was not proposed. `panels`:
   * rectangles [{x, y, width, height}] of the view that labels must not cover.
   */
  paint({ frame, track, drawing, lensAt, cursor, isGrey, staleS = null, gimbal = null, likely = null, proposedS, panels = [] }) {
    this.isGrey = isGrey;
    this.panels = panels;
    this.labels = [];
    this.fit();
    const { context } = this;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = this.ground;
    context.fillRect(0, 0, this.width, this.height);
    this.painted = frame;
    this.lens = null;
    if (!frame) return;
    this.viewport.setImage(frame.width, frame.height);
    this.#scene(frame, track, drawing, { hasGimbal: gimbal !== null, isStale: staleS !== null });
    if (gimbal && staleS === null) this.panels = [...this.panels, ...paintAngles(context, this.#free(), gimbal)];
    if (proposedS !== null) this.#label(`proposed, ${proposedS.toFixed(1)} s ago`, this.#inView(drawing.shownBox), DRAWN);
    if (likely) {
      this.#box(likely, DRAWN, "dashed");
      this.#label("the lost target?", this.#inView(likely), DRAWN);
    }
    if (staleS !== null) this.#showAge(staleS);
    this.#showLabels();
    this.#showPart();
    if (cursor) this.#cross(this.viewport.toView(cursor));
    if (lensAt) this.#lens(lensAt, frame, track, drawing);
  }

  #scene(frame, track, drawing, { hasGimbal, isStale }) {
    this.#picture(frame);
    if (isStale) this.#dim();
    if (hasGimbal) this.#middle();
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

  /** Paint one target. `behindS`: by how much the image of its report is older than the picture, s. `isHeld`: the picture is
   * frozen. `isOne`: it is the only target; then its colour shows its state. */
  #target(target, behindS, isHeld, isOne) {
    const { line, frame } = STATES[target.state];
    const colour = this.isGrey ? GREY : isOne ? STATES[target.state].colour : colourOf(target);
    if (frame && !isHeld && target.steered) this.#border(this.isGrey ? GREY : STATES[target.state].colour, line);
    const shown = this.#inPicture(boxOf(target));
    if (!shown) return;
    this.#box(shown, colour, line, isOne ? 1 : target.steered ? 1.5 : 0.75);
    if (target.box) this.#arrow(shown, target, colour);
    this.#label(this.#labelOf(target, behindS, isHeld, isOne), this.#inView(shown), colour, target.steered);
  }

  #labelOf(target, behindS, isHeld, isOne) {
    const parts = [];
    // The label of a target that is not steered omits TRACKING, to cover less of the picture. The list shows it.
    if (this.isGrey) parts.push("last");
    else if (isOne || target.steered || target.state !== "TRACKING") parts.push(isHeld ? `then ${target.state}` : target.state);
    if (!target.measured && target.age_s !== null) parts.push(`unseen ${spanOf(target.age_s)}`);
    else if ((parts.length ? behindS : target.behind_s) >= BEHIND_S) parts.push(`${parts.length ? "" : "from "}${behindS.toFixed(1)} s ago`);
    if (!isOne) parts.unshift(target.steered ? `\u25b6 ${target.id}` : target.id);
    return parts.join(" ");
  }

  /** The part of a box inside the picture; null if there is none, as when a lost target has left the picture. */
  #inPicture(box) {
    const { width, height } = this.viewport.image, part = box && clipBox(box, width, height);
    return part && part.width && part.height ? part : null;
  }

  toView = ({ x, y }) => this.viewport.toView({ x, y });

  #inView(box) {
    const { scale } = this.viewport;
    return { ...this.toView(box), width: box.width * scale, height: box.height * scale };
  }

  #box(box, colour, line, weight = 1) {
    const { x, y, width, height } = this.#inView(box);
    // A wide line would hide a small target.
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

  /** Stroke a path twice, first wide and dark, then in `colour`, so that it is visible on a bright picture too. */
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

  /** Add a label for `box`, px of the view. `isFirst`: it chooses its place before the others. */
  #label(text, box, colour, isFirst = true) {
    const label = { text, box, colour, height: LABEL_PX + 3 };
    if (isFirst) this.labels.unshift(label);
    else this.labels.push(label);
  }

  /** Paint all labels. Must be called after the boxes, so that no box covers a label. */
  #showLabels() {
    const { context } = this;
    context.font = "600 14px system-ui, sans-serif";
    context.textBaseline = "middle";
    const labels = this.labels.map((label) => ({ ...label, width: context.measureText(label.text).width + 15 }));
    this.placed = placeLabels(labels, { width: this.width, height: this.height }, this.panels);
    labels.forEach(({ text, colour }, i) => {
      const { x, y, width, height } = this.placed[i];
      context.fillStyle = EDGE;
      context.fillRect(x, y, width, height);
      context.fillStyle = colour;
      context.fillRect(x + 1.5, y + 1.5, width - 3, height - 3);
      context.fillStyle = "#000";
      context.fillText(text, x + 7.5, y + height / 2 + 0.5);
    });
  }

  /** Darken the picture, because it is outdated. */
  #dim() {
    const { context } = this, { origin, scale, image } = this.viewport;
    context.fillStyle = "rgba(0, 0, 0, 0.55)";
    context.fillRect(origin.x, origin.y, image.width * scale, image.height * scale);
  }

  /** Paint the age of an outdated picture, s. */
  #showAge(ageS) {
    const { context } = this, { origin, scale, image, insets } = this.viewport;
    const text = `picture of ${spanOf(ageS)} ago`;
    context.font = "700 22px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    const y = Math.min(origin.y + image.height * scale, this.height - insets.bottom) - 28;
    context.lineWidth = 5;
    context.strokeStyle = "#000";
    context.strokeText(text, this.width / 2, y);
    context.fillStyle = "#fff";
    context.fillText(text, this.width / 2, y);
    context.textAlign = "left";
  }

  /** Paint a cross in the middle of the picture, to which the gimbal brings the target. */
  #middle() {
    const { image } = this.viewport, { x, y } = this.toView({ x: image.width / 2, y: image.height / 2 });
    const { context } = this;
    context.lineCap = "butt";
    for (const [style, width] of [["rgba(0, 0, 0, 0.5)", 3], ["rgba(255, 255, 255, 0.8)", 1.2]]) {
      context.strokeStyle = style;
      context.lineWidth = width;
      context.beginPath();
      for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
        context.moveTo(x + 5 * dx, y + 5 * dy);
        context.lineTo(x + MARK_PX * dx, y + MARK_PX * dy);
      }
      context.stroke();
    }
  }

  /** Paint a bar that shows which part of the picture is in view, for each side on which it is longer than the view. */
  #showPart() {
    const { context } = this, { origin, scale, image, insets } = this.viewport;
    const bar = (x, y, width, height, colour) => {
      context.fillStyle = colour;
      context.fillRect(x, y, width, height);
    };
    const width = image.width * scale, height = image.height * scale, low = Math.min(origin.y + height, this.height - insets.bottom) - 5;
    if (width > this.width + 1) {
      bar(0, low, this.width, 4, "rgba(0, 0, 0, 0.6)");
      bar((-origin.x / width) * this.width, low, (this.width / width) * this.width, 4, "rgba(255, 255, 255, 0.9)");
    }
    if (height > this.height + 1) {
      bar(this.width - 5, 0, 4, this.height, "rgba(0, 0, 0, 0.6)");
      bar(this.width - 5, (-origin.y / height) * this.height, 4, (this.height / height) * this.height, "rgba(255, 255, 255, 0.9)");
    }
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
