// Texts about a target. Uses no DOM.

import { speedOf } from "./targets.js";

/** How sure the tracker is of the target, 0 to 1: the confidence, or the presence where no confidence is known. */
export const confidenceOf = ({ confidence, presence }) => confidence ?? presence;

const BARS = 5;
const LEAST = [[0.8, "sure"], [0.5, "fairly sure"], [0, "not sure"]];

/** A confidence of 0 to 1 as {bars, label}: 1 to 5 bars, and a text. */
export function confidenceShown(confidence) {
  return { bars: Math.min(BARS, Math.max(1, Math.ceil(BARS * confidence))), label: LEAST.find(([least]) => confidence >= least)?.[1] ?? "not sure" };
}

/** A time span, s, as text. */
export function spanOf(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  return seconds < 100 ? `${Math.floor(seconds)} s` : `${Math.floor(seconds / 60)} min`;
}

/** One line about a target. `unseenS`: for how long the target has not been seen, s; null: unknown. */
export function lineOf(target, unseenS) {
  const speed = speedOf(target);
  if (target.state === "LOST") return unseenS === null ? "lost; searching" : `lost ${spanOf(unseenS)} ago; searching`;
  if (target.state === "COASTING") return `${unseenS === null ? "not seen" : `not seen for ${spanOf(unseenS)}`}; the box is predicted`;
  const parts = target.state === "ACQUIRING" ? ["selected; confirming"] : [];
  if (target.reason) parts.push(target.reason);
  else if (target.state === "TRACKING" && confidenceOf(target) !== null) parts.push(confidenceShown(confidenceOf(target)).label);
  if (target.state === "TRACKING" && speed !== null && !target.reason) parts.push(speed < 1 ? "stands still" : `${Math.round(speed)}\u00a0px/s`);
  return parts.join(" · ");
}

/**
 * The numbers for developers as pairs [name, text]. `target`: the steered target or undefined; `track`: the track that
 * contains it, or undefined; `size`: size of the camera's image; `ageMs`: age of the picture, null: unknown; `behindS`: by
 * how much the answer is older than the picture, s.
 */
export function numbersOf({ target, track, size, ageMs, behindS }) {
  const number = (value, digits = 2) => (value === null || value === undefined ? "–" : value.toFixed(digits));
  const rows = [];
  if (target && target.state !== "IDLE") {
    const speed = speedOf(target);
    rows.push(["target", `${target.id}, selection ${target.selection}`]);
    rows.push(["confidence", number(target.confidence)]);
    rows.push(["presence", number(target.presence)], ["likeness", number(target.likeness)], ["quality", number(target.quality)]);
    rows.push(["speed", speed === null ? "–" : `${number(speed, 1)} px/s`]);
    if (target.box) rows.push(["box", `${target.box.map((value) => Math.round(value)).join(", ")} px`]);
    if (target.age_s !== null) rows.push(["last seen", `${number(target.age_s, 1)} s before the picture`]);
    if (target.reason) rows.push(["reason", target.reason]);
  }
  if (track) rows.push(["tracker's time", track.latency_ms === null ? "–" : `${Math.round(track.latency_ms)} ms from camera to answer`]);
  if (behindS) rows.push(["answer", `${number(behindS, 1)} s older than the picture`]);
  rows.push(["picture's age", ageMs === null ? "unknown: the camera has another clock" : `${Math.round(ageMs)} ms`]);
  if (size) rows.push(["camera", `${size.width} x ${size.height} px`]);
  return rows;
}
