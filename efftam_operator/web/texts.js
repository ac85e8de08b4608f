// What is known of a target, as text. No DOM.

import { speedOf } from "./targets.js";

/** How sure the tracker is of the target, 0..1; without the identity network that something like it is in view. */
export const confidenceOf = ({ confidence, presence }) => confidence ?? presence;

const BARS = 5;
const LEAST = [[0.8, "sure"], [0.5, "fairly sure"], [0, "not sure"]];

/** {bars, label} of a confidence: 1 to 5 bars. */
export function confidenceShown(confidence) {
  return { bars: Math.min(BARS, Math.max(1, Math.ceil(BARS * confidence))), label: LEAST.find(([least]) => confidence >= least)?.[1] ?? "not sure" };
}

/** A time span as text. */
export function spanOf(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  return seconds < 100 ? `${Math.floor(seconds)} s` : `${Math.floor(seconds / 60)} min`;
}

/** One line on a target; `unseenS`: for how long it has not been seen, s, or null. */
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

/** The developer's numbers as [name, text]. */
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
  rows.push(["picture's age", ageMs === null ? "unknown: the camera's clock is another" : `${Math.round(ageMs)} ms`]);
  if (size) rows.push(["camera", `${size.width} x ${size.height} px`]);
  return rows;
}
