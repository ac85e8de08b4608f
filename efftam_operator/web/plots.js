// Speed, confidence, presence and latency over time, above a ribbon of states.

import { STATES } from "./palette.js";
import { speedOf, steeredOf } from "./targets.js";

const SPAN_S = 60;
// Points farther apart than this, s, are not joined by a line, because there were no images in between.
const GAP_S = 1;
const MAX_POINTS = 3600;
// The scale fits only this share of the values: otherwise a single outlier would flatten the curve for a minute.
const SCALED_SHARE = 0.97;
const LEFT_PX = 110, RIGHT_PX = 8;
const RIBBON_PX = 18, GAP_PX = 6;
const MIN_ROW_PX = 34;
const DASHES = [[], [4, 3]];
const TEXTURES = { IDLE: null, ACQUIRING: "up", TRACKING: null, COASTING: "cross", LOST: "down" };

/** The rows of plots. `keys`: the values of a point that a row shows; `range`: ends of its scale, null: set by the values. */
const ROWS = [
  { title: "speed", unit: "px/s", keys: ["speed"], range: [0, null] },
  { title: "confidence", second: "presence", unit: "", keys: ["confidence", "presence"], range: [0, 1] },
  { title: "latency", unit: "ms", keys: ["latency"], range: [0, null] },
];

/** The values of the steered target over the last minute, one point for each track. */
export class History {
  points = [];

  add(track) {
    const target = steeredOf(track);
    const t = Number(BigInt(track.stamp) / 1000000n) / 1000;
    // Time went back: a bag starts again, or the target was selected on an older picture. Later points are wrong now.
    if (t <= this.points.at(-1)?.t) this.points = this.points.filter((point) => point.t < t);
    const before = this.points.at(-1)?.t, state = target?.state ?? "IDLE";
    if (t - before > GAP_S) this.points.push({ t: before });
    // Without a target there are no values.
    const known = state === "IDLE" ? {} : { speed: speedOf(target), confidence: target.confidence, presence: target.presence };
    this.points.push({ t, state, speed: null, confidence: null, presence: null, ...known, latency: track.latency_ms });
    while (this.points.length > MAX_POINTS || this.points[0].t < t - SPAN_S) this.points.shift();
  }
}

export class Plots {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
  }

  #fit() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.width = width;
    this.height = height;
    const style = getComputedStyle(document.body);
    this.ink = style.getPropertyValue("--ink").trim();
    this.faint = style.getPropertyValue("--faint").trim();
    this.context.clearRect(0, 0, width, height);
    this.context.textBaseline = "middle";
    this.context.font = "12px system-ui, sans-serif";
  }

  /** Paint the last minute of `points` {t, state, speed, confidence, presence, latency}, as `History` keeps them. `isGrey`: the
   * last point may be outdated, so its numbers are not shown. */
  paint(points, isGrey) {
    this.#fit();
    this.now = isGrey ? {} : points.at(-1);
    if (!points.length || this.width < 120) return;
    this.to = points.at(-1).t;
    this.from = this.to - SPAN_S;
    const ribbon = RIBBON_PX + 2 + GAP_PX;
    // If the canvas is too low for all rows, the last ones are left out.
    const rows = ROWS.slice(0, Math.max(1, Math.floor((this.height - ribbon) / (MIN_ROW_PX + GAP_PX))));
    const height = (this.height - ribbon) / rows.length - GAP_PX;
    rows.forEach((row, i) => this.#row(points, row, i * (height + GAP_PX) + 2, height));
    this.#ribbon(points, this.height - ribbon + GAP_PX);
  }

  #x(t) {
    return LEFT_PX + ((t - this.from) / (this.to - this.from)) * (this.width - LEFT_PX - RIGHT_PX);
  }

  #row(points, row, top, height) {
    const { context } = this;
    const largest = row.range[1] ?? largestOf(points.map((point) => point[row.keys[0]] ?? 0));
    context.strokeStyle = this.faint;
    context.lineWidth = 1;
    context.strokeRect(LEFT_PX + 0.5, Math.round(top) + 0.5, this.width - LEFT_PX - RIGHT_PX, Math.round(height));
    const titles = [row.title, row.second];
    row.keys.forEach((key, i) => {
      const y = top + height * (row.keys.length === 1 ? 0.3 : 0.22 + 0.56 * i);
      this.#text(titles[i], 4, y, this.ink);
      if (row.keys.length > 1) this.#sample(4, y + 9, i);
      this.#text(shownValue(this.now[key], row), LEFT_PX - 6, row.keys.length === 1 ? top + height * 0.7 : y, this.ink, "right");
    });
    // The end of the scale is written beside the curves, because over them neither could be read.
    this.#text(row.range[1] === null ? `${largest}` : "", LEFT_PX - 6, top + 8, this.ink, "right");
    context.save();
    context.beginPath();
    context.rect(LEFT_PX, top, this.width - LEFT_PX - RIGHT_PX, height);
    context.clip();
    row.keys.forEach((key, i) => this.#curve(points, key, top, height, largest, i));
    context.restore();
  }

  #curve(points, key, top, height, largest, dash) {
    const { context } = this;
    this.#pen(dash);
    let pen = false;
    for (const point of points) {
      const value = point[key];
      if (value === null || value === undefined) {
        pen = false;
        continue;
      }
      const x = this.#x(point.t), y = top + height - 1 - (Math.min(value, largest) / largest) * (height - 3);
      if (pen) context.lineTo(x, y);
      else context.moveTo(x, y);
      pen = true;
    }
    context.stroke();
    context.setLineDash([]);
  }

  #ribbon(points, top) {
    this.#text("state", 4, top + RIBBON_PX / 2, this.ink);
    let start = 0;
    for (let i = 1; i <= points.length; i++) {
      if (i < points.length && points[i].state === points[start].state) continue;
      const end = i < points.length ? points[i].t : this.to;
      this.#piece(points[start].state, this.#x(points[start].t), this.#x(end), top);
      start = i;
    }
    this.#text(this.now.state?.[0] ?? "–", LEFT_PX - 6, top + RIBBON_PX / 2, this.ink, "right");
  }

  #piece(state, x0, x1, top) {
    const { context } = this;
    const left = Math.max(x0, LEFT_PX), width = x1 - left;
    if (width <= 0) return;
    if (!STATES[state]) {
      // This piece of the ribbon has no state, because no images arrived.
      context.fillStyle = this.faint;
      context.fillRect(left, top + RIBBON_PX / 2, width, 1);
      return;
    }
    context.fillStyle = STATES[state].colour;
    context.fillRect(left, top, Math.max(width, 1), RIBBON_PX);
    this.#texture(TEXTURES[state], left, width, top);
    context.font = "600 11px system-ui, sans-serif";
    const label = [state, state.slice(0, 5), state[0]].find((w) => context.measureText(w).width + 8 <= width);
    if (label) {
      const room = context.measureText(label).width + 6;
      context.fillStyle = STATES[state].colour;
      context.fillRect(left + 2, top, room, RIBBON_PX);
      this.#text(label, left + 5, top + RIBBON_PX / 2 + 0.5, "#000");
    }
    context.font = "12px system-ui, sans-serif";
  }

  #texture(kind, left, width, top) {
    if (!kind) return;
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(left, top, width, RIBBON_PX);
    context.clip();
    context.strokeStyle = "rgba(0,0,0,0.55)";
    context.lineWidth = 1.2;
    context.beginPath();
    for (let x = left - RIBBON_PX; x < left + width + RIBBON_PX; x += 7) {
      if (kind !== "down") {
        context.moveTo(x, top + RIBBON_PX);
        context.lineTo(x + RIBBON_PX, top);
      }
      if (kind !== "up") {
        context.moveTo(x, top);
        context.lineTo(x + RIBBON_PX, top + RIBBON_PX);
      }
    }
    context.stroke();
    context.restore();
  }

  #pen(row) {
    const { context } = this;
    context.strokeStyle = this.ink;
    context.lineWidth = row ? 1.2 : 1.8;
    context.setLineDash(DASHES[row]);
    context.beginPath();
  }

  #sample(x, y, row) {
    const { context } = this;
    this.#pen(row);
    context.moveTo(x, y);
    context.lineTo(x + 24, y);
    context.stroke();
    context.setLineDash([]);
  }

  #text(text, x, y, colour, align = "left") {
    this.context.fillStyle = colour;
    this.context.textAlign = align;
    this.context.fillText(text, x, y);
    this.context.textAlign = "left";
  }
}

function shownValue(value, row) {
  if (value === null || value === undefined) return "–";
  return row.range[1] === 1 ? value.toFixed(2) : `${Math.round(value)} ${row.unit}`;
}

/** The upper end of a scale for `values`: the smallest of 1, 2, 5, 10, 20, ... that is at least as large as SCALED_SHARE of
 * them. */
export function largestOf(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return niceCeiling(Math.max(1, sorted[Math.ceil(SCALED_SHARE * sorted.length) - 1] ?? 0));
}

/** The smallest of 1, 2, 5, 10, 20, ... that is at least `value`. */
function niceCeiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((m) => m * power).find((v) => v >= value);
}
